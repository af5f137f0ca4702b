"""Bad input: one sentence, of the right type, that names the argument."""

from collections.abc import Callable

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphrelu import GReLU

X, EDGES = torch.randn(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]])
BATCH = torch.tensor([0, 0, 0, 0, 1])


def check(error: type[Exception], message: str, call: Callable[..., object], *args: object) -> None:
    with pytest.raises(error, match=message) as caught:
        call(*args)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "argument", "arguments"),
    [
        (ValueError, "x must have 4 channels, got 3", (X[:, :3], EDGES)),
        (ValueError, r"x must be of shape \[num_nodes, 4\], got \[4\]", (X[0], EDGES)),
        (ValueError, "x must be of shape", (X.unsqueeze(0), EDGES)),
        (TypeError, "x must be of a floating type", (X.long(), EDGES)),
        (TypeError, "x must be a tensor, got list", ([[1.0] * 4], EDGES)),
        (TypeError, "pass data.x and data.edge_index", (Data(x=X), EDGES)),
        (TypeError, "must belong to one node type: HeteroGReLU", ({"paper": X}, EDGES)),
        (TypeError, "must belong to one node type: HeteroGReLU", (HeteroData(), EDGES)),
        (TypeError, "must belong to one node type: HeteroGReLU", (X, {("a", "to", "b"): EDGES})),
        (ValueError, r"edge_index must be of shape \[2, num_edges\]", (X, EDGES.t())),
        (ValueError, "edge_index must be of shape", (X, EDGES[0])),
        (TypeError, "edge_index must hold int64", (X, EDGES.float())),
        (TypeError, "edge_index must be a .* got list", (X, [[0], [1]])),
        (TypeError, "edge_index must be given, or an activation", (X, None)),
        (ValueError, "edge_index must hold indices between 0 and 4.*got 5", (X, EDGES + 2)),
        (ValueError, "edge_index must hold indices .* got -1", (X, EDGES - 1)),
        (ValueError, "edge_index must be on cpu.*got meta", (X, EDGES.to("meta"))),
        (ValueError, r"edge_index as a sparse adjacency .*\[5, 5\]", (X, torch.eye(3).to_sparse())),
        (TypeError, r"edge_weight must be of a floating.*batch=batch\.", (X, EDGES, BATCH)),
        (ValueError, "edge_weight must be None", (X, torch.eye(5).to_sparse(), torch.ones(5))),
        (ValueError, r"edge_weight must be of shape \[3\]", (X, EDGES, torch.ones(4))),
        (ValueError, "edge_weight must be finite and non-neg", (X, EDGES, -torch.ones(3))),
        (ValueError, "edge_weight must be finite", (X, EDGES, torch.full((3,), torch.nan))),
        (ValueError, "edge_weight must be on cpu", (X, EDGES, torch.ones(3, device="meta"))),
        (TypeError, "edge_weight must be a tensor, got list", (X, EDGES, [1.0, 1.0, 1.0])),
        (ValueError, r"batch must be of shape \[5\]", (X, EDGES, None, BATCH[:4])),
        (ValueError, "batch must be sorted", (X, EDGES, None, BATCH.flip(0))),
        (ValueError, "batch must not hold negative", (X, EDGES, None, BATCH - 1)),
        (ValueError, "batch must hold graph ids below", (X, EDGES, None, BATCH, 1)),
        (TypeError, "batch must be a tensor of int64", (X, EDGES, None, BATCH.float())),
        (TypeError, "batch must be a tensor of int64 graph ids, got list", (X, EDGES, None, [0])),
        (ValueError, "batch must keep both ends", (X, EDGES + 1, None, BATCH)),
        (ValueError, "batch must be given for a batch_size of 2", (X, EDGES, None, None, 2)),
        (ValueError, "batch must be on cpu", (X, EDGES, None, BATCH.to("meta"))),
    ],
)
def test_forward(error: type[Exception], argument: str, arguments: tuple) -> None:
    check(error, argument, GReLU(4), *arguments)


@pytest.mark.parametrize(
    ("error", "argument", "options"),
    [
        (ValueError, "K must be at least 1, got 0", {"K": 0}),
        (TypeError, "K must be an integer, got 2.0", {"K": 2.0}),
        (ValueError, "channels must be at least 1", {"channels": 0}),
        (ValueError, r"alpha must be in \(0, 1\], got 0", {"alpha": 0}),
        (ValueError, "alpha must be in", {"alpha": 1.5}),
        (ValueError, "alpha must be in", {"alpha": float("nan")}),
        (ValueError, "steps must be at least 1", {"steps": 0}),
        (ValueError, "diffusion must be one of power, exact, got 'heat'", {"diffusion": "heat"}),
        (ValueError, "mode must be one of calibrated, paper", {"mode": "printed"}),
        (ValueError, "negative_slope must be at most 1", {"negative_slope": 1.5}),
        (
            ValueError,
            "negative_slope must be left out in",
            {"negative_slope": 0.1, "mode": "paper"},
        ),
        (ValueError, "must not both be False", {"node_wise": False, "channel_wise": False}),
        *(
            (ValueError, rf"dropout must be in \[0, 1\), got {value}", {"dropout": value})
            for value in (-0.1, 1.0, 1.5, float("nan"))
        ),
        *(
            (ValueError, f"{name} must be positive, got {value}", {name: value})
            for name in ("scale", "temperature")
            for value in (0.0, -2.0, float("nan"))
        ),
        *(
            (ValueError, f"{name} must be left out in mode='paper'", {name: 0.5, "mode": "paper"})
            for name in ("dropout", "scale", "temperature")
        ),
    ],
)
def test_options(error: type[Exception], argument: str, options: dict) -> None:
    check(error, argument, lambda: GReLU(**{"channels": 4, **options}))


def test_a_graph_that_is_too_large_to_invert() -> None:
    exact, x = GReLU(1, diffusion="exact"), torch.zeros(20_001, 1)
    check(ValueError, "takes at most 20,000 nodes, got 20,001", exact, x, EDGES)


def test_values_are_looked_at_wherever_there_are_some() -> None:
    """In a compiled model when it runs, and in a vmap unless they are mapped."""
    act, negative = GReLU(4), -torch.ones(3)
    for run in (act, torch.compile(act, backend="aot_eager")):
        check(ValueError, "edge_weight must be finite", run, X, EDGES, negative)
    mapped = torch.func.vmap(lambda x: act(x, EDGES, negative))
    check(ValueError, "edge_weight must be finite", mapped, X.unsqueeze(0))
    torch.func.vmap(lambda weight: act(X, EDGES, weight))(negative.unsqueeze(0))
