"""Which graph reaches a GReLU of a converted model, and what happens without one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, GCNConv, GraphSAGE, SAGEConv

from graphrelu import convert, replacements
from graphrelu.context import Graph, scopes
from graphrelu.conversion import read_graph
from tests.conversion import models
from tests.conversion.models import BATCH, BATCHED, EDGES, WEIGHT, Base, CoraGCN, X
from tests.conversion.test_table import grelus
from tests.helpers import opened, random_graph

TWO_SETS = torch.stack([EDGES[0], EDGES[1] % 10])  # from 30 nodes to 10
GRAPHS = models.data()
# 10 seed nodes, 8 at one hop, 12 at two; edges of the first hop come first.
HOP1 = torch.stack([torch.randint(10, 18, (20,)), torch.randint(10, (20,))])
HOP2 = torch.stack([torch.randint(18, 30, (24,)), torch.randint(10, 18, (24,))])


def opened_model(model: torch.nn.Module, **options: Any) -> Any:
    converted = convert(model, **options).eval()
    for act in grelus(converted):
        opened(act)
    return converted


PAIR = (torch.ones(30, 5), torch.ones(30, 4))
DATA = Data(x=X, edge_index=EDGES, edge_weight=WEIGHT)
TWO = Batch.from_data_list([DATA, DATA])
COUNTS = BATCH[EDGES[0]]  # weights that are whole numbers
FLOATS = {"x": X, "edge_index": EDGES, "batch": BATCH.float(), "batch_size": 3}
CALLS: dict[str, tuple[dict[str, Any], Graph]] = {
    # The arguments, and what is read of them.
    "weights": (
        {"edge_weight": WEIGHT, "x": X, "edge_index": EDGES},
        Graph(EDGES, WEIGHT, num_nodes=30),
    ),
    "whole numbers": (
        {"x": X, "edge_index": EDGES, "edge_weight": COUNTS},
        Graph(EDGES, COUNTS.float(), num_nodes=30),
    ),
    "a column of weights": (
        {"x": X, "edge_index": EDGES, "edge_weight": WEIGHT.view(-1, 1)},
        Graph(EDGES, WEIGHT, num_nodes=30),
    ),
    "a batch": (
        {"x": X, "edge_index": EDGES, "batch": BATCH, "batch_size": 3},
        Graph(EDGES, None, BATCH, 3, 30),
    ),
    "a batch of floats": (FLOATS, Graph(EDGES, num_nodes=30)),
    "no features": ({"edge_index": EDGES, "batch": BATCH}, Graph(EDGES, None, BATCH, None, 30)),
    "features by another name": ({"h": X, "adj_t": EDGES}, Graph(EDGES, num_nodes=30)),
    "one set of nodes": ({"x": (X, X), "edge_index": EDGES}, Graph(EDGES, num_nodes=30)),
    "two sets of nodes": ({"x": PAIR, "edge_index": EDGES}, Graph(EDGES)),
    "a guess": ({"x": X, "links": EDGES}, Graph(EDGES, num_nodes=30)),
    "two guesses": ({"x": X, "links": EDGES, "more": EDGES}, Graph(None, num_nodes=30)),
    "hyperedges": ({"x": X, "hyperedge_index": EDGES}, Graph(None, num_nodes=30)),
    "labels": ({"x": X, "edge_label_index": EDGES}, Graph(None, num_nodes=30)),
    "three rows": ({"x": X, "links": EDGES[:1].expand(3, -1)}, Graph(None, num_nodes=30)),
    "data": ({"data": DATA}, Graph(EDGES, WEIGHT, num_nodes=30)),
    "several data": ({"data": TWO}, Graph(TWO.edge_index, TWO.edge_weight, TWO.batch, 2, 60)),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_read_of_a_call(call: str) -> None:
    arguments, expected = CALLS[call]
    for one, other in zip(read_graph(arguments, guess=True), expected, strict=True):
        assert torch.equal(one, other) if isinstance(other, Tensor) else one == other


def test_a_graph_by_its_name() -> None:
    both = {"x": X, "edge_index": EDGES, "other": EDGES.flip(0)}
    assert torch.equal(read_graph(both, "other").edge_index, EDGES.flip(0))
    assert read_graph({"x": X, "links": EDGES}).edge_index is None
    model = opened_model(BeforeAnyLayer(), example=(X, EDGES))
    with pytest.raises(ValueError, match="no graph with a number of nodes is known before it"):
        model(X, EDGES, EDGES)  # which of the two?
    with pytest.raises(ValueError, match="stays: no graph with a number of nodes is known before"):
        convert(BeforeAnyLayer(), example=[(X, EDGES), (X, EDGES, EDGES)])
    named = opened_model(BeforeAnyLayer(), example=(X, EDGES), graph="edges")
    assert torch.equal(named(X, EDGES, EDGES), named(X, EDGES))


class BeforeAnyLayer(Base):
    def forward(self, x: Tensor, edges: Tensor, pairs: Tensor | None = None) -> Tensor:
        return self.conv3(F.relu(self.lin1(x)), edges)


class Typed(Base):
    """Two sets of nodes, as older samplers have them, and models for several types of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.between = SAGEConv((8, 5), 8)

    def forward(self, x: dict[str, Tensor], edge_index: dict[str, Tensor]) -> Tensor:
        a = F.relu(self.conv1(x["a"], edge_index["a"]))
        return F.relu(self.between((a, x["b"]), edge_index["ab"]))


class TakesData(Base):
    def forward(self, batch: Any) -> Tensor:
        return self.conv3(F.relu(self.lin1(batch.x)), batch.edge_index)


def gcn_by_hand(m: Any, first: Any, second: Any, x: Tensor, *graph: Any) -> Tensor:
    x = second(m.convs[1](first(m.convs[0](x, *graph), *graph), *graph), *graph)
    return m.convs[2](x, *graph)


def trimmed(m: Any, first: Any, second: Any, x: Tensor, edges: Tensor, *_: Any) -> Tensor:
    x = second(m.convs[1](first(m.convs[0](x, edges), edges)[:18], HOP1), HOP1)
    return m.convs[2](x[:10], HOP1[:, :0])


def pooled(m: Any, first: Any, second: Any, third: Any, x: Tensor, edges: Tensor, b: Any) -> Tensor:
    x, edges, _, b, _, _ = m.pool(first(m.conv1(x, edges), edges, batch=b), edges, batch=b)
    x = third(m.conv2(second(x, edges, batch=b), edges), edges, batch=b)
    return m.lin2(gnn.global_mean_pool(x, b)).relu()


def two_sets(m: Any, act: Any, x: dict[str, Tensor], edges: dict[str, Tensor]) -> Tensor:
    a = act(m.conv1(x["a"], edges["a"]), edges["a"])
    return m.between((a, x["b"]), edges["ab"]).relu()


def several(m: Any, act: Any, data: Any) -> Tensor:
    return m.conv3(act(m.lin1(data.x), data.edge_index, batch=data.batch), data.edge_index)


HOPS = (X, torch.cat([HOP1, HOP2], dim=1), None, None, None, None, [10, 8, 12], [20, 24])
TYPED = ({"a": X, "b": X[:10]}, {"a": EDGES, "ab": TWO_SETS})
BY_HAND: dict[str, tuple[Callable[[], torch.nn.Module], Any, Callable[..., Tensor]]] = {
    # A model, its arguments, and what its layers and GReLUs make of them.
    "the layer before": (lambda: GCN(5, 8, 3, 4), (X, EDGES, WEIGHT), gcn_by_hand),
    "trim_to_layer": (lambda: GraphSAGE(5, 8, 3, 4), HOPS, trimmed),
    "a pooled graph": (models.Pooled, (X, BATCHED, BATCH), pooled),
    "before the first convolution": (
        BeforeAnyLayer,
        (X, EDGES),
        lambda m, act, x, edges: m.conv3(act(m.lin1(x), edges), edges),
    ),
    "two sets of nodes": (Typed, TYPED, two_sets),
    "several data": (TakesData, (GRAPHS,), several),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_each_grelu_gets_its_graph(name: str) -> None:
    build, args, by_hand = BY_HAND[name]
    model = opened_model(build(), example=args, alpha=0.3, K=3)
    acts = grelus(model)
    assert {(act.alpha, act.K) for act in acts} == {(0.3, 3)}
    outs, parameters = (model(*args), by_hand(model, *acts, *args)), list(model.parameters())
    torch.testing.assert_close(*outs)
    gradients = [torch.autograd.grad(o.sum(), parameters, allow_unused=True) for o in outs]
    torch.testing.assert_close(*gradients)


BY_NAME = {"x": X, "edge_index": EDGES}
EXAMPLES = [None, DATA, (X, EDGES), BY_NAME, lambda m: m(X, EDGES), [DATA, BY_NAME]]


@pytest.mark.parametrize("example", EXAMPLES)
def test_kinds_of_examples(example: Any) -> None:
    assert len(grelus(convert(CoraGCN(), example=example))) == 1


def test_a_made_up_data_object() -> None:
    assert len(grelus(convert(TakesData()))) == 1


def test_what_stays_and_why() -> None:
    assert [str(r) for r in replacements(convert(models.Pooled())).left] == [
        "forward:4 after lin2: relu() stays: it sees [3, 8] where the graph has 7 nodes",
        "pool.select.act: Tanh() stays: it is a part of pool, a TopKPooling",
    ]
    (left,) = replacements(convert(Typed(), example=TYPED)).left
    assert left.reason == "no graph with a number of nodes is known before it"

    class MakesItsGraph(GCNConv):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, random_graph(x.size(0), 20))

    class Points(Base):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(self.conv1(x, edge_index).relu()).relu()

    points = Points()
    points.conv2 = MakesItsGraph(8, 8)
    (left,) = replacements(convert(points)).left
    assert left.reason == "no graph with a number of nodes is known before it"


def test_batches_are_activated_graph_by_graph() -> None:
    model = opened_model(models.MutagGIN())
    out = model(X, BATCHED, BATCH)
    for graph in range(3):
        nodes = (graph == BATCH).nonzero().view(-1)
        inside = BATCHED[:, BATCH[BATCHED[0]] == graph] - nodes[0]
        alone = model(X[nodes], inside, torch.zeros_like(nodes))
        torch.testing.assert_close(out[graph : graph + 1], alone, atol=1e-5, rtol=1e-4)
    unet = opened_model(gnn.GraphUNet(5, 8, 4, depth=2))  # finds its batch vector again
    assert len(grelus(unet)) == 4
    assert unet(X, BATCHED).shape == unet(X, BATCHED, BATCH).shape == (30, 4)
    assert not torch.allclose(unet(X, BATCHED), unet(X, BATCHED, BATCH), atol=1e-4)


def test_part_of_the_nodes() -> None:
    model = opened_model(GraphSAGE(5, 8, 2, 4))
    with pytest.raises(ValueError, match=r"at 'act after convs.0' must have a row .* all nodes at"):
        model.inference_per_layer(0, X, EDGES, 10)


def test_places_met_later_stay_and_say_so_once() -> None:
    model = models.IsNone()
    converted = convert(model)
    with pytest.warns(UserWarning, match="not reached by the example and stays leaky_relu"):
        assert torch.equal(converted(X, EDGES, WEIGHT), model(X, EDGES, WEIGHT))
    converted(X, EDGES, WEIGHT)
    both = convert(model, example=[(X, EDGES), (X, EDGES, WEIGHT)])
    assert len(grelus(both)) == 3
    both(X, EDGES, WEIGHT)


def test_threads() -> None:
    model = opened_model(CoraGCN())
    inputs = [(torch.randn(n, 5), random_graph(n, 4 * n)) for n in range(20, 24)]
    expected = [model(*args) for args in inputs]

    def work(i: int) -> bool:
        return all(torch.equal(model(*inputs[i]), expected[i]) for _ in range(20))

    with ThreadPoolExecutor(len(inputs)) as pool:
        assert all(pool.map(work, range(len(inputs))))


def test_nothing_outlives_a_call() -> None:
    model = opened_model(CoraGCN())

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    handle = model.conv2.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(X, EDGES)
    handle.remove()
    assert not scopes.around
    x = model.conv1(X, EDGES)
    assert torch.equal(F.relu(x), x.clamp(min=0))
    gcn = opened_model(GCN(5, 8, 2))
    with pytest.raises(RuntimeError, match="The activation 'act' has no graph: call the converted"):
        gcn.act(x)


def test_a_converted_model_in_another_model() -> None:
    class Both(Base):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return F.relu(self.conv1(self.inner(x, edge_index), edge_index))

    both = Both()
    both.inner = opened_model(CoraGCN())
    both.inner.conv2 = GCNConv(8, 5)
    expected = both.conv1(both.inner(X, EDGES), EDGES).relu()
    assert torch.equal(both(X, EDGES), expected)
    assert [r.name for r in replacements(both)] == ["inner.forward:2 after conv1"]


def test_a_converted_model_that_calls_another() -> None:
    """Each replaces its own activations alone."""
    teacher = convert(models.IsNone(), exclude=["forward:5 after conv2"])

    class Student(Base):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return F.relu(self.conv1(x, edge_index)).sum() + teacher(x, edge_index)

    student = Student()
    converted = convert(student)
    assert [r.name for r in replacements(converted)] == ["forward:1 after conv1"]
    assert torch.equal(converted(X, EDGES), student(X, EDGES))
