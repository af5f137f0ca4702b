"""Numbers that are hardly numbers: very large, very small, infinite, none, and more than 32 bits
count."""

import copy
from unittest import mock

import pytest
import torch
from torch import Tensor

from graphrelu import GReLU, functional
from graphrelu import graph as graph_module
from graphrelu.functional import MODES, Edges, normalized_adjacency
from graphrelu.graph import DiffusionSettings, prepare
from graphrelu.ops.fused import _Given
from graphrelu.ops.triton import fused as kernels
from tests.helpers import (
    OTHER,
    SHARP,
    assert_close,
    batch_of_graphs,
    opened,
    outcome,
    random_graph,
    reference,
    variant_of,
)

FORMS = [("A", OTHER), ("A", SHARP), *((v, {"mode": mode}) for v in "ABCDEFG" for mode in MODES)]
all_forms = pytest.mark.parametrize(("variant", "form"), FORMS, ids=str)


def batch_with(value: float) -> tuple[Tensor, dict[str, Tensor]]:
    """Three graphs, of which the second has the value in one entry."""
    edge_index, batch = batch_of_graphs([5, 6, 4])
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    x = torch.randn(15, 4)
    x[7, 2] = value
    return x.requires_grad_(), {"edge_index": edge_index, "batch": batch}


def outputs_and_gradients(
    act: GReLU, x: Tensor, graph: dict[str, Tensor], of: Tensor
) -> tuple[Tensor, Tensor]:
    """Those of the nodes `of`, for a loss of these nodes alone."""
    out = act(x, **graph)[of]
    (grad,) = torch.autograd.grad(out.sum(), x)
    return out, grad[of]


@all_forms
def test_nan_and_infinity_stay_in_their_graph(variant: str, form: dict) -> None:
    """A NaN is in all outputs of its graph, or of its channel there where nothing mixes the
    channels; an infinity at least where it came in. The other graphs of a batch get the bits that
    they get without them, and so do their gradients."""
    act = opened(variant_of(variant, 4, **form))
    for value in (torch.nan, torch.inf, -torch.inf):
        torch.manual_seed(1)
        x, graph = batch_with(value)
        own = graph["batch"] == 1
        out = act(x, **graph)
        if value != value:
            reached = out[own]
            if act.node_mlp is None and act.mode == "calibrated":
                reached = reached[:, 2]
            assert bool(reached.isnan().all())
        assert not bool(out[7, 2].isfinite())
        torch.manual_seed(1)
        clean, _ = batch_with(1.0)
        parts, expected = (outputs_and_gradients(act, z, graph, ~own) for z in (x, clean))
        assert all(map(torch.equal, parts, expected))


@pytest.mark.parametrize("value", [1e-30, 1e30, -1e30])
@all_forms
def test_very_large_and_very_small_inputs(variant: str, form: dict, value: float) -> None:
    """They are computed with like others."""
    act = opened(variant_of(variant, 4, **form))
    for batched in (True, False):
        x, graph = batch_with(value)
        graph = graph if batched else {"edge_index": graph["edge_index"]}
        out = act(x, **graph)
        sizes = {"batch_size": 3} if batched else {}
        exact = reference(copy.deepcopy(act).double(), x.double(), **graph, **sizes)[0]
        torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)
        for grad in torch.autograd.grad(out.sum(), [x, *act.parameters()]):
            assert bool(grad.isfinite().all())


@all_forms
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_at_its_largest(dtype: torch.dtype, variant: str, form: dict) -> None:
    """Logits and sums of float16's largest number are beyond float16, but not beyond float32, in
    which they are: an output is infinite only where the exact one has no place in the type."""
    act = opened(variant_of(variant, 4, **form)).to(dtype)
    edge_index, batch = batch_of_graphs([20, 10])
    x = torch.randn(30, 4).sign() * torch.finfo(torch.float16).max
    x = x.to(dtype).requires_grad_()
    for graph in ({}, {"batch": batch}):
        out = act(x, edge_index, **graph)
        exact = copy.deepcopy(act).double()(x.double(), edge_index, **graph)
        largest, tolerance = torch.finfo(dtype).max, 2 * torch.finfo(dtype).eps
        bounded = (y.double().clamp(-largest, largest) for y in (out, exact))
        assert_close(*bounded, tolerance)
        grads = torch.autograd.grad(out.float().mean(), [x, *act.parameters()])
        assert not any(bool(grad.isnan().any()) for grad in grads)


def test_softmax_over_ten_million_nodes() -> None:
    """Of one graph, and of one in a batch: within 1e-5 of float64 for every node."""
    logits = torch.randn(10_000_000, 1)
    batch = torch.zeros(len(logits), dtype=torch.long)
    exact = functional.node_parameters(logits.double())
    for graph in ((), (batch, 1)):
        out = functional.node_parameters(logits, *graph)
        assert float(((out.double() - exact).abs_() / exact).max()) < 1e-5
        assert abs(float(out.double().sum()) - 1) < 1e-5


def test_degree_beyond_the_whole_numbers_of_float32() -> None:
    """A sum of ones, one by one, would end at 2^24."""
    count = 2**24 + 2**22
    node, ones = torch.zeros(1, dtype=torch.long).expand(count), torch.ones(1).expand(count)
    weight = normalized_adjacency(Edges(node, node, ones, 1)).weight
    assert_close(weight[:1] * count, torch.ones(1), 1e-6)


@pytest.mark.parametrize("weight", [1e-40, 1e-30, 1e30, 3e38])
def test_edge_weights_have_no_scale(weight: float) -> None:
    """Not even where the degrees, or the inverses of their roots, are beyond float32."""
    edge_index = random_graph(20, 80, undirected=True)
    act, x = opened(GReLU(4)), torch.randn(20, 4)
    out = act(x, edge_index, torch.full((160,), weight))
    assert_close(out, act(x, edge_index), 1e-5)


def test_module_with_64_bit_indices() -> None:
    """As if its graph had too many nodes or edges for 32 bits."""
    edge_index, batch = batch_of_graphs([20, 30])
    act = opened(GReLU(4)).double()
    x = torch.randn(50, 4, dtype=torch.double, requires_grad=True)
    settings = DiffusionSettings(act.alpha, act.steps, act.diffusion)
    found = []
    for dtype in (torch.int32, torch.int64):
        graph_module.clear_cache()
        with mock.patch.object(graph_module, "index_dtype", lambda *_, dtype=dtype: dtype):
            graph = prepare(edge_index, None, 50, torch.double, settings)
        assert graph.matrices[0].col.dtype == dtype
        found.append(outcome(act(x, graph, batch=batch), [x, *act.parameters()]))
    assert_close(*found, 1e-10)


def test_more_graphs_than_a_grid_has_columns() -> None:
    """CUDA's grids have 2^31 - 1 places in their first dimension, and 65,535 in the others."""
    graphs = 70_000
    x, mass, rows = torch.ones(graphs, 1), torch.ones(graphs), torch.zeros(graphs + 1).int()
    empty, batch = torch.empty(0), torch.arange(graphs)
    given = _Given(
        *(mass, rows, empty.int(), empty, batch, None, None),
        *(graphs, 0.1, 10, 8.0, 3.0, 3.0, 0.0),
    )
    weights = torch.ones(1, 1), torch.ones(4, 1), torch.ones(4, 1)
    kernel = mock.MagicMock()
    with (
        mock.patch.object(kernels, "fused_kernel", kernel),
        mock.patch.object(kernels, "fused_backward_kernel", kernel),
    ):
        _, *saved = kernels.forward(x, *weights, given)
        kernels.backward(x, x, *weights[:2], *saved, given)
    grids = [call.args[0] for call in kernel.__getitem__.call_args_list]
    assert grids == [(graphs,)] * 2
