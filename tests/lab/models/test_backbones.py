"""The networks for nodes: prepared as in PyG's own form, alone as under vmap."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import Linear
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.backbones import BACKBONES, DEEP_BACKBONES, GNN, DeepGNN
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.models.propagation import AttentionGraph, PreparedInputs, SparseMatrix
from tests.helpers import assert_close, random_graph
from tests.lab.stock import by_pyg

NODES, FEATURES, CLASSES = 14, 20, 3
OPTIONS: dict[tuple[type[GNN], str], dict[str, Any]] = {
    (GNN, "cheb"): {"K": 3},
    (GNN, "gat"): {"heads": 2, "output_heads": 3},
    (GNN, "arma"): {"num_stacks": 3, "skip_dropout": 0.3},
    (GNN, "appnp"): {"K": 4, "alpha": 0.2},
    (GNN, "sgc"): {"K": 3},
}
OPTIONS |= {(DeepGNN, name): {"layers": 3, **OPTIONS.get((GNN, name), {})} for name in BACKBONES}
OPTIONS |= {(DeepGNN, "gat"): {"layers": 3, "heads": 2}}


def model_of(network: type[GNN], backbone: str, activation: Any = "relu", **options: Any) -> GNN:
    activation = "none" if backbone == "sgc" else activation
    options = {**OPTIONS.get((network, backbone), {}), **options}
    model = network(backbone, FEATURES, 4, CLASSES, activation, **options).double()
    with torch.no_grad():  # leave the zeros of fresh biases and gates
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def graph_and_features(density: float) -> tuple[Tensor, Tensor, Tensor]:
    """A directed graph with duplicate edges, self-loops and two isolated nodes, and features."""
    edge_index = random_graph(NODES - 2, 3 * NODES)
    edge_index = torch.cat([edge_index, edge_index[:, :2], torch.tensor([[0, 1], [0, 1]])], dim=1)
    x = torch.rand(NODES, FEATURES, dtype=torch.double)
    x[torch.rand(NODES, FEATURES) > density] = 0
    return x, edge_index, torch.rand(edge_index.size(1), dtype=torch.double)


class NotedDropout(SeededDropout):
    """Notes its calls; the attention of an edge has one mask, in whatever order the edges are."""

    def __init__(self, inputs: PreparedInputs | None, edge_index: Tensor) -> None:
        super().__init__(torch.tensor(3), torch.tensor(1))
        self.calls: list[tuple[tuple[int, ...], float]] = []
        if inputs is None:  # PyG's order
            edge_index = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=NODES)[0]
        elif isinstance(inputs.graph, AttentionGraph):
            edge_index = inputs.graph.edge_index
        self.order = (NODES * edge_index[0] + edge_index[1]).argsort(stable=True)

    def _dropout(self, x: Tensor, p: float = 0.5, training: bool = True, **rest: Any) -> Tensor:
        if not training:
            return x
        self.calls.append((tuple(x.shape), p))
        if x.size(0) != len(self.order):
            return super()._dropout(x, p)
        return super()._dropout(x[self.order], p)[self.order.argsort()]


def loss_of(out: Tensor) -> Tensor:
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return (out.log_softmax(dim=-1) * weight).sum()


def parameter_gradients(model: GNN, out: Tensor) -> list[Tensor]:
    # ARMAConv keeps a weight for further layers, which a single one does not use.
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    return list(torch.autograd.grad(loss_of(out), list(model.parameters()), **options))


def assert_same(model: GNN, out: Tensor, expected: Tensor) -> None:
    assert_close(out, expected)
    pairs = zip(parameter_gradients(model, out), parameter_gradients(model, expected), strict=True)
    for a, b in pairs:
        assert_close(a, b)


DEEP: tuple[dict[str, Any], ...] = (
    {},
    {"norm": "layer", "residual": True},
    {"norm": "batch", "residual": True, "linear_first": True},
)
VARIANTS: list[tuple[type[GNN], str, dict[str, Any]]] = [
    *((GNN, backbone, {}) for backbone in BACKBONES),
    *((GNN, "cheb", {"K": K}) for K in (1, 2, 4, 5)),
    (GNN, "arma", {"shared_weights": True}),
    *((DeepGNN, backbone, options) for backbone in DEEP_BACKBONES for options in DEEP),
]


@pytest.mark.parametrize(("network", "backbone", "options"), VARIANTS)
def test_prepared_equals_pyg(network: type[GNN], backbone: str, options: dict[str, Any]) -> None:
    """Sparse or dense features, with and without weights and edges; dense ones with dropout."""
    model = model_of(network, backbone, **options)
    for density, weighted in ((0.05, False), (0.05, True), (0.8, False), (0.8, True), (0.0, False)):
        x, edge_index, edge_weight = graph_and_features(density or 0.8)
        weight = edge_weight if weighted else None
        if density == 0:
            edge_index = edge_index[:, :0]
        model.train(density == 0.8)
        inputs = model.prepare(x, edge_index, weight)
        assert isinstance(inputs.x, SparseMatrix) == (density == 0.05)
        with NotedDropout(None, edge_index):
            expected = by_pyg(model, x, edge_index, weight)
        assert expected.shape == (NODES, CLASSES)
        with NotedDropout(inputs, edge_index):
            assert_same(model, model(inputs), expected)
    expected = by_pyg(model.eval(), x, edge_index)
    assert_same(model, model(model.prepare(x.to_sparse_csr(), edge_index)), expected)


def test_a_node_is_its_own_neighbour() -> None:
    x, edge_index, weight = graph_and_features(0.05)
    model = model_of(DeepGNN, "sage", add_self_loops=True).eval()
    inputs = model.prepare(x, edge_index, weight)
    assert inputs.edge_index is edge_index  # for the activations
    looped, _ = add_remaining_self_loops(edge_index, num_nodes=NODES)
    assert_same(model, model(inputs), by_pyg(model, x, looped))


def test_by_hand() -> None:
    """Convolution plus skip, norm, activation, dropout, layer by layer; then the head."""
    x, edge_index, _ = graph_and_features(0.8)
    options = {"norm": "layer", "residual": True, "linear_first": True}
    model = model_of(DeepGNN, "gcn", "prelu", **options)
    with NotedDropout(None, edge_index) as mode:
        out = by_pyg(model, x, edge_index)
    assert mode.calls == [((NODES, 4), 0.5)] * 4  # the projected features, and three layers
    assert isinstance(model, DeepGNN)
    assert isinstance(model.first, Linear)
    layers = zip(model.convs, model.skips, model.norms, model.acts, strict=True)
    with NotedDropout(None, edge_index):
        h = F.dropout(model.first(x), p=0.5, training=True)
        for conv, skip, norm, act in layers:
            h = F.dropout(act(norm(conv(h, edge_index) + skip(h))), p=0.5, training=True)
    assert_close(out, model.head(h))


DROPOUTS = {
    **{name: [((NODES, 4), 0.5)] for name in ("cheb", "gcn", "sage")},
    "gat": [
        ((NODES, FEATURES), 0.5),
        ((52, 2), 0.5),  # the attention of both heads, on edges with self-loops
        ((NODES, 8), 0.5),
        ((52, 3), 0.5),
    ],
    "arma": [((NODES, FEATURES), 0.3), ((NODES, 4), 0.5), ((NODES, 4), 0.3)],
    "appnp": [((NODES, FEATURES), 0.5), ((NODES, 4), 0.5)],
    "sgc": [],
}


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_dropout_placement(backbone: str) -> None:
    x, _, _ = graph_and_features(0.8)
    edge_index = random_graph(NODES, 100)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]][:, : 52 - NODES]
    model = model_of(GNN, backbone)
    inputs = model.prepare(x, edge_index)
    with NotedDropout(inputs, edge_index) as prepared:
        model(inputs)
    assert prepared.calls == DROPOUTS[backbone]
    with NotedDropout(inputs, edge_index) as none:
        model.eval()(inputs)
    assert none.calls == []


PAIRS = [(b, a) for b in BACKBONES for a in ACTIVATIONS if b != "sgc"] + [("sgc", "none")]
MANY: list[tuple[type[GNN], str, str, dict[str, Any]]] = [
    *((GNN, backbone, activation, {}) for backbone, activation in PAIRS),
    *(
        (DeepGNN, backbone, activation, options)
        for backbone in DEEP_BACKBONES
        for activation in ("relu", "grelu")
        for options in DEEP[1:]
    ),
]


@pytest.mark.parametrize(("network", "backbone", "activation", "options"), MANY)
def test_many_models_at_once(
    network: type[GNN], backbone: str, activation: str, options: dict[str, Any]
) -> None:
    """Models under vmap equal each of them alone, with and without dropout; their gradients come
    from one backward pass through the sum of all losses."""
    x, edge_index, weight = graph_and_features(0.05)
    models = [model_of(network, backbone, activation, **options) for _ in range(3)]
    inputs, seeds, step = models[0].prepare(x, edge_index, weight), torch.tensor([0, 5, 7]), 2
    skeleton, (parameters, buffers) = copy.deepcopy(models[0]), stack_module_state(models)
    leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
    for training in (True, False):
        skeleton.train(training)

        def loss(
            p: dict[str, Tensor], own_buffers: dict[str, Tensor], seed: Tensor
        ) -> tuple[Tensor, Tensor]:
            with SeededDropout(seed, torch.tensor(step)):
                out = functional_call(skeleton, p | own_buffers, (inputs,))
            return loss_of(out), out

        losses, outs = vmap(loss)(leaves, buffers, seeds)
        by_sum = torch.autograd.grad(
            losses.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        grads = dict(zip(leaves, by_sum, strict=True))
        for i, model in enumerate(models):
            with SeededDropout(seeds[i], torch.tensor(step)):
                out = model.train(training)(inputs)
            assert_close(outs[i], out)
            for name, expected in zip(leaves, parameter_gradients(model, out), strict=True):
                assert_close(grads[name][i], expected)
    assert_close(outs[2], by_pyg(models[2], x, edge_index, weight))


def test_batch_norm_takes_all_nodes_in_evaluation_as_well() -> None:
    x, edge_index, _ = graph_and_features(0.8)
    model = model_of(DeepGNN, "gcn", norm="batch", dropout=0.0)
    inputs = model.prepare(x, edge_index)
    assert_close(model.train()(inputs), model.eval()(inputs))


def test_activations_are_fresh_and_fit_their_layer() -> None:
    for network, backbone, width in ((GNN, "gcn", 4), (GNN, "gat", 8), (DeepGNN, "gat", 4)):
        models = [model_of(network, backbone, "prelu") for _ in range(2)]
        acts = [act for model in models for act in model.acts]
        assert {act.channels for act in acts} == {width}
        assert len({id(p) for act in acts for p in act.parameters()}) == len(acts)


def test_arma_has_one_layer() -> None:
    with pytest.raises(ValueError, match="num_layers must be 1, got 2"):
        GNN("arma", 10, 4, 3, num_layers=2)
