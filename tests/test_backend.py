"""What the module hands to the backends that are chosen by name."""

import pytest
import torch

from graphrelu import GReLU
from tests.helpers import FULL, OTHER, assert_close, batch_of_graphs, opened, random_graph

EDGES = random_graph(20, 60)
WEIGHT = torch.rand(60, dtype=torch.double) + 0.1
OPTIONS = [
    {},
    {"bias": False},
    OTHER,
    FULL,
    {"node_wise": False},
    {"channel_wise": False, "K": 3},
    {"K": 3, "mode": "paper", "steps": 2},
    {"topology": False, "negative_slope": 0.2},
    {"alpha": 0.6, "diffusion": "power", "add_self_loops": True},
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.double])
@pytest.mark.parametrize("options", [*OPTIONS, {"diffusion": "exact"}, {"hidden": 3}])
def test_reference_gets_all_options(
    options: dict, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = opened(GReLU(4, **options)).double()
    x = torch.randn(20, 4, dtype=torch.double).to(dtype)
    batch = torch.zeros(20, dtype=torch.long)
    calls = ((EDGES, WEIGHT), (EDGES, WEIGHT, batch, 1))
    expected = [act(x.double(), *call) for call in calls]
    act = act.to(torch.promote_types(dtype, torch.float))
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    for call, exact in zip(calls, expected, strict=True):
        out = act(x, *call)
        assert out.dtype == dtype
        tolerance = 1e-10 if dtype == torch.double else 2 * torch.finfo(dtype).eps
        assert_close(out.double(), exact, tolerance)


def test_reference_knows_batches_autocast_and_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index, batch = batch_of_graphs([5, 3])
    act, x = opened(GReLU(4)), torch.randn(8, 4)
    expected = act(x, edge_index, batch=batch)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    assert_close(act(x, edge_index, batch=batch), expected, 1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(act(x, edge_index, batch=batch), expected, 1e-5)
    with pytest.raises(ValueError, match="edge_weight"):
        act(x, edge_index, torch.ones(edge_index.size(1) + 1))
