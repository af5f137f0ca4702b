"""What the module hands to the backends that are chosen by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu import GReLU, functional, whole
from graphrelu.calibration import Calibration
from tests.helpers import PLAIN, SMOOTH, assert_close, batch_of_graphs, opened, random_graph

EDGES = random_graph(20, 60)
WEIGHT = torch.rand(60, dtype=torch.double) + 0.1
OPTIONS = [
    {},
    {"bias": False},
    {"calibration": Calibration(channel_scale=2.0, rest_scale=0.3, gate_scale=0.7)},
    {"calibration": PLAIN},
    {"calibration": SMOOTH},
    {"K": 3, "mode": "paper", "steps": 2},
    {"topology": False, "negative_slope": 0.2},
    {"alpha": 0.6, "diffusion": "power", "add_self_loops": True},
]


def plain(x: Tensor, node: Tensor, weight: Tensor, bias: Tensor, gate: Tensor, form: whole.Form):
    """`whole.grelu` from the functions of the reference."""
    graph, mass = form.graph, form.mass(x).to(x.dtype)
    local = x @ node.t()
    logits, rho = local if graph is None else graph.diffuse(local), None
    if graph is not None and gate is not None and form.calibration.smooth:
        logits = functional.surroundings(logits, graph.row_mass.view(-1, 1))
        rho = functional.smoothness(local, logits)
        logits = logits * rho**form.calibration.smooth
    mean = (mass @ x / x.size(0)).view(1, -1)
    constants = None if gate is None else form.calibration
    slopes, intercepts = functional.channel_parameters(
        mean, lambda m: F.linear(m, weight, bias), form.K, form.bias, constants
    )
    if gate is None:
        gamma = functional.node_parameters(logits)
    else:
        gamma = functional.calibrated_node_parameters(logits, calibration=form.calibration)
        slopes, intercepts = functional.calibrated_channel_parameters(
            slopes, intercepts, gate, form.calibration, rho
        )
    return functional.piecewise_max(
        x, *functional.coefficients(gamma, slopes, intercepts, form.base)
    )


@pytest.mark.parametrize("options", OPTIONS)
def test_one_function_gets_all_of_the_form(options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    act = opened(GReLU(4, **options)).double()
    x = torch.randn(20, 4, dtype=torch.double)
    expected = act(x, EDGES, WEIGHT)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "triton")
    monkeypatch.setattr(whole, "grelu", plain)
    assert_close(act(x, EDGES, WEIGHT), expected)
    with pytest.raises(ValueError, match="x must have 4 channels"):
        act(x[:, :3], EDGES)
    with pytest.raises(ValueError, match="batch must be given for a batch_size of 2"):
        act(x, EDGES, batch_size=2)
    with pytest.raises(ValueError, match="edge_index must be on cpu"):
        act(x, EDGES.to("meta"))


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
