"""An activation that is called with `x` alone, and arguments that could be taken for others."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.nn import GCN, DeepGCNLayer, GCNConv
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import GReLU, convert, graph_context, replacements
from graphrelu.context import scopes
from tests.conversion.models import BATCH, BATCHED, EDGES, WEIGHT, X
from tests.helpers import opened


@pytest.mark.parametrize("graph", [(EDGES, WEIGHT), (BATCHED, None, BATCH, 3)])
def test_act_inside_a_context(graph: tuple[Any, ...]) -> None:
    act = opened(GReLU(8))
    model = GCN(5, 8, 2, 4, act=act)
    with graph_context(*graph):
        out = model(X, *graph[:2])
    hidden = act(model.convs[0](X, *graph[:2]), *graph[:3])
    assert torch.equal(out, model.convs[1](hidden, *graph[:2]))


def test_act_in_a_converted_model() -> None:
    act = opened(GReLU(8))
    model = GCN(5, 8, 3, 4, act=act)
    converted = convert(model)
    with graph_context(EDGES):
        expected = model(X, EDGES)
    assert torch.equal(converted(X, EDGES), expected)
    assert replacements(converted) == []
    layer = DeepGCNLayer(GCNConv(8, 8), torch.nn.LayerNorm(8), opened(GReLU(8)), "plain")
    x = torch.randn(30, 8)
    by_hand = layer.act(layer.norm(layer.conv(x, EDGES)), EDGES)
    assert torch.equal(convert(layer, example=(x, EDGES))(x, EDGES), by_hand)


def test_contexts_nest_and_end_with_an_error() -> None:
    act, x = opened(GReLU(5)), X
    with graph_context(EDGES):
        with graph_context(BATCHED):
            assert torch.equal(act(x), act(x, BATCHED))
        assert torch.equal(act(x), act(x, EDGES))
        with pytest.raises(KeyboardInterrupt), graph_context(BATCHED):
            raise KeyboardInterrupt
        assert torch.equal(act(x), act(x, EDGES))
    assert not scopes.around


def test_without_a_graph() -> None:
    ways = r"inside graphrelu.graph_context\(edge_index\) or in a model made by graphrelu.conv"
    with pytest.raises(TypeError, match=ways):
        GReLU(5)(X)
    with pytest.raises(TypeError, match=ways):
        GCN(5, 8, 2, 4, act=GReLU(8))(X, EDGES)
    with pytest.raises(TypeError, match="edge_index must be the graph"):
        graph_context(None)
    act = GReLU(5, topology=False)
    assert torch.equal(act(X), X.relu())


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_context_and_compiler() -> None:
    torch.compiler.reset()
    act = opened(GReLU(8))
    model = GCN(5, 8, 2, 4, act=act)
    compiled = torch.compile(model, backend="aot_eager")
    for edge_index in (EDGES, BATCHED):
        with graph_context(edge_index):
            expected = model(X, edge_index)
            torch.testing.assert_close(compiled(X, edge_index), expected, atol=1e-5, rtol=1e-4)
    edges = torch.compile(gnn.EdgeCNN(5, 8, 2, act=act), backend="eager")
    with graph_context(EDGES), pytest.raises(ValueError, match=r"calls it on its messages"):
        edges(X, EDGES)
    alone = torch.compile(GReLU(5, topology=False), backend="eager", fullgraph=True)
    assert torch.equal(alone(X), X.relu())


MESSAGES = "EdgeConv calls it on its messages"


@pytest.mark.parametrize(
    ("model", "edge_index", "problem"),
    [
        (gnn.EdgeCNN(5, 64, 2, act=GReLU(64)), EDGES, MESSAGES),
        (gnn.EdgeCNN(5, 64, 2, act=GReLU(64)), EDGES[:, :30], MESSAGES),  # as many as nodes
        (gnn.GIN(5, 64, 2, 3, act=GReLU(64)), EDGES, r"64 channels .*, got shape \[30, 3\]"),
    ],
)
def test_edges_and_other_widths(model: Any, edge_index: Tensor, problem: str) -> None:
    message = rf"{problem}: .* graphrelu\.convert\(model\)"
    with graph_context(edge_index), pytest.raises(ValueError, match=message):
        model(X, edge_index)
    with pytest.raises(ValueError, match=message):
        convert(model, example=(X, edge_index))(X, edge_index)


SPARSE = to_torch_csr_tensor(torch.unique(BATCHED, dim=1), size=(30, 30))
ENDS = torch.tensor([[0, 29], [29, 0]])


@pytest.mark.parametrize("rows", [7, 29, 31, 90])
@pytest.mark.parametrize("graph", [(BATCHED, None, BATCH), (SPARSE,), (BATCHED,), (ENDS,)])
def test_rows_that_are_not_the_nodes_of_the_graph(graph: tuple[Any, ...], rows: int) -> None:
    act = GReLU(5)
    message = rf"of the current graph, of which there are 30, got {rows} rows: .*convert\(model\)"
    with graph_context(*graph):
        if rows > 30:  # with as many as that, only the first call can tell
            act(X)
        with pytest.raises(ValueError, match=message):
            act(torch.randn(rows, 5))
