"""The networks for sets of graphs: what is published, what is PyG's, and where GReLU sits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import AddRandomWalkPE

from graphrelu import GReLU
from graphrelu.lab.data.graph import Features
from graphrelu.lab.engine.graph_training import DeviceGraphs
from graphrelu.lab.models import graph_networks
from graphrelu.lab.models.graph_networks import (
    GraphBatch,
    GraphNetwork,
    Network,
    random_walks,
)
from tests.lab.molecule_sets import ring_set

GRAPHS = ring_set()
CONVS = ("gcn", "gine", "gin", "gat", "sage", "bond")


def batch_of(*graphs: int, walks: int = 0) -> GraphBatch:
    data = DeviceGraphs(GRAPHS, torch.device("cpu"), walks)
    index = torch.tensor(graphs)
    return data.gather(*data.batches(index, len(graphs))[0])


def model_of(network: Network, activation: str = "relu", **options: object) -> GraphNetwork:
    torch.manual_seed(0)
    return GraphNetwork(network, GRAPHS.nodes, GRAPHS.edges, 2, activation, **options).eval()


@pytest.mark.parametrize("virtual_node", [False, True])
@pytest.mark.parametrize("conv", CONVS)
def test_a_graph_gets_the_same_output_alone_and_in_a_batch(conv: str, virtual_node: bool) -> None:
    model = model_of(Network(conv, 3, 32, walks=4, virtual_node=virtual_node), "grelu")
    for act in model.modules():
        if isinstance(act, GReLU):
            torch.nn.init.normal_(act.channel_mlp.weight)
    together = model(batch_of(4, 0, 9, walks=4))
    alone = torch.cat([model(batch_of(graph, walks=4)) for graph in (4, 0, 9)])
    torch.testing.assert_close(together, alone)
    assert together.shape == (3, 2)


@pytest.mark.parametrize("conv", CONVS)
def test_fresh_grelu_is_relu(conv: str) -> None:
    network = Network(conv, 3, 32, dropout=0.5, norm="layer", head_layers=3, pooling="sum")
    graphs = batch_of(1, 2, 3)
    torch.testing.assert_close(
        model_of(network, "grelu")(graphs), model_of(network)(graphs), rtol=0, atol=1e-6
    )


def test_layers_of_the_tuned_gcn() -> None:
    """GCN, activation, and the input added: as published, without any norm."""
    network = Network("gcn", 2, 8, None, True, 0.1, 3, plain="gelu")
    model, graphs = model_of(network, "gelu"), batch_of(0, 1)
    x = embedded(model, GRAPHS.nodes, graphs.nodes)
    for layer in model.layers:
        conv = GCNConv(8, 8)
        conv.load_state_dict(layer.conv.state_dict())
        x = x + F.gelu(conv(x, graphs.edge_index))
    x = global_mean_pool(x, graphs.batch)
    first, second, last = model.head.lins
    out, expected = model(graphs), last(F.gelu(second(F.gelu(first(x)))))
    torch.testing.assert_close(out, expected)
    weight = model.node_encoder.weight
    grads = [torch.autograd.grad(y.square().sum(), weight)[0] for y in (out, expected)]
    torch.testing.assert_close(*grads)


def test_layers_of_the_tuned_gine() -> None:
    """The activation is inside the MLP, and nowhere else."""
    network = Network("gine", 2, 8, None, True, 0.1, 1, plain="gelu", inside=True)
    model, graphs = model_of(network, "gelu"), batch_of(0, 1)
    x = embedded(model, GRAPHS.nodes, graphs.nodes)
    bonds = model.edge_encoder(graphs.edges)
    source, target = graphs.edge_index
    for layer in model.layers:
        message = (x[source] + bonds).relu()
        total = x + torch.zeros_like(x).index_add(0, target, message)
        first, second = layer.mlp
        x = x + second(F.gelu(first(total)))
    out = model.head.lins[0](global_mean_pool(x, graphs.batch))
    torch.testing.assert_close(model(graphs), out)


def embedded(model: GraphNetwork, features: Features, kind: Tensor) -> Tensor:
    """The sum of one embedding for each category."""
    tables = model.node_encoder.weight.split(features.sizes)
    rows = features.table[kind]
    return sum(table[rows[:, i]] for i, table in enumerate(tables))


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_random_walks_are_pygs(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_networks, "WALKED_AT_ONCE", at_once)
    graphs = batch_of(*range(30), walks=7)
    data = Data(edge_index=graphs.edge_index, num_nodes=len(graphs.nodes))
    torch.testing.assert_close(graphs.walks, AddRandomWalkPE(7)(data).random_walk_pe)
    walks = random_walks(torch.empty(2, 0, dtype=torch.long), torch.tensor([1, 2]), 3)
    assert walks.tolist() == [[0.0] * 3] * 3


def test_only_the_activations_differ_at_the_start() -> None:
    network = Network("gat", 2, 8, virtual_node=True)
    relu, grelu = (model_of(network, name).state_dict() for name in ("relu", "grelu"))
    assert relu.keys() < grelu.keys()
    assert all(torch.equal(value, grelu[name]) for name, value in relu.items())
    assert all(".act." in name for name in grelu.keys() - relu.keys())


def test_real_features_have_a_linear_layer() -> None:
    nodes = Features(torch.randn(5, 3), torch.arange(5))
    encoder = GraphNetwork(Network("sage", 1, 8), nodes, GRAPHS.edges, 1, "relu").node_encoder
    x = encoder(torch.tensor([4, 0]))
    torch.testing.assert_close(x, nodes.table[[4, 0]] @ encoder.weight + encoder.bias)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pooling": "median"}, r"There is no pooling 'median' \(did you mean mean\?\)"),
        ({"head_layers": 0}, "head_layers must be at least 1, got 0."),
        ({"walks": -1}, "walks must be zero or more, got -1."),
        ({"walks": 20, "hidden": 28}, "hidden must be above 28, the width of random walks."),
        ({"conv": "gat", "hidden": 30}, r"hidden must be a multiple of heads \(4\), got 30."),
    ],
)
def test_bad_networks_get_one_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Network(**{"conv": "gcn", **arguments})
