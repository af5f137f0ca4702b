"""The properties that all activations with a graph share; then max and median, by loops,
and the undecomposed hyperfunction."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops, to_torch_csr_tensor

from graphrelu import functional
from graphrelu.lab.models.activations import PlainDiGRAF
from graphrelu.lab.models.digraf import DiGRAF
from graphrelu.lab.models.graph_adaptive import (
    GraphActivation,
    GraphAdaptive,
    GraphMax,
    GraphMedian,
)
from graphrelu.lab.models.graph_backbones import GraphGNN
from graphrelu.lab.models.undecomposed import Undecomposed
from tests.helpers import assert_close, batch_of_graphs, random_graph

RIVALS = (GraphMax, GraphMedian, DiGRAF, Undecomposed)
OPTIONS: dict[type[torch.nn.Module], dict[str, int]] = {
    GraphMax: {"K": 2},
    GraphMedian: {"K": 2},
    Undecomposed: {"K": 3},
    DiGRAF: {"cells": 4, "hidden": 4},
    PlainDiGRAF: {"cells": 4},
}


def opened(kind: type[torch.nn.Module], channels: int) -> torch.nn.Module:
    """In double precision, and with parameters that have left zero."""
    act = kind(channels, **OPTIONS[kind])
    if kind is Undecomposed:
        for parameter in act.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    return act.double()


@pytest.mark.parametrize("kind", RIVALS)
def test_symmetries(kind: type[GraphActivation]) -> None:
    """Nodes in another order, and graphs of a batch that do not see each other."""
    edge_index, batch = batch_of_graphs([4, 7, 3])
    act, x = opened(kind, 5), torch.randn(14, 5, dtype=torch.double)
    permutation = torch.randperm(14)
    place = torch.argsort(permutation)
    assert_close(act(x[permutation], place[edge_index]), act(x, edge_index)[permutation])
    out = act(x, edge_index, None, batch, 3)
    for graph in range(3):
        nodes = (batch == graph).nonzero().view(-1)
        inside = batch[edge_index[0]] == graph
        assert_close(act(x[nodes], edge_index[:, inside] - nodes[0]), out[nodes])


@pytest.mark.parametrize("kind", [*RIVALS, PlainDiGRAF])
def test_gradients(kind: type[torch.nn.Module]) -> None:
    act, edge_index = opened(kind, 3), random_graph(6, 15)
    names, values = zip(*act.named_parameters(), strict=True)
    x = torch.randn(6, 3, dtype=torch.double, requires_grad=True)

    def forward(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(act, dict(zip(names, values, strict=True)), (x, edge_index))

    assert torch.autograd.gradcheck(forward, (x, *values))


@pytest.mark.parametrize("kind", RIVALS)
def test_half_precision_and_graphs_without_nodes(kind: type[GraphActivation]) -> None:
    act, x, edge_index = opened(kind, 4).float(), torch.randn(9, 4), random_graph(9, 30)
    expected = act(x, edge_index)
    half = act(x.bfloat16(), edge_index)
    assert half.dtype == torch.bfloat16
    if kind not in (GraphMax, GraphMedian):  # rounding may choose another neighbour
        torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(act(x, edge_index), expected)
    assert act(torch.empty(0, 4), torch.empty(2, 0, dtype=torch.long)).shape == (0, 4)


@pytest.mark.parametrize("kind", RIVALS)
def test_bad_input(kind: type[GraphActivation]) -> None:
    act, edge_index = kind(4), random_graph(9, 30)
    with pytest.raises(TypeError, match=r"^channels must be an integer, got 2\.5\.$"):
        kind(2.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^x must have 4 channels, got 5\.$"):
        act(torch.randn(9, 5), edge_index)
    with pytest.raises(ValueError, match="edge_index must hold indices between 0 and 3"):
        act(torch.randn(4, 4), edge_index + 4)


@pytest.mark.parametrize("name", ["max", "median", "digraf", "undecomposed"])
def test_padded_mini_batches(name: str) -> None:
    """Each model of a vmap with graphs of its own, as many nodes as none of them has."""
    edge_index, batch = batch_of_graphs([4, 7, 3, 5])
    x, ptr = torch.randn(19, 6).double(), torch.tensor([0, 4, 11, 14, 19])
    model = GraphGNN("gcn", 6, 4, 3, layers=2, activation=name).double().eval()
    collection = model.collect(x, edge_index, ptr)
    graphs = torch.tensor([[0, 1], [3, 2]])
    gathered = collection.gather(graphs, collection.capacity(torch.tensor([[1, 3]])))
    out = torch.func.vmap(lambda batch: model(batch, batch_size=3))(gathered)
    for row, pair in zip(out, graphs.tolist(), strict=True):
        for scores, graph in zip(row, pair, strict=False):
            nodes, inside = batch == graph, batch[edge_index[0]] == graph
            assert_close(scores, model(x[nodes], edge_index[:, inside] - ptr[graph])[0])


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


def test_parameters_of_the_undecomposed() -> None:
    act = Undecomposed(6, K=3)
    assert str(act) == "Undecomposed(6, K=3)"
    assert sum(p.numel() for p in act.parameters()) == 2 * 3 * 6 * (6 + 1)
    with pytest.raises(ValueError, match=r"^K must be at least 1, got 0\.$"):
        Undecomposed(6, K=0)


def test_the_undecomposed_starts_as_relu() -> None:
    act, x, edge_index = Undecomposed(5, K=4), torch.randn(9, 5), random_graph(9, 20)
    x[0, 0] = 0.0
    assert torch.equal(act(x, edge_index), x.relu())
    with torch.no_grad():
        act.conv.bias.add_(0.1)
    assert not torch.equal(act(x, edge_index), x.relu())
    act.reset_parameters()
    assert torch.equal(act(x, edge_index), x.relu())


@pytest.mark.parametrize("K", [1, 2, 5])
def test_formula_of_the_undecomposed(K: int) -> None:
    """PyG's own convolution, and the calibrated form around it; also of a sparse adjacency."""
    act, x = Undecomposed(4, K=K).double(), torch.randn(8, 4, dtype=torch.double)
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    edge_index, _ = remove_self_loops(random_graph(8, 30))
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    logits = functional.Form().scale * act.conv(x, edge_index, weight)
    slopes, intercepts = torch.tanh(logits).view(8, 2, K, 4).unbind(1)
    slopes = torch.eye(K).double()[0].view(1, K, 1) + slopes
    out = act(x, edge_index, weight)
    assert_close(out, functional.piecewise_max(x, slopes, intercepts))
    assert_close(out, (slopes * x.unsqueeze(1) + intercepts).amax(dim=1))
    adjacency = to_torch_csr_tensor(edge_index.flip(0), weight, size=(8, 8))
    assert_close(act(x, adjacency), out)
