"""What every graph-adaptive rival of GReLU must hold, besides its own formula."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from graphrelu.lab.models.activations import PlainDiGRAF
from graphrelu.lab.models.digraf import DiGRAF
from graphrelu.lab.models.graph_adaptive import GraphMax, GraphMedian
from graphrelu.lab.models.graph_backbones import GraphGNN
from graphrelu.lab.models.shift import GraphActivation
from graphrelu.lab.models.undecomposed import Undecomposed
from tests.helpers import assert_close, batch_of_graphs, random_graph

RIVALS = (GraphMax, GraphMedian, DiGRAF, Undecomposed)
OPTIONS = {GraphMax: {"K": 2}, GraphMedian: {"K": 2}, Undecomposed: {"K": 3}}


def opened(kind: type[torch.nn.Module], channels: int) -> torch.nn.Module:
    """In double precision, and with parameters that have left zero."""
    act = kind(channels, **OPTIONS.get(kind, {"cells": 4}))
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
