"""An activation that is called with `x` alone, and arguments that could be taken for others."""

import pytest
import torch
from torch_geometric import nn as gnn
from torch_geometric.nn import GCN, DeepGCNLayer, GCNConv
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import GReLU, convert, graph_context, replacements
from graphrelu.context import scopes_around
from tests.conversion.models import BATCH, BATCHED, EDGES, WEIGHT, X
from tests.helpers import opened


def test_act_inside_of_a_context() -> None:
    act = opened(GReLU(8))
    model = GCN(5, 8, 2, 4, act=act)
    with graph_context(EDGES, WEIGHT):
        out = model(X, EDGES, WEIGHT)
    hidden = act(model.convs[0](X, EDGES, WEIGHT), EDGES, WEIGHT)
    assert torch.equal(out, model.convs[1](hidden, EDGES, WEIGHT))
    assert scopes_around() == ()
    with graph_context(BATCHED, batch=BATCH, batch_size=3):
        out = model(X, BATCHED)
    hidden = act(model.convs[0](X, BATCHED), BATCHED, batch=BATCH)
    assert torch.equal(out, model.convs[1](hidden, BATCHED))


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
    assert scopes_around() == ()


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


def test_a_batch_vector_in_the_place_of_weights() -> None:
    edge_index = EDGES[:, :30]  # as many edges as nodes
    with pytest.raises(TypeError, match=r"edge_weight must be of a floating.*batch=batch\.$"):
        GReLU(5)(X, edge_index, BATCH)
    with pytest.raises(TypeError, match=r"must be of a floating type, got torch\.int64"):
        GReLU(5).gamma(X, edge_index, BATCH)


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
    with graph_context(EDGES), pytest.raises(ValueError, match=r"calls the .* on its messages"):
        edges(X, EDGES)
    alone = torch.compile(GReLU(5, topology=False), backend="eager", fullgraph=True)
    assert torch.equal(alone(X), X.relu())


def test_edges_are_never_taken_for_nodes() -> None:
    """By EdgeCNN, which activates its messages; here there are as many as nodes."""
    for edge_index in (EDGES, EDGES[:, :30]):
        for options in ({}, {"out_channels": 3}):
            model = gnn.EdgeCNN(5, 64, 2, act=GReLU(64), **options)
            with (
                graph_context(edge_index),
                pytest.raises(
                    ValueError, match=r"EdgeConv calls .* on its messages, .* graphrelu\.convert"
                ),
            ):
                model(X, edge_index)
            with pytest.raises(ValueError, match=r"on its messages, .* graphrelu\.convert"):
                convert(model, example=(X, edge_index))(X, edge_index)


def test_one_width_only() -> None:
    model = gnn.GIN(5, 64, 2, 3, act=GReLU(64))
    with (
        graph_context(EDGES),
        pytest.raises(ValueError, match=r"64 channels, got shape \[30, 3\]: .*convert\(model\)"),
    ):
        model(X, EDGES)
    inside = gnn.GIN(5, 64, 2, act=GReLU(64))
    with graph_context(EDGES):
        assert inside(X, EDGES).shape == (30, 64)


def test_rows_that_are_not_the_nodes_of_the_graph() -> None:
    act, sparse = GReLU(5), to_torch_csr_tensor(torch.unique(BATCHED, dim=1), size=(30, 30))
    message = r"of the graph around, of which there are 30, got {}: .* graphrelu.convert\(model\)"
    for rows in (29, 31, 90):
        for context in (graph_context(BATCHED, batch=BATCH), graph_context(sparse)):
            with context, pytest.raises(ValueError, match=message.format(rows)):
                act(torch.randn(rows, 5))
        with graph_context(BATCHED):
            act(X)
            with pytest.raises(ValueError, match=message.format(rows)):
                act(torch.randn(rows, 5))
    edge_index = torch.tensor([[0, 29], [29, 0]])
    with graph_context(edge_index), pytest.raises(ValueError, match=message.format(7)):
        act(torch.randn(7, 5))
