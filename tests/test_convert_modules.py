"""Models of one's own, converted: children, functional calls, containers, other packages."""

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    APPNP,
    GCN,
    BatchNorm,
    GATConv,
    GCN2Conv,
    GCNConv,
    GINConv,
    MeanAggregation,
    PairNorm,
    SAGEConv,
    Sequential,
    TopKPooling,
    global_mean_pool,
)
from torch_geometric.nn import Linear as GraphLinear
from torch_geometric.nn.models import MLP

from graphrelu import convert, replacements
from tests.helpers import batch_of_graphs, opened, random_graph
from tests.test_convert import assert_same_output, grelus

X, EDGES = torch.randn(30, 5, generator=torch.Generator().manual_seed(1)), random_graph(30, 90)
SIZES = [12, 8, 10]
BATCHED_EDGES, BATCH = batch_of_graphs(SIZES)


class Functional(torch.nn.Module):
    """All functional spellings, in a loop too, with dropout that follows the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = GCNConv(5, 8)
        self.convs = torch.nn.ModuleList([SAGEConv(8, 8) for _ in range(2)])
        self.conv2, self.conv3 = GATConv(8, 3, heads=2), GCNConv(6, 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = F.relu(self.conv1(x, edge_index, edge_weight))
        x = F.dropout(x, 0.4, self.training)
        for conv in self.convs:
            x = torch.relu(conv(x, edge_index)) + x
        x = F.dropout(self.conv2(x, edge_index).relu(), p=0.4, training=self.training)
        return F.leaky_relu(self.conv3(x, edge_index), 0.2)


class Classifier(torch.nn.Module):
    """One `relu` for layers and head, and a data object for argument."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 6)
        self.norm = BatchNorm(8)
        self.relu = torch.nn.ReLU()
        self.lin1, self.lin2 = torch.nn.Linear(6, 7), torch.nn.Linear(7, 3)

    def forward(self, data: Data) -> Tensor:
        x = self.relu(self.norm(self.conv1(data.x, data.edge_index)))
        x = self.relu(self.conv2(x, data.edge_index))
        return self.lin2(self.relu(self.lin1(global_mean_pool(x, data.batch))))


class Untraceable(Classifier):
    def forward(self, data: Data) -> Tensor:
        return super().forward(data) if data.num_nodes > 0 else data.x


class Pooled(torch.nn.Module):
    """The graph shrinks on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.act1 = GCNConv(5, 8), torch.nn.ReLU()
        self.pool, self.act3 = TopKPooling(8), torch.nn.LeakyReLU(0.5)
        self.conv2, self.act2 = GCNConv(8, 8), torch.nn.ReLU()
        self.readout = MeanAggregation()
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.act1(self.conv1(x, edge_index))
        x, edge_index, _, batch, _, _ = self.pool(x, edge_index, batch=batch)
        x = self.act2(self.conv2(self.act3(x), edge_index))
        return self.head(self.readout(x, batch))


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = GCN(5, 8, 2)
        self.act = torch.nn.ReLU()
        self.block = Functional()
        self.block.conv1 = GCNConv(8, 8)
        self.out = GraphLinear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.block(self.act(self.encoder(x, edge_index)), edge_index))


def data() -> Batch:
    graphs = [Data(x=torch.randn(n, 5), edge_index=random_graph(n, 3 * n)) for n in SIZES]
    return Batch.from_data_list(graphs)


def test_functional_calls() -> None:
    model = Functional()
    converted = convert(model)
    assert isinstance(converted, Functional)
    for args in ((X, EDGES), (X, EDGES, torch.rand(90))):
        assert_same_output(model, converted, *args)
    assert [act.channels for act in grelus(converted)] == [8, 8, 8, 6, 4]
    assert [act.negative_slope for act in grelus(converted)] == [0, 0, 0, 0, 0.2]
    assert torch.equal(converted(x=X, edge_index=EDGES), converted(X, EDGES, None))
    assert set(model.state_dict()) < set(converted.state_dict())
    for act in grelus(converted):
        opened(act)
    expected = converted(X, EDGES)
    assert not torch.equal(expected, model(X, EDGES))
    for other in (pickle.loads(pickle.dumps(converted)), copy.deepcopy(converted)):
        assert torch.equal(other(X, EDGES), expected)
    assert convert(model, inplace=True) is model
    assert len(grelus(model)) == 5


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_functional_calls_compiled() -> None:
    torch.compiler.reset()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SAGEConv(5, 8)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return F.dropout(F.relu(self.conv(x, edge_index)), training=self.training)

    converted = convert(Net()).eval()
    opened(*grelus(converted))
    compiled = torch.compile(converted, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X, EDGES), converted(X, EDGES), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [Classifier, Untraceable])
def test_one_activation_in_many_places(kind: Any) -> None:
    model, graphs = kind(), data()
    converted = convert(model, example=graphs)
    assert_same_output(model, converted, graphs)
    assert [act.channels for act in grelus(converted)] == [8, 6]
    (left,) = replacements(converted).left
    assert "it sees [3, 7] where the graph has 30 nodes" in left.reason

    for act in grelus(converted):
        opened(act)
    first, second = grelus(converted)
    batch = graphs.batch
    x = model.norm(model.conv1(graphs.x, graphs.edge_index))
    x = model.conv2(first(x, graphs.edge_index, batch=batch), graphs.edge_index)
    x = second(x, graphs.edge_index, batch=batch)
    expected = model.lin2(model.lin1(global_mean_pool(x, batch)).relu())
    assert torch.equal(converted(graphs), expected)
    assert torch.equal(pickle.loads(pickle.dumps(converted))(graphs), expected)


def test_one_activation_in_many_places_excluded() -> None:
    with pytest.raises(ValueError, match=r"relu: ReLU\(\) stays: it is excluded"):
        convert(Classifier(), exclude=["relu"])


def test_without_example_a_pooling_is_seen() -> None:
    converted = convert(Classifier())
    assert [act.channels for act in grelus(converted)] == [8, 6]
    (left,) = replacements(converted).left
    assert left.reason == "it follows a pooling, with one row per graph"


def test_an_example_tells_what_the_code_does_not() -> None:
    with pytest.raises(ValueError, match=r"example must be given.*its forward cannot be traced"):
        convert(Untraceable())
    with pytest.raises(ValueError, match="on the example the converted model gives another"):
        convert(WritesIntoItsInput(), example=(X, EDGES))
    with pytest.raises(ValueError, match="must not use the input of 'act' again"):
        convert(WritesIntoItsInput())
    with pytest.raises(ValueError, match="uses the input of an activation that overwrites it"):
        convert(WritesIntoItsInputByFunction())
    with pytest.raises(TypeError, match="example must be a Data object"):
        convert(Untraceable(), example=[data()])


class WritesIntoItsInputByFunction(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(5, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        x.relu_()
        return x


class WritesIntoItsInput(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = GCNConv(5, 5), torch.nn.ReLU(inplace=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        self.act(x)
        return x


@pytest.mark.parametrize("example", [None, (X, BATCHED_EDGES, BATCH)])
def test_pooling_between_layers(example: Any) -> None:
    model = Pooled()
    converted = convert(model, example=example)
    assert_same_output(model, converted, X, BATCHED_EDGES, BATCH)
    assert [act.channels for act in grelus(converted)] == [8, 8, 8]
    assert [left.name for left in replacements(converted).left] == ["head.1", "pool.select.act"]

    first, second, third = map(opened, grelus(converted))
    x = first(model.conv1(X, BATCHED_EDGES), BATCHED_EDGES, batch=BATCH)
    x, edge_index, _, batch, _, _ = model.pool(x, BATCHED_EDGES, batch=BATCH)
    x = model.conv2(second(x, edge_index, batch=batch), edge_index)
    x = third(x, edge_index, batch=batch)
    expected = model.head(model.readout(x, batch))
    assert torch.equal(converted(X, BATCHED_EDGES, BATCH), expected)


def test_nested_models() -> None:
    model = Nested()
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    names = [r.name for r in replacements(converted).changed]
    assert names[:2] == ["encoder.act", "act"]
    assert len(names) == 7
    assert torch.equal(converted.encoder(X, EDGES), model.encoder(X, EDGES))
    assert torch.equal(pickle.loads(pickle.dumps(converted))(X, EDGES), model(X, EDGES))


def test_a_converted_model_within_another() -> None:
    inner = convert(GCN(5, 5, 2))
    for act in grelus(inner):
        opened(act)

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.inner(self.inner(x, edge_index), edge_index.flip(0))

    outer = Twice()
    assert torch.equal(outer(X, EDGES), inner(inner(X, EDGES), EDGES.flip(0)))
    assert [r.name for r in replacements(outer)] == ["inner.act"]


def test_sequential() -> None:
    relu = torch.nn.ReLU()
    model = Sequential(
        "x, edge_index, batch",
        [
            (torch.nn.Dropout(0.2), "x -> x"),
            (GCNConv(5, 8), "x, edge_index -> x1"),
            relu,
            (GATConv(8, 4, heads=3), "x1, edge_index -> x2"),
            torch.nn.Sequential(torch.nn.BatchNorm1d(12), torch.nn.Dropout(0.1)),
            torch.nn.LeakyReLU(0.1),
            (SAGEConv(12, 6), "x2, edge_index -> x3"),
            relu,
            (global_mean_pool, "x3, batch -> x"),
            torch.nn.Linear(6, 6),
            torch.nn.ReLU(),
        ],
    )
    converted = convert(model)
    assert_same_output(model, converted, X, BATCHED_EDGES, BATCH)
    assert [act.channels for act in grelus(converted)] == [8, 12, 6]
    assert [r.name for r in replacements(converted).left] == ["module_10"]
    for act in grelus(converted):
        opened(act)
    expected = converted(X, BATCHED_EDGES, BATCH)
    for other in (pickle.loads(pickle.dumps(converted)), copy.deepcopy(converted)):
        assert torch.equal(other(X, BATCHED_EDGES, BATCH), expected)
    converted.reset_parameters()
    assert not any(bool(act.channel_mlp.weight.any()) for act in grelus(converted))


def test_sequential_of_functions() -> None:
    layers = [
        (GCNConv(5, 8), "x, edge_index -> x"),
        torch.relu,
        (PairNorm(), "x -> x"),
        (APPNP(2, 0.1), "x, edge_index -> x"),
        (F.relu, "x -> x"),
        (GCN2Conv(8, 0.1), "x, x, edge_index -> x"),
        torch.nn.ReLU(),
    ]
    model = Sequential("x, edge_index", layers)
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    assert [act.channels for act in grelus(converted)] == [8, 8, 8]


def test_force_replaces_functional_calls() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 4)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = F.elu(self.conv1(x, edge_index), alpha=0.5)
            return F.gelu(self.conv2(x, edge_index))

    with pytest.raises(ValueError, match=r"Net: elu\(\) stays: .*; Net: gelu\(\) stays: "):
        convert(Net())
    converted = convert(Net(), force=True)
    assert [act.channels for act in grelus(converted)] == [8, 4]
    assert [r.before for r in replacements(converted)] == [
        "ELU(alpha=0.5)",
        "GELU(approximate='none')",
    ]


def test_networks_inside_convolutions_stay_unless_named() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = GINConv(MLP([5, 8, 8]))
            self.act = torch.nn.ReLU()
            self.conv2 = GINConv(torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU()))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(self.act(self.conv1(x, edge_index)), edge_index)

    model = Net()
    converted = convert(model)
    assert [act.channels for act in grelus(converted)] == [8]
    left = {r.name: r.reason for r in replacements(converted).left}
    assert left == {
        "conv1.nn.act": "it is inside MLP; include=['conv1.nn.act'] replaces it all the same",
        "conv2.nn.1": "it is inside GINConv; include=['conv2.nn.1'] replaces it all the same",
    }
    asked = convert(model, include=["conv1", "conv2.nn.1"], example=(X, EDGES))
    assert_same_output(model, asked, X, EDGES)
    assert [act.channels for act in grelus(asked)] == [8, 8, 6]
    assert [r.name for r in replacements(convert(model, exclude=["conv1"])).changed] == ["act"]


def test_slopes_that_no_grelu_has() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = torch.nn.ModuleList([GCNConv(5, 5) for _ in range(4)])
            self.acts = torch.nn.ModuleList(
                [torch.nn.PReLU(5), torch.nn.PReLU(init=1.5), torch.nn.ELU(), torch.nn.PReLU()]
            )

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for conv, act in zip(self.convs, self.acts, strict=True):
                x = F.elu(act(conv(x, edge_index)))
            return x

    model = Net()
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    assert str(replacements(converted)).splitlines() == [
        "acts.3: PReLU(num_parameters=1) -> GReLU(5, K=2, alpha=0.1, mode=calibrated)",
        "Net: elu() stays: no GReLU equals it; force=True replaces it all the same",
        "acts.0: PReLU(num_parameters=5) stays: it has a slope for each channel",
        "acts.1: PReLU(num_parameters=1) stays: its slope is above 1",
        "acts.2: ELU(alpha=1.0) stays: no GReLU equals it; force=True replaces it all the same",
    ]


class GraphGymLayer(torch.nn.Module):
    """As `GeneralLayer` of GraphGym: a layer that writes into the batch, then an activation."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.layer = GraphGymConv(in_channels, out_channels)
        self.post_layer = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.ReLU(inplace=True))

    def forward(self, batch: Batch) -> Batch:
        batch = self.layer(batch)
        batch.x = F.normalize(self.post_layer(batch.x), p=2, dim=1)
        return batch


class GraphGymConv(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.model = GCNConv(in_channels, out_channels)

    def forward(self, batch: Batch) -> Batch:
        batch.x = self.model(batch.x, batch.edge_index)
        return batch


class GraphGymModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = GraphGymLayer(5, 8), GraphGymLayer(8, 6)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, batch: Batch) -> Tensor:
        for layer in (self.layer1, self.layer2):
            batch = layer(batch)
        return self.head(global_mean_pool(batch.x, batch.batch))


@pytest.mark.parametrize("with_example", [False, True])
def test_models_that_pass_a_batch_on(with_example: bool) -> None:
    model, graphs = GraphGymModel(), data()
    converted = convert(model, example=graphs if with_example else None)
    outs = [m.eval()(copy.copy(graphs)) for m in (model, converted)]
    assert torch.equal(*outs)
    assert [act.channels for act in grelus(converted)] == [8, 6]
    for act in grelus(converted):
        opened(act)
    x = graphs.x
    for layer, act in zip((model.layer1, model.layer2), grelus(converted), strict=True):
        x = act(layer.layer.model(x, graphs.edge_index), graphs.edge_index, batch=graphs.batch)
        x = F.normalize(x, p=2, dim=1)
    expected = model.head(global_mean_pool(x, graphs.batch))
    assert torch.equal(converted(copy.copy(graphs)), expected)


@pytest.mark.filterwarnings("ignore:To use GraphGym:UserWarning")  # its trainer is not needed
def test_graphgym() -> None:
    from torch_geometric.graphgym.config import cfg, set_cfg
    from torch_geometric.graphgym.models.gnn import GNN

    set_cfg(cfg)
    cfg.gnn.layers_pre_mp, cfg.gnn.layers_mp, cfg.gnn.layers_post_mp = 1, 2, 2
    cfg.gnn.dim_inner, cfg.gnn.head, cfg.gnn.dropout = 8, "graph", 0.1
    model, graphs = GNN(5, 3).eval(), data()
    graphs.y = torch.zeros(3)
    for converted in (convert(model), convert(model, example=graphs)):
        assert torch.equal(model(copy.copy(graphs))[0], converted(copy.copy(graphs))[0])
        assert [act.channels for act in grelus(converted)] == [8, 8, 8]


def layer(conv: GCNConv, x: Tensor, edge_index: Tensor) -> Tensor:
    return F.relu(conv(x, edge_index))


def test_functional_calls_in_functions() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = GCNConv(5, 8), GCNConv(8, 4)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return layer(self.conv2, layer(self.conv1, x, edge_index), edge_index)

    model = Net()
    converted = convert(model)
    assert_same_output(model, converted, X, EDGES)
    assert [act.channels for act in grelus(converted)] == [8, 4]


def test_pooling_spelled_out() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = GCNConv(5, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            x = self.conv(x, edge_index).relu()
            context = torch_geometric.nn.global_add_pool(x, batch)
            x = (x + context[batch]).relu()
            return torch.relu(self.lin(torch_geometric.nn.global_max_pool(x, batch)))

    model = Net()
    converted = convert(model)
    assert_same_output(model, converted, X, BATCHED_EDGES, BATCH)
    assert len(grelus(converted)) == 2
