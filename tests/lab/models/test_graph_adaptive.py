"""Against the formula with loops over nodes."""

import math

import pytest
import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops, to_torch_csr_tensor

from graphrelu.lab.models.graph_adaptive import GraphAdaptive, GraphMax, GraphMedian
from tests.helpers import assert_close, random_graph

KINDS = (GraphMax, GraphMedian)


def by_loops(act: GraphAdaptive, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
    num_nodes = x.size(0)
    edges, values = gcn_norm(edge_index, weight, num_nodes, dtype=x.dtype)
    shift = torch.zeros(num_nodes, num_nodes, dtype=x.dtype)
    shift.index_put_((edges[1], edges[0]), values, accumulate=True)
    out = act.weight[0] * x.clamp(min=0)
    for k in range(1, act.K + 1):
        x = shift @ x
        for node in range(num_nodes):
            around = {node, *edge_index[0, edge_index[1] == node].tolist()}
            values = x[sorted(around)]
            chosen = values.amax(0) if isinstance(act, GraphMax) else values.median(0).values
            out[node] = out[node] + act.weight[k] * chosen
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("K", [1, 3])
def test_formula(kind: type[GraphAdaptive], K: int) -> None:
    """With loops and repeated edges, with and without weights; also of a sparse adjacency."""
    act, x = kind(4, K=K).double(), torch.randn(9, 4, dtype=torch.double)
    edge_index, _ = remove_self_loops(random_graph(9, 30))
    edge_index = torch.cat([edge_index, torch.tensor([[2, 2, 2, 5], [2, 3, 3, 5]])], dim=1)
    for weight in (None, torch.rand(edge_index.size(1), dtype=torch.double)):
        assert_close(act(x, edge_index, weight), by_loops(act, x, edge_index, weight))
    simple = torch.unique(edge_index, dim=1)
    adjacency = to_torch_csr_tensor(simple.flip(0), size=(9, 9)).double()
    assert_close(act(x, adjacency), by_loops(act, x, simple, None))


def test_values() -> None:
    """A path of three nodes: the shift is one half at the ends, one third in the middle."""
    x = torch.tensor([[-1.0], [0.0], [2.0]])
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    shifted = [-1 / 2, 1 / math.sqrt(6), 1.0]
    for kind, expected in (
        (GraphMax, [shifted[1], shifted[2], shifted[2]]),
        (GraphMedian, [shifted[0], shifted[1], shifted[1]]),
    ):
        act = kind(1)
        with torch.no_grad():
            act.weight.copy_(torch.tensor([10.0, 1.0]))
        wanted = torch.tensor([expected]).t() + torch.tensor([[0.0], [0.0], [20.0]])
        torch.testing.assert_close(act(x, edge_index), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters(kind: type[GraphAdaptive]) -> None:
    act = kind(6, K=3)
    assert str(act) == f"{kind.__name__}(6, K=3)"
    assert [p.shape for p in act.parameters()] == [(4,)]
    assert act.weight.abs().max() <= 1 / math.sqrt(3)
    with pytest.raises(ValueError, match=r"^K must be at least 1, got 0\.$"):
        kind(6, K=0)
    weight = torch.rand(30, requires_grad=True)
    with pytest.raises(ValueError, match=rf"^edge_weight must not be learned with {kind.__name__}"):
        act(torch.randn(9, 6), random_graph(9, 30), weight)


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_without_edges(kind: type[GraphAdaptive]) -> None:
    act, x, none = kind(3), torch.randn(4, 3), torch.empty(2, 0, dtype=torch.long)
    torch.testing.assert_close(act(x, none), act.weight[0] * x.relu() + act.weight[1] * x)
