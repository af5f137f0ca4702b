import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from graphrelu.graph import DiffusionSettings, prepare
from tests.helpers import OTHER, reference
from tests.property.comparison import assert_is_the_reference, assert_near, expected_of
from tests.property.strategies import LOW_PRECISION, Graph, Setup, cases

Case = tuple[Graph, Setup]


@given(case=cases())
def test_module_is_the_reference(case: Case) -> None:
    assert_is_the_reference(*case, torch.double)


WIDE = {"parameter_scale": 3.0, "features": "integers", "feature_scale": 10.0}
LOOPS = {"mode": "paper", "alpha": 0.05, "steps": 1}
EXACT = {"mode": "paper", "alpha": 0.05, "diffusion": "exact"}


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@given(case=cases(largest=10.0))
# Logits of more than fifty, which leave the softmax fewer digits.
@example(case=(Graph((4,), batched=True), Setup("G", 4, LOOPS, **WIDE, seed=268)))
# Segments that differ by less than the smallest number of float32.
@example(case=(Graph((2,)), Setup("B", 4, {"K": 4, **OTHER}, 1.0, **WIDE, seed=3890)))
# A gradient of nearly zero, the sum of large terms.
@example(case=(Graph((4,)), Setup("D", 1, {"mode": "paper"}, **WIDE, seed=95)))
# A base slope and its change that all but cancel.
@example(case=(Graph((1,)), Setup("E", 1, {"alpha": 0.05, "K": 1}, parameter_scale=3.0)))
def test_low_precision_is_the_reference(dtype: torch.dtype, case: Case) -> None:
    assert_is_the_reference(*case, dtype)


@given(case=cases(largest=10.0), dtype=st.sampled_from(LOW_PRECISION))
@settings(max_examples=settings.default.max_examples // 2)  # an example takes ten times as long
def test_kernels_are_the_reference(
    interpreter: Callable[..., Any], case: Case, dtype: torch.dtype
) -> None:
    """The module on the GPU's kernels, in Triton's interpreter."""
    interpreter(assert_is_the_reference, *case, dtype)


@given(case=cases(), dtype=st.sampled_from([torch.double, torch.float]))
def test_a_new_graph_gives_the_bits_of_a_known_one(case: Case, dtype: torch.dtype) -> None:
    """A graph whose tensors were never seen; the same tensors once more, which are remembered; and
    a prepared graph."""
    graph, setup = case
    act, x, known = setup.module().to(dtype), setup.x(graph.num_nodes, dtype), graph.arguments()
    settings = DiffusionSettings(act.alpha, act.steps, act.diffusion)
    ends = graph.edge_index, graph.edge_weight, graph.num_nodes
    prepared = prepare(*ends, dtype, settings, graph.batch)
    found = []
    for arguments in (
        graph.arguments(),
        known,
        known,
        known | {"edge_weight": None, "edge_index": prepared},
    ):
        out = act(x, **arguments)
        found.append([out, *torch.autograd.grad(out.sum(), [x, *act.parameters()])])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@given(case=cases(batched=True))
@example(  # two segments are the same, up to the rounding of a dense inverse
    case=(
        Graph((2, 2, 1), ((2, 2), (2, 2), (2, 3), (3, 3), (3, 3)), undirected=True, batched=True),
        Setup("G", 1, EXACT, features="integers", seed=259),
    )
)
def test_batch_is_its_graphs(case: Case) -> None:
    graph, setup = case
    act, x = setup.module().double(), setup.x(graph.num_nodes)
    start, alone = 0, []
    for size in graph.sizes:
        inside = ((graph.edge_index >= start) & (graph.edge_index < start + size)).all(dim=0)
        weight = None if graph.edge_weight is None else graph.edge_weight[inside]
        alone.append(act(x[start : start + size], graph.edge_index[:, inside] - start, weight))
        start += size
    expected = torch.cat([x[:0], *alone])
    out = act(x, **graph.arguments())
    assert_near(out, expected, 1e-9)
    inputs, of_clear = [x, *act.parameters()], expected_of(act, x, graph).grad
    grads, expected_grads = (
        torch.autograd.grad(y, inputs, of_clear, materialize_grads=True) for y in (out, expected)
    )
    scale = max([1.0, *(float(grad.abs().max()) for grad in expected_grads if grad.numel() > 0)])
    for grad, expected_grad in zip(grads, expected_grads, strict=True):
        assert_near(grad, expected_grad, 1e-9, scale)


@pytest.mark.parametrize("dtype", [torch.double, *LOW_PRECISION])
@given(
    case=cases(),
    K=st.integers(2, 7),
    scale=st.sampled_from([1e-30, 1.0, 1e4, 1e30]),
    backend=st.sampled_from(["torch", "reference"]),
)
def test_fresh_module_is_its_base(
    dtype: torch.dtype, case: Case, K: int, scale: float, backend: str
) -> None:
    """ReLU, or LeakyReLU of a slope: bit for bit, and so is the gradient, also at zero. One
    segment is the identity."""
    graph, setup = case
    options = setup.options | {"mode": "calibrated"}
    slope = options.get("negative_slope", 0.0)
    if setup.variant in "CD":
        slope = 1.0
    else:
        options["K"] = K
    setup = setup._replace(options=options, moved=0.0, parameter_scale=1.0, feature_scale=scale)
    largest = torch.finfo(dtype).max / 8 if dtype == torch.float16 else torch.inf
    x = setup.x(graph.num_nodes, dtype).detach().clamp(-largest, largest).requires_grad_()
    computed_in = torch.promote_types(dtype, torch.float)
    with mock.patch.dict(os.environ, GRAPHRELU_BACKEND=backend):
        out = setup.module()(x, **graph.arguments())
    expected = F.prelu(x.to(computed_in), torch.tensor(slope, dtype=computed_in))
    assert torch.equal(out, expected.to(dtype))
    (grad,) = torch.autograd.grad(out.sum(), x)
    expected = torch.full_like(x, slope, dtype=computed_in).masked_fill(x > 0, 1.0)
    assert torch.equal(grad, expected.to(dtype))


@given(case=cases())
@example(  # a gradient of zero, by the sum of terms that are not
    case=(
        Graph((2, 1), ((0, 0),) * 14, (0.0,) * 13 + (1.5,), batched=True),
        Setup("C", 1, {"alpha": 0.05, "steps": 1}, seed=203),
    )
)
def test_learned_edge_weights_get_their_gradient(case: Case) -> None:
    graph, setup = case
    act, x, arguments = setup.module().double(), setup.x(graph.num_nodes), graph.arguments()
    assume(graph.weights is not None and act.topology)
    of_others = expected_of(act, x, graph)
    weight = arguments["edge_weight"].requires_grad_()
    outs = act(x, **arguments), reference(act, x, **arguments)[0]
    assert_near(*outs, 1e-9)
    grad, expected = (
        torch.autograd.grad(out, weight, of_others.grad, materialize_grads=True)[0] for out in outs
    )
    assert_near(grad, expected, 1e-9, of_others.gradient_scale)
