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
from graphrelu.ops import differentiated, map_by_loop, stacked, uses_triton

_FACTORS = "Tensor x, Tensor gamma, Tensor parameters, float[] base, Tensor? batch"
torch.library.define("graphrelu::apply", f"({_FACTORS}) -> Tensor")
torch.library.define(
    "graphrelu::apply_backward",
    f"(Tensor grad, {_FACTORS}) -> (Tensor, Tensor, Tensor)",
)


@torch.library.impl("graphrelu::apply", "default")
def _apply(*factors: Any) -> Tensor:
    from graphrelu.ops.triton import apply as kernels

    return kernels.forward(*factors)


@torch.library.impl("graphrelu::apply_backward", "default")
def _apply_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, gamma and parameters."""
    from graphrelu.ops.triton import apply as kernels

    return kernels.backward(*arguments)


def _apply_backward_shapes(
    grad: Tensor, x: Tensor, gamma: Tensor, parameters: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), gamma.new_empty(gamma.shape), parameters.new_empty(parameters.shape)


torch.library.register_fake("graphrelu::apply", lambda x, *rest: torch.empty_like(x))
torch.library.register_fake("graphrelu::apply_backward", _apply_backward_shapes)
_forward = torch.ops.graphrelu.apply.default
_backward = torch.ops.graphrelu.apply_backward.default
map_by_loop(_backward)


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor,
        gamma: Tensor,
        parameters: Tensor,
        base: Sequence[float],
        batch: Tensor | None,
    ) -> Tensor:
        return _forward(x, gamma, parameters, base, batch)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *factors, ctx.base, batch = inputs
        ctx.save_for_backward(*factors, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *factors, batch = ctx.saved_tensors
        if torch.is_grad_enabled():
            equations = partial(functional.apply, base=ctx.base, batch=batch)
            return *differentiated(equations, factors, grad), None, None
        return *_backward(grad, *factors, ctx.base, batch), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        size, (*factors, base, batch) = info.batch_size, args
        tensors, sizes = stacked(size, in_dims[:3], factors, [2, 2, 4])
        if in_dims[4] is None:
            return _Apply.apply(*tensors, base, batch).unflatten(0, sizes), 0
        # Each replica has graphs of its own: all of them are one batch.
        batch = batch.movedim(in_dims[4], 0)
        if len(sizes) > 1:
            batch = batch.repeat_interleave(sizes[1], dim=0)
        batch, _ = functional.joined(batch, tensors[2].size(1))
        out = _Apply.apply(*(tensor.flatten(0, 1) for tensor in tensors), base, batch)
        return out.view(*sizes, *tensors[0].shape[1:]), 0


def apply(
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None = None,
) -> Tensor:
    """:func:`graphrelu.functional.apply`; on a GPU in one pass, and its gradient in another, where
    all segments of a node have one weight."""
    if gamma.size(-1) > 1 or not uses_triton(x):
        return functional.apply(x, gamma, parameters, base, batch)
    return _Apply.apply(x, gamma, parameters, base, batch)
