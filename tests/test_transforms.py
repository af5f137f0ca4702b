"""torch.compile, torch.export and torch.func around the module."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.func import functional_call, grad, stack_module_state, vmap
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.functional import MODES
from graphrelu.graph import DiffusionSettings, PreparedGraph, prepare
from graphrelu.ops.diffuse import CSR
from tests.helpers import (
    SHARP,
    assert_close,
    batch_of_graphs,
    opened,
    outcome,
    random_graph,
    variant_of,
)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


# The whole compiler takes long: where the module is traced otherwise, its front end alone.
@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({}, "inductor"),
        ({"K": 3, "mode": "paper"}, "aot_eager"),
        ({"diffusion": "exact", "node_wise": False}, "aot_eager"),
        ({"channel_wise": False}, "inductor"),
        ({"topology": False}, "aot_eager"),
        (SHARP, "aot_eager"),
    ],
    ids=str,
)
def test_compile(options: dict, backend: str) -> None:
    act = opened(GReLU(6, **options))
    compiled = torch.compile(act, fullgraph=True, backend=backend)
    edge_index, batch = batch_of_graphs([10, 7, 13])
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    weight = torch.rand(edge_index.size(1) // 2).repeat(2)
    learned = weight.clone().requires_grad_()
    x = torch.randn(30, 6, requires_grad=True)
    inputs = [x, *act.parameters()]
    same = EdgeIndex(edge_index, sparse_size=(30, 30))
    for graph in ((edge_index, learned), (same, weight), (edge_index, None, batch, 3)):
        out, expected = compiled(x, *graph), act(x, *graph)
        assert_close(out, expected, 1e-5)
        assert_close(outcome(out, inputs), outcome(expected, inputs), 1e-4)
        with torch.no_grad():  # which is traced otherwise
            assert_close(compiled(x, *graph), expected, 1e-5)
    if act.topology:  # else the graph is not looked at
        with pytest.raises(Exception, match="edge_index must be of shape"):
            compiled(x, edge_index[0])


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.act, self.conv2 = GCNConv(5, 8), opened(GReLU(8)), GCNConv(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.act(self.conv1(x, edge_index), edge_index), edge_index)


def compiled(net: Net, path: Path) -> Callable[..., Tensor]:
    return torch.compile(net, fullgraph=True, dynamic=True)


def exported(net: Net, path: Path) -> Callable[..., Tensor]:
    """For inference, by way of a file."""
    sizes = {"x": {0: Dim("nodes", min=2)}, "edge_index": {1: Dim("edges", min=2)}}
    arguments = (torch.randn(11, 5), random_graph(11, 40))
    with torch.no_grad():
        torch.export.save(torch.export.export(net.eval(), arguments, dynamic_shapes=sizes), path)
        return torch.export.load(path).module()


@pytest.mark.parametrize("way", [compiled, exported])
def test_a_model_for_graphs_of_any_size(way: Callable, tmp_path: Path) -> None:
    net = Net()
    other = way(net, tmp_path / "model.pt2")
    for num_nodes, num_edges in ((11, 40), (4, 7), (50, 200)):
        x, edge_index = torch.randn(num_nodes, 5), random_graph(num_nodes, num_edges)
        assert_close(other(x, edge_index), net(x, edge_index), 1e-5)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", list("ABCDEFG"))
def test_vmap_over_parameters_and_features(variant: str, mode: str, batched: bool) -> None:
    """Over both, or one of them; the gradients of both."""
    acts = [opened(variant_of(variant, 4, mode=mode)).double() for _ in range(3)]
    parameters, _ = stack_module_state(acts)
    skeleton = copy.deepcopy(acts[0]).to("meta")
    edge_index, batch = batch_of_graphs([6, 9])
    x = torch.randn(3, 15, 4, dtype=torch.double)
    graph = {"batch": batch, "batch_size": 2} if batched else {}

    def loss(p: dict, x: Tensor) -> tuple[Tensor, Tensor]:
        out = functional_call(skeleton, p, (x, edge_index), graph)
        return (out - 1).pow(2).sum(), out

    run = grad(loss, argnums=(0, 1), has_aux=True)
    for in_dims in ((0, 0), (0, None), (None, 0)):
        of_first = {name: value[0] for name, value in parameters.items()}
        arguments = parameters if in_dims[0] == 0 else of_first, x if in_dims[1] == 0 else x[0]
        (grads, grad_x), out = vmap(run, in_dims=in_dims)(*arguments)
        for i in range(3):
            act = acts[i if in_dims[0] == 0 else 0]
            z = x[i if in_dims[1] == 0 else 0].clone().requires_grad_()
            alone = act(z, edge_index, **graph)
            inputs = [z, *act.parameters()]
            expected = torch.autograd.grad((alone - 1).pow(2).sum(), inputs)
            found = [out[i], grad_x[i], *(grads[name][i] for name, _ in act.named_parameters())]
            assert_close(found, [alone, *expected])


@pytest.mark.parametrize("options", [{}, {"K": 3}, {"channel_wise": False}, SHARP], ids=str)
def test_derivatives_of_a_mapped_module(options: dict) -> None:
    """Taken outside of the map, as the laboratory does: first, second, and mapped ones."""
    act, edge_index = opened(GReLU(4, **options)).double(), random_graph(10, 30)
    x = torch.randn(3, 10, 4, dtype=torch.double, requires_grad=True)
    inputs = [x, *act.parameters()]
    found = []
    for out in (
        vmap(lambda z: act(z, edge_index))(x),
        torch.stack([act(z, edge_index) for z in x]),
    ):
        first = torch.autograd.grad(out.pow(3).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(grad.pow(2).sum() for grad in first), inputs)
        found.append([out, *first, *second])
    assert_close(*found, 1e-8)
    out = act(x[0], edge_index)
    rows = torch.randn(5, *out.shape, dtype=torch.double)
    together = torch.autograd.grad(out, inputs[1:], rows, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(out, inputs[1:], row, retain_graph=True) for row in rows]
    assert_close(list(together), [torch.stack(grads) for grads in zip(*each, strict=True)])


def test_vmap_over_edge_weights_and_nested_vmap() -> None:
    act, edge_index = opened(GReLU(4)).double(), random_graph(10, 30)
    x = torch.randn(2, 3, 10, 4, dtype=torch.double)
    weights = torch.rand(3, 30, dtype=torch.double)
    expected = torch.stack([act(x[0, 0], edge_index, weight) for weight in weights])
    assert_close(vmap(lambda weight: act(x[0, 0], edge_index, weight))(weights), expected)
    out = vmap(vmap(lambda z: act(z, edge_index), in_dims=1, out_dims=1))(x.movedim(1, 2))
    expected = torch.stack([torch.stack([act(z, edge_index) for z in row]) for row in x])
    assert_close(out.movedim(2, 1), expected)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "paper", "K": 3},
        {"channel_wise": False},
        {"node_wise": False},
        SHARP,
    ],
    ids=str,
)
def test_vmap_over_graphs(options: dict) -> None:
    """Each model has a graph, a batch vector and prepared matrices of its own."""
    acts = [opened(GReLU(6, **options).double()) for _ in range(3)]
    settings = DiffusionSettings(acts[0].alpha, acts[0].steps)
    graphs, batches = [], []
    for sizes in ([5, 4, 3], [2, 7, 3], [6, 0, 6]):
        edge_index, batch = batch_of_graphs(sizes)
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        graphs.append(prepare(edge_index, None, 12, torch.double, settings, batch))
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
        return functional_call(acts[0], parameters, (x, graph, None, batch, 3))

    together = vmap(run)(parameters, x, masses, matrix, transposed, torch.stack(batches))
    each = zip(acts, x, graphs, batches, strict=True)
    alone = torch.stack([act(z, graph, None, batch, 3) for act, z, graph, batch in each])
    out, grad_x, *grads = outcome(together, [x, *parameters.values()])
    of_acts = [parameter for act in acts for parameter in act.parameters()]
    others = outcome(alone, [x, *of_acts])
    found = [grad[row] for row in range(3) for grad in grads]
    assert_close([out, grad_x, *found], others)
