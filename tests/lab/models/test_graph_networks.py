"""The networks for sets of graphs: what is published, what is PyG's, and where GReLU sits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.transforms import AddRandomWalkPE

from graphrelu import GReLU
from graphrelu.lab.data.graph_set import Features
from graphrelu.lab.engine.graph_batches import DeviceGraphs
from graphrelu.lab.models import graph_networks
from graphrelu.lab.models.graph_networks import (
    GraphBatch,
    GraphNetwork,
    Network,
    UndirectedGCNConv,
    normalized_matrix,
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
    torch.testing.assert_close(model(graphs), last(F.gelu(second(F.gelu(first(x))))))


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


def test_the_undirected_product_is_pygs() -> None:
    graphs = batch_of(3, 5, 6)
    nodes = len(graphs.nodes)
    ours, pygs = UndirectedGCNConv(4, 3, normalize=False), GCNConv(4, 3)
    pygs.load_state_dict(ours.state_dict())
    x = torch.randn(nodes, 4, requires_grad=True)
    matrix = normalized_matrix(graphs.edge_index, graphs.rowptr)
    out, expected = ours(x, matrix), pygs(x, graphs.edge_index)
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (out, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_random_walks_are_pygs(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_networks, "WALKED_AT_ONCE", at_once)
    graphs = batch_of(*range(30), walks=7)
    data = Data(edge_index=graphs.edge_index, num_nodes=len(graphs.nodes))
    torch.testing.assert_close(graphs.walks, AddRandomWalkPE(7)(data).random_walk_pe)


def test_random_walks_without_edges() -> None:
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
    model = GraphNetwork(Network("sage", 1, 8), nodes, GRAPHS.edges, 1, "relu")
    encoder = model.node_encoder
    x = encoder(torch.tensor([4, 0]))
    torch.testing.assert_close(x, nodes.table[[4, 0]] @ encoder.weight + encoder.bias)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"conv": "gcm"}, "conv must be one of gcn, gine, gin, gat, sage, bond, not 'gcm'."),
        ({"pooling": "median"}, "pooling must be one of mean, sum, max, not 'median'."),
        ({"layers": 0}, "layers must be a whole number from 1, not 0."),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), not 1.0."),
        ({"walks": 20, "hidden": 28}, "hidden must be at least 29 with random walks, not 28."),
        ({"conv": "gat", "hidden": 30}, "hidden must be a multiple of the 4 attention heads"),
        ({"inside": True}, "conv must be gine for inside, not 'gcn'."),
    ],
)
def test_bad_networks_get_one_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Network(**{"conv": "gcn", **arguments})
