"""torch.compile and torch.func around the module."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.diffusion import DiffusionSettings, PreparedGraph, prepare
from graphrelu.ops.cpu import CSR
from tests.helpers import (
    FULL,
    OTHER,
    assert_close,
    batch_of_graphs,
    gradients,
    opened,
    random_graph,
)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"K": 3, "mode": "paper", "hidden": 4},
        {"diffusion": "chebyshev", "add_self_loops": True},
        {"diffusion": "exact", "node_wise": False},
        {"channel_wise": False},
        {"topology": False, "cached": True},
        OTHER,
        FULL,
    ],
)
def test_compile(options: dict) -> None:
    act = opened(GReLU(6, **options))
    compiled = torch.compile(act, fullgraph=True)
    edge_index, weight = random_graph(30, 80, undirected=True), torch.rand(80).repeat(2)
    x = torch.randn(30, 6, requires_grad=True)
    inputs = [x, *act.parameters()]
    for graph in (edge_index, EdgeIndex(edge_index, sparse_size=(30, 30))):
        out, expected = compiled(x, graph, weight), act(x, graph, weight)
        assert_close(out, expected, 1e-5)
        for a, b in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
            assert_close(a, b, 1e-4)


def test_compile_batched() -> None:
    act = opened(GReLU(6))
    compiled = torch.compile(act, fullgraph=True)
    edge_index, batch = batch_of_graphs([10, 7, 13])
    x = torch.randn(30, 6, requires_grad=True)
    out = compiled(x, edge_index, batch=batch, batch_size=3)
    expected = act(x, edge_index, batch=batch, batch_size=3)
    inputs = [x, *act.parameters()]
    assert_close(out, expected, 1e-5)
    for a, b in zip(gradients(out, inputs), gradients(expected, inputs), strict=True):
        assert_close(a, b, 1e-4)


def test_compile_model_with_dynamic_sizes() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.act, self.conv2 = GCNConv(5, 8), opened(GReLU(8)), GCNConv(8, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv2(self.act(self.conv1(x, edge_index), edge_index), edge_index)

    net = Net()
    compiled = torch.compile(net, fullgraph=True, dynamic=True)
    for size in (11, 20, 35):
        x, edge_index = torch.randn(size, 5), random_graph(size, 3 * size)
        assert_close(compiled(x, edge_index), net(x, edge_index), 1e-5)


@pytest.mark.parametrize("mode", ["calibrated", "paper"])
@pytest.mark.parametrize("variant", list("ABCDEFG"))
def test_vmap_over_parameters_and_features(variant: str, mode: str) -> None:
    acts = [opened(GReLU.variant(variant, 4, mode=mode)).double() for _ in range(3)]
    parameters, _ = stack_module_state(acts)
    skeleton = copy.deepcopy(acts[0]).to("meta")
    edge_index, batch = batch_of_graphs([6, 9])
    x = torch.randn(3, 15, 4, dtype=torch.double)

    for kwargs in ({}, {"batch": batch, "batch_size": 2}):

        def run(p: dict, x: Tensor, kwargs: dict = kwargs) -> Tensor:
            return functional_call(skeleton, p, (x, edge_index), kwargs)

        looped = torch.stack([a(z, edge_index, **kwargs) for a, z in zip(acts, x, strict=True)])
        assert_close(vmap(run)(parameters, x), looped)
        looped = torch.stack([act(x[0], edge_index, **kwargs) for act in acts])
        assert_close(vmap(run, in_dims=(0, None))(parameters, x[0]), looped)
        looped = torch.stack([acts[0](z, edge_index, **kwargs) for z in x])
        first = {name: value[0] for name, value in parameters.items()}
        assert_close(vmap(run, in_dims=(None, 0))(first, x), looped)

        def loss(p: dict, x: Tensor, run=run) -> Tensor:  # type: ignore[no-untyped-def]
            return (run(p, x) - 1).pow(2).sum()

        for in_dims, features in (((0, 0), x), ((0, None), x[0])):
            grads = vmap(grad(loss, argnums=(0, 1)), in_dims=in_dims)(parameters, features)
            for i, act in enumerate(acts):
                z = (x[i] if in_dims[1] == 0 else x[0]).clone().requires_grad_()
                out = (act(z, edge_index, **kwargs) - 1).pow(2).sum()
                names = [name for name, _ in act.named_parameters()]
                alone = torch.autograd.grad(out, [*act.parameters(), z])
                for name, expected in zip(names, alone, strict=False):
                    assert_close(grads[0][name][i], expected)
                assert_close(grads[1][i], alone[-1])


def test_vmap_over_edge_weights() -> None:
    act, edge_index = opened(GReLU(4)).double(), random_graph(10, 30)
    x, weights = torch.randn(10, 4, dtype=torch.double), torch.rand(3, 30, dtype=torch.double)
    expected = torch.stack([act(x, edge_index, weight) for weight in weights])
    assert_close(vmap(lambda weight: act(x, edge_index, weight))(weights), expected)


def test_nested_vmap() -> None:
    act, edge_index = opened(GReLU(4)).double(), random_graph(10, 30)
    x = torch.randn(2, 3, 10, 4, dtype=torch.double)
    out = vmap(vmap(lambda z: act(z, edge_index)))(x)
    expected = torch.stack([torch.stack([act(z, edge_index) for z in row]) for row in x])
    assert_close(out, expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"diffusion": "chebyshev", "hidden": 3},
        {"mode": "paper", "K": 3},
        {"channel_wise": False},
        {"node_wise": False},
        OTHER,
        FULL,
    ],
)
def test_vmap_over_graphs(options: dict) -> None:
    """Each model has a graph, a batch vector and prepared matrices of its own."""
    acts = [opened(GReLU(6, **options).double()) for _ in range(3)]
    settings = DiffusionSettings(acts[0].alpha, acts[0].steps, acts[0].diffusion, False)
    graphs, batches = [], []
    for sizes in ([5, 4, 3], [2, 7, 3], [6, 0, 6]):
        edge_index, batch = batch_of_graphs(sizes)
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        graphs.append(prepare(edge_index, None, 12, torch.double, settings, batch, True))
        batches.append(batch)
    masses = torch.stack([graph.mass for graph in graphs])
    matrix, transposed = (
        CSR(*map(torch.stack, zip(*matrices, strict=True)))
        for matrices in zip(*(graph.matrices for graph in graphs), strict=True)
    )
    parameters, _ = stack_module_state(acts)
    x = torch.randn(3, 12, 6, dtype=torch.double, requires_grad=True)

    def run(parameters: dict, x: Tensor, mass: Tensor, *rest: Any) -> Tensor:
        *matrices, batch = rest
        graph = PreparedGraph(settings, mass, matrices=tuple(matrices))
        arguments = (x, graph, None, batch, 3)
        return functional_call(acts[0], parameters, arguments)

    together = vmap(run)(parameters, x, masses, matrix, transposed, torch.stack(batches))
    alone = torch.stack(
        [
            act(features, graph, batch=batch, batch_size=3)
            for act, features, graph, batch in zip(acts, x, graphs, batches, strict=True)
        ]
    )
    assert_close(together, alone)
    inputs = [x, *parameters.values()]
    of_acts = [p for act in acts for p in act.parameters()]
    first, *grads = gradients(together, inputs)
    second, *others = gradients(alone, [x, *of_acts])
    assert_close(first, second)
    for i, grad_of_all in enumerate(grads):
        for row in range(3):
            assert_close(grad_of_all[row], others[row * len(grads) + i])
