"""Apply on a GPU: the piecewise maximum, straight from the factors of its coefficients.

Neither the coefficients `[N, K, C]` nor a mask is stored: the backward pass chooses the segments
again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.ops import (
    all_at_once,
    custom_operator,
    differentiated,
    launcher,
    uses_triton,
    with_signature,
)


def _gradients(
    grad: Tensor, x: Tensor, gamma: Tensor, parameters: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), gamma.new_empty(gamma.shape), parameters.new_empty(parameters.shape)


_FACTORS = "Tensor x, Tensor gamma, Tensor parameters, float[] base"
_forward = custom_operator(
    "apply",
    f"({_FACTORS}) -> Tensor",
    launcher("apply", "forward"),
    lambda x, *rest: torch.empty_like(x),
)
_backward = custom_operator(
    "apply_backward",
    f"(Tensor grad, {_FACTORS}) -> (Tensor, Tensor, Tensor)",
    launcher("apply", "backward"),
    _gradients,
)


@with_signature
class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float]) -> Tensor:
        return _forward(x, gamma, parameters, base)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *factors, ctx.base = inputs
        ctx.save_for_backward(*factors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        factors = ctx.saved_tensors
        if torch.is_grad_enabled():
            equations = partial(functional.apply, base=ctx.base)
            return *differentiated(equations, factors, grad), None
        return *_backward(grad, *factors, ctx.base), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return all_at_once(_Apply.apply, info, in_dims, *args)


def apply(
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None = None,
) -> Tensor:
    """:func:`graphrelu.functional.apply`; for one graph and up to two segments of one weight, on a
    GPU in one pass, and its gradient in another."""
    is_usual = batch is None and len(base) <= 2 and gamma.size(-1) == 1
    if not (is_usual and uses_triton(x)):
        return functional.apply(x, gamma, parameters, base, batch)
    return _Apply.apply(x, gamma, parameters, base)
