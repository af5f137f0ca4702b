import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import APPNP, ARMAConv, GATConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from graphrelu import GReLU
from graphrelu.lab.models.activations import ACTIVATIONS, ReLU
from graphrelu.lab.models.backbones import BACKBONES, GNN
from graphrelu.lab.models.propagation import AttentionGraph, PreparedInputs
from graphrelu.lab.models.sparse import SparseMatrix, matmul
from tests.helpers import assert_close, batch_of_graphs, random_graph

NODES, FEATURES, CLASSES = 14, 20, 3
OPTIONS: dict[str, dict[str, Any]] = {
    "cheb": {"K": 3},
    "gat": {"heads": 2, "output_heads": 3},
    "arma": {"num_stacks": 3, "skip_dropout": 0.3},
    "appnp": {"K": 4, "alpha": 0.2},
    "sgc": {"K": 3},
}


def model_of(backbone: str, activation: Any = "relu", **options: Any) -> GNN:
    activation = "none" if backbone == "sgc" else activation
    options = {**OPTIONS.get(backbone, {}), **options}
    model = GNN(backbone, FEATURES, 4, CLASSES, activation, **options).double()
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


class HashDropout(TorchFunctionMode):
    """`F.dropout` with masks that depend on a seed, the number of the call and the element."""

    def __init__(self, seed: Tensor) -> None:
        super().__init__()
        self.seed = seed.double()
        self.calls: list[tuple[tuple[int, ...], float]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is not F.dropout or not kwargs["training"]:
            return func(*args, **(kwargs or {}))
        (x,), p = args, kwargs["p"]
        keep = self.noise(x) >= p
        self.calls.append((tuple(x.shape), p))
        return x * keep / (1 - p)

    def noise(self, x: Tensor) -> Tensor:
        element = self.element(x).double()
        phase = 12.9898 * element + 78.233 * (self.seed + 1) + 37.719 * len(self.calls)
        return (torch.sin(phase) * 43758.5453).frac().abs()

    def element(self, x: Tensor) -> Tensor:
        return torch.arange(x.numel()).view(x.shape)


class EdgeDropout(HashDropout):
    """The same masks for the attention of an edge, in whatever order the edges are."""

    def __init__(self, seed: Tensor, edge_index: Tensor) -> None:
        super().__init__(seed)
        self.edge = NODES * edge_index[0] + edge_index[1]

    def element(self, x: Tensor) -> Tensor:
        if x.size(0) != self.edge.size(0):
            return super().element(x)
        return self.edge.view(-1, 1) * x.size(1) + torch.arange(x.size(1))


def attention_edges(inputs: PreparedInputs | None, edge_index: Tensor) -> Tensor:
    """The edges, self-loops included, as the prepared GAT and as PyG orders them."""
    if inputs is None:
        return add_self_loops(remove_self_loops(edge_index)[0], num_nodes=NODES)[0]
    return inputs.graph.edge_index if isinstance(inputs.graph, AttentionGraph) else edge_index


def stacked(models: list[Any]) -> tuple[Any, dict[str, Tensor]]:
    parameters, buffers = stack_module_state(models)
    state = {**parameters, **buffers}
    return copy.deepcopy(models[0]).to("meta"), {k: p.detach() for k, p in state.items()}


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


def assert_alone_as_together(models: list[Any], inputs: PreparedInputs) -> Tensor:
    """Models under vmap equal each of them alone, with and without dropout; returns the latter's
    outputs."""
    skeleton, state = stacked(models)
    seeds = torch.tensor([0, 5, 7])[: len(models)]
    for training in (True, False):
        skeleton.train(training)

        def loss(p: dict[str, Tensor], seed: Tensor) -> tuple[Tensor, Tensor]:
            with HashDropout(seed):
                out = functional_call(skeleton, p, (inputs,))
            return loss_of(out), out

        grads, outs = vmap(grad(loss, has_aux=True))(state, seeds)
        for i, model in enumerate(models):
            with HashDropout(seeds[i]):
                out = model.train(training)(inputs)
            assert_close(outs[i], out)
            names = [name for name, _ in model.named_parameters()]
            for name, expected in zip(names, parameter_gradients(model, out), strict=True):
                assert_close(grads[name][i], expected)
    return outs


def assert_reset_leaves_nothing(model: GNN) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    model.reset_parameters()
    for name, parameter in model.named_parameters():
        assert (parameter != 7.0).all(), name


@pytest.mark.parametrize("density", [0.05, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_prepared_equals_pyg(backbone: str, weighted: bool, density: float) -> None:
    x, edge_index, edge_weight = graph_and_features(density)
    weight = edge_weight if weighted else None
    model = model_of(backbone).eval()
    expected = model(x, edge_index, weight)
    assert expected.shape == (NODES, CLASSES)
    inputs = model.prepare(x, edge_index, weight)
    assert isinstance(inputs.x, SparseMatrix) == (density < 0.1)
    assert_same(model, model(inputs), expected)
    assert_same(model, model(model.prepare(x.to_sparse_csr(), edge_index, weight)), expected)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_prepared_equals_pyg_without_edges(backbone: str) -> None:
    x, edge_index = torch.rand(5, FEATURES).double(), torch.empty(2, 0, dtype=torch.long)
    model = model_of(backbone).eval()
    assert_same(model, model(model.prepare(x, edge_index)), model(x, edge_index))


@pytest.mark.parametrize("K", [1, 2, 4, 5])
def test_chebyshev_sizes(K: int) -> None:
    x, edge_index, weight = graph_and_features(0.05)
    model = model_of("cheb", K=K).eval()
    inputs = model.prepare(x, edge_index, weight)
    assert_same(model, model(inputs), model(x, edge_index, weight))


@pytest.mark.parametrize("shared_weights", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_arma_stacks(num_layers: int, shared_weights: bool) -> None:
    x, edge_index, weight = graph_and_features(0.8)
    model = model_of("arma", num_layers=num_layers, shared_weights=shared_weights)
    inputs = model.prepare(x, edge_index, weight)
    with HashDropout(torch.tensor(1)):
        out = model(inputs)
    with HashDropout(torch.tensor(1)):
        assert_same(model, out, model(x, edge_index, weight))


def test_arma_has_no_activation_of_its_own() -> None:
    model = GNN("arma", FEATURES, 4, CLASSES)
    assert all(isinstance(conv, ARMAConv) and conv.act is None for conv in model.convs)


def test_sage_takes_the_mean() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [2, 2, 2, 0]])
    model = GNN("sage", FEATURES, 4, CLASSES)
    inputs = model.prepare(torch.rand(4, FEATURES), edge_index, torch.tensor([9.0, 1.0, 1.0, 1.0]))
    expected = torch.tensor([[0, 0, 3.0, 0], [0, 0, 0, 0], [1.0, 2.0, 0, 0], [0, 0, 0, 0]]) / 3
    assert isinstance(inputs.graph, SparseMatrix)
    assert_close(matmul(inputs.graph, torch.eye(4)), expected, 1e-6)


DROPOUTS = {
    "cheb": [((NODES, 4), 0.5)],
    "gcn": [((NODES, 4), 0.5)],
    "sage": [((NODES, 4), 0.5)],
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
    model = model_of(backbone)
    inputs = model.prepare(x, edge_index)
    seed = torch.tensor(3)
    with EdgeDropout(seed, attention_edges(inputs, edge_index)) as prepared:
        out = model(inputs)
    with EdgeDropout(seed, attention_edges(None, edge_index)) as pyg:
        assert_same(model, out, model(x, edge_index))
    assert prepared.calls == DROPOUTS[backbone]
    # PyG's ARMAConv drops the features of all stacks at once, with a dimension in front
    assert [(shape[-2:], p) for shape, p in pyg.calls] == DROPOUTS[backbone]
    with HashDropout(seed) as none:
        model.eval()(inputs)
    assert none.calls == []


@pytest.mark.parametrize("backbone", ["gat", "arma", "appnp"])
def test_dropout_of_sparse_features(backbone: str) -> None:
    """Dropping a zero changes nothing: masks are only needed for the stored values."""
    x, edge_index, _ = graph_and_features(0.05)
    row, col = x.nonzero(as_tuple=True)
    mask = torch.rand_like(x)

    class SameMask(EdgeDropout):
        def noise(self, x: Tensor) -> Tensor:
            if x.shape[-2:] == mask.shape:
                return mask.view_as(x)
            return mask[row, col] if x.shape == row.shape else super().noise(x)

    model = model_of(backbone)
    inputs = model.prepare(x, edge_index)
    seed = torch.tensor(2)
    with SameMask(seed, attention_edges(inputs, edge_index)):
        out = model(inputs)
    with SameMask(seed, attention_edges(None, edge_index)) as dense:
        assert_same(model, out, model(x, edge_index))
    assert any(shape[-2:] == mask.shape for shape, _ in dense.calls)


PAIRS = [(b, a) for b in BACKBONES for a in ACTIVATIONS if b != "sgc"] + [("sgc", "none")]


@pytest.mark.parametrize(("backbone", "activation"), PAIRS)
def test_many_models_at_once(backbone: str, activation: str) -> None:
    x, edge_index, edge_weight = graph_and_features(0.05)
    models = [model_of(backbone, activation) for _ in range(3)]
    outs = assert_alone_as_together(models, models[0].prepare(x, edge_index, edge_weight))
    assert_close(outs[2], models[2](x, edge_index, edge_weight))


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_gradients_outside_of_vmap(backbone: str) -> None:
    """One backward pass through the sum of all models' losses, without torch.func.grad."""
    x, edge_index, _ = graph_and_features(0.05)
    models = [model_of(backbone, "grelu") for _ in range(3)]
    skeleton, parameters = stacked(models)
    inputs = models[0].prepare(x, edge_index)

    def loss(p: dict[str, Tensor], seed: Tensor) -> Tensor:
        with HashDropout(seed):
            return loss_of(functional_call(skeleton, p, (inputs,)))

    seeds = torch.arange(3)
    expected = vmap(grad(loss))(parameters, seeds)
    leaves = {name: p.requires_grad_() for name, p in parameters.items()}
    vmap(loss)(leaves, seeds).sum().backward()
    for name, p in leaves.items():
        assert_close(torch.zeros_like(p) if p.grad is None else p.grad, expected[name])


def test_inputs_may_be_arguments_of_vmap() -> None:
    x, edge_index, _ = graph_and_features(0.05)
    models = [model_of("gcn", "grelu").eval() for _ in range(2)]
    skeleton, parameters = stacked(models)

    def run(p: dict[str, Tensor], inputs: PreparedInputs) -> Tensor:
        return functional_call(skeleton, p, (inputs,))

    out = vmap(run, in_dims=(0, None))(parameters, models[0].prepare(x, edge_index))
    assert_close(out[1], models[1](x, edge_index))


def test_batch_of_graphs() -> None:
    """The activation is told of the graphs: a batch equals its graphs one by one."""
    edge_index, batch = batch_of_graphs([6, 8])
    x = torch.randn(14, FEATURES).double()
    model = model_of("gcn", "grelu").eval()
    out = model(x, edge_index, batch=batch, batch_size=2)
    first = edge_index[0] < 6
    assert_close(out[:6], model(x[:6], edge_index[:, first]))
    assert_close(out[6:], model(x[6:], edge_index[:, ~first] - 6))
    assert_close(model(model.prepare(x, edge_index, batch=batch, batch_size=2)), out)


@pytest.mark.parametrize(("backbone", "activation"), PAIRS)
def test_reset_leaves_nothing(backbone: str, activation: str) -> None:
    assert_reset_leaves_nothing(model_of(backbone, activation))


def test_activations_are_fresh_and_fit_their_layer() -> None:
    for backbone, width in (("gcn", 4), ("gat", 8)):
        models = [model_of(backbone, "prelu") for _ in range(2)]
        assert all([act.channels for act in model.acts] == [width] for model in models)
        acts = [act for model in models for act in model.acts]
        assert len({id(p) for act in acts for p in act.parameters()}) == len(acts)


def test_activation_from_a_function() -> None:
    model = GNN("gcn", FEATURES, 4, CLASSES, lambda channels: GReLU(channels, K=3))
    assert isinstance(model.acts[0], GReLU)
    assert model.acts[0].K == 3
    model = GNN("gcn", FEATURES, 4, CLASSES, GReLU, activation_options={"K": 4})
    assert model.acts[0].K == 4
    assert repr(model).startswith("GNN(gcn, 20, 4, 3, activation=GReLU, ")
    model = GNN("gcn", FEATURES, 4, CLASSES, "grelu", activation_options={"steps": 2})
    assert model.acts[0].steps == 2


def test_parameters_must_not_survive_a_reset() -> None:
    class Scale(torch.nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(channels))

    with pytest.raises(TypeError, match="activation must have a method reset_parameters"):
        GNN("gcn", FEATURES, 4, CLASSES, Scale)
    model = GNN("gcn", FEATURES, 4, CLASSES, lambda channels: torch.nn.Sequential(ReLU(channels)))
    model.reset_parameters()


def test_layers() -> None:
    model = GNN("gat", 10, 4, 3, dropout=0.6, heads=2, output_heads=5)
    first, last = model.convs
    assert isinstance(first, GATConv)
    assert (first.heads, first.concat, first.dropout, first.out_channels) == (2, True, 0.6, 4)
    assert (last.heads, last.concat, last.dropout, last.in_channels) == (5, False, 0.6, 8)
    model = GNN("appnp", 10, 4, 3)
    assert isinstance(model.propagation, APPNP)
    assert (model.propagation.K, model.propagation.alpha) == (10, 0.1)
    model = GNN("sgc", 10, 4, 3, "none", K=3)
    assert (len(model.convs), len(model.acts), model.convs[0].K) == (1, 0, 3)


def test_repr() -> None:
    assert str(GNN("gcn", 10, 4, 3)) == "GNN(gcn, 10, 4, 3, activation=relu, dropout=0.5)"
    model = GNN("gat", 10, 4, 3, ReLU, dropout=0.6, heads=2)
    assert str(model) == (
        "GNN(gat, 10, 4, 3, activation=ReLU, dropout=0.6, heads=2, output_heads=1)"
    )


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("gcnn",), {}, "backbone must be one of cheb, .*, sgc, got 'gcnn'; did you mean 'gcn'?"),
        (("SAGE",), {}, "got 'SAGE'; did you mean 'sage'?"),
        (("xyz",), {}, "backbone must be one of cheb, .*, sgc, got 'xyz'."),
        (("gcn",), {"activation": "grelo"}, "activation must be .* did you mean 'grelu'?"),
        (("gcn",), {"activation": "none"}, "activation must be one of relu, .*, got 'none'"),
        (("sgc",), {}, "activation must be 'none' for backbone 'sgc'"),
        (("gcn",), {"K": 2}, "options of backbone 'gcn' must be left out, got 'K'."),
        (("gat",), {"head": 2}, "options of backbone 'gat' .* did you mean 'heads'?"),
    ],
)
def test_errors(arguments: tuple[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")) as caught:
        GNN(*arguments, 10, 4, 3, **options)
    assert str(caught.value).count("\n") == 0


def test_prepare_checks_the_graph() -> None:
    model, x = GNN("gcn", 3, 4, 2), torch.rand(4, 3)
    with pytest.raises(ValueError, match="edge_index must hold indices between 0 and 3"):
        model.prepare(x, torch.tensor([[0, 4], [1, 0]]))
    with pytest.raises(ValueError, match="edge_weight must be finite and non-negative"):
        model.prepare(x, torch.tensor([[0, 3], [1, 0]]), torch.tensor([1.0, -1.0]))
