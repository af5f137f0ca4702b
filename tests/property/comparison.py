"""A module beside the reference, on one of the strategies' cases."""

import copy
import math
from typing import NamedTuple

import torch
from hypothesis import assume
from torch import Tensor

from graphrelu import GReLU
from tests.helpers import diffused, reference
from tests.property.strategies import TOLERANCE, Graph, Setup

# Closer than this, relative to the largest number around, rounding may fall on either side.
_KINK = 1e-4


class Expected(NamedTuple):
    """What the reference gives in float64."""

    out: Tensor
    alpha: Tensor
    beta: Tensor
    grad: Tensor  # of the output
    grads: list[Tensor]  # of x and each parameter
    rounding: float  # of the node softmax, relative
    rounding_of_terms: float  # in the node MLP's gradient, which may all but cancel

    @property
    def gradient_scale(self) -> float:
        """A small gradient may be the sum of large terms: of those in the others."""
        return max([1.0, *(float(grad.abs().max()) for grad in self.grads if grad.numel() > 0)])


def assert_near(out: Tensor, expected: Tensor, tolerance: float, scale: float = 0.0) -> None:
    """Relative to the largest expected entry, or to `scale` where that is larger."""
    out, expected = out.detach().double(), expected.detach()
    assert bool(out.isfinite().all())
    largest = float(expected.abs().max()) if expected.numel() > 0 else 0.0
    bound = {"rtol": tolerance, "atol": tolerance * max(largest, scale)}
    torch.testing.assert_close(out, expected, **bound)


def expected_of(act: GReLU, x: Tensor, graph: Graph) -> Expected:
    """Of the same features and parameters; no gradient goes to an entry where two segments are
    nearly the same, and there is no example where a weight is nearly at its limit: the
    function is continuous there, but its gradient is not."""
    exact, z = copy.deepcopy(act).double(), x.detach().double().requires_grad_()
    out, alpha, beta = reference(exact, z, **graph.arguments())
    numbers = torch.finfo(torch.promote_types(x.dtype, torch.float))
    rounding = 32 * numbers.eps * largest_logit(exact, z.detach(), graph)
    kink = max(_KINK, rounding)
    clear = torch.ones_like(z)
    if act.K > 1:
        segments = (alpha * z.unsqueeze(1) + beta).detach()
        first, second = segments.topk(2, dim=1).values.unbind(dim=1)
        least = (kink * segments.abs().amax(dim=1)).clamp(min=numbers.tiny)
        clear = (first - second > least).double()
    if act.mode == "calibrated" and act.node_wise:
        uncapped = copy.deepcopy(exact)
        uncapped.gamma_max = math.inf
        gamma = uncapped.gamma(z.detach(), **graph.arguments())
        assume(bool(((gamma / exact.gamma_max - 1).abs() > kink).all()))
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(out.shape, generator=generator, dtype=torch.double) * clear
    grad = grad.to(x.dtype).double()
    grads = torch.autograd.grad(out, [z, *exact.parameters()], grad)
    of_terms = 0.0
    if z.numel() > 0:
        of_terms = 8 * numbers.eps * float(z.detach().abs().max() ** 2 * grad.abs().max())
    found = out.detach(), alpha.detach(), beta.detach(), grad, list(grads)
    return Expected(*found, rounding, of_terms)


def largest_logit(act: GReLU, x: Tensor, graph: Graph) -> float:
    """In units of the temperature: a softmax has the digits that these have behind the point."""
    if act.node_mlp is None or graph.num_nodes == 0:
        return 0.0
    e = x
    if act.topology:
        settings = act.alpha, act.steps, act.diffusion
        e = diffused(x, graph.edge_index, graph.edge_weight, *settings)
    temperature = act.temperature if act.mode == "calibrated" else 1.0
    return float(act.node_mlp(e).detach().abs().max()) / temperature


def assert_is_the_reference(graph: Graph, setup: Setup, dtype: torch.dtype) -> None:
    """Output and all gradients, within the type's tolerance."""
    act = setup.module()
    act = act.double() if dtype == torch.double else act
    x = setup.x(graph.num_nodes, dtype)
    expected = expected_of(act, x, graph)
    tolerance = max(TOLERANCE[dtype], expected.rounding)
    out = act(x, **graph.arguments())
    assert out.dtype == dtype
    # A base slope and its change may all but cancel.
    numbers = torch.finfo(torch.promote_types(dtype, torch.float))
    largest = float(x.detach().abs().max()) if x.numel() > 0 else 0.0
    assert_near(out, expected.out, tolerance, 8 * numbers.eps * largest / tolerance)
    names = ["x", *(name for name, _ in act.named_parameters())]
    grads = torch.autograd.grad(out, [x, *act.parameters()], expected.grad.to(dtype))
    for name, grad, exact in zip(names, grads, expected.grads, strict=True):
        try:
            scale = expected.gradient_scale
            if name.startswith("node_mlp"):
                scale = max(scale, expected.rounding_of_terms / tolerance)
            assert_near(grad, exact, tolerance, scale)
        except AssertionError as error:
            raise AssertionError(f"the gradient of {name}: {error}") from error
