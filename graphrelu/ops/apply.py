"""Apply: the piecewise maximum, straight from the factors of its coefficients.

Neither the coefficients `[N, K, C]` nor a mask is stored: the backward pass chooses the segments
again. A CPU goes over the features block by block: no temporary is larger than a block, as one of
the features' size would cost more than the passes themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import graph_sum, without_autocast
from graphrelu.ops import INTERPRETS, differentiated, map_by_loop, stacked, uses_triton

# Elements of one block: small enough that the temporaries of a block stay in the cache of a core
# and come from memory that the allocator has at hand (a batch of 128 molecules: 8.6 ms, 10.6 with
# blocks of 2^19), large enough that the overhead of a torch call does not show.
_BLOCK = 1 << 16

_FACTORS = "Tensor x, Tensor gamma, Tensor parameters, float[] base, Tensor? batch"
torch.library.define("graphrelu::apply", f"({_FACTORS}) -> Tensor")
torch.library.define(
    "graphrelu::apply_backward",
    f"(Tensor grad, {_FACTORS}, bool needs_x) -> (Tensor, Tensor, Tensor)",
)


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of nodes of `x [R, N, C]`; a GPU takes all nodes at once."""
    replicas, num_nodes, channels = x.shape
    step = num_nodes if x.is_cuda else max(1, _BLOCK // max(1, replicas * channels))
    for start in range(0, num_nodes, max(1, step)):
        yield slice(start, min(start + step, num_nodes))


def _rows(parameters: Tensor, batch: Tensor | None, block: slice) -> Tensor:
    """From the parameters `[R, B, ...]` to those of the nodes of a block, `[R, 1 or n, ...]`."""
    return parameters if batch is None else parameters.index_select(1, batch[block])


def _weighted(value: Tensor, weight: Tensor, x: Tensor, slope: float, out: Tensor) -> Tensor:
    """`slope * x + weight * value`, in as few passes as it takes."""
    if slope == 1:
        return torch.addcmul(x, weight, value, out=out)
    torch.mul(weight, value, out=out)
    return out.add_(x, alpha=slope) if slope else out


@torch.library.impl("graphrelu::apply", "default")
def _apply(
    x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float], batch: Tensor | None
) -> Tensor:
    if (x.is_cuda or INTERPRETS) and uses_triton(x):
        from graphrelu.ops.triton import apply as kernels

        return kernels.forward(x, gamma, parameters, base, batch)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, gamma, parameters)):
        # An exported model calls the operator itself, and torch differentiates what it does.
        return functional.apply(x, gamma, parameters, base, batch)
    y = out = torch.empty_like(x)
    if x.dim() == 2:
        out, x, gamma, parameters = y[None], x[None], gamma[None], parameters[None]
    last = len(base) - 1
    for block in _blocks(x):
        x_block, weights = x[:, block].to(gamma.dtype), gamma[:, block]
        slopes, intercepts = _rows(parameters, batch, block).unbind(2)
        best = x_block
        for k, slope in enumerate(base):
            value = torch.addcmul(intercepts[:, :, k], slopes[:, :, k], x_block)
            weight = weights[..., k % weights.size(2), None]
            value = _weighted(value, weight, x_block, slope, out=value)
            if k > 0:
                value = torch.maximum(best, value, out=out[:, block] if k == last else value)
            best = value
        if last == 0:
            out[:, block] = best
    return y


@torch.library.impl("graphrelu::apply_backward", "default")
def _apply_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    needs_x: bool,
) -> tuple[Tensor, ...]:
    """The gradients of x, which has no rows where it is not needed, gamma and parameters."""
    # Not views, to which autograd could not add in place.
    grad_x, grad_gamma = (
        torch.empty_like(x if needs_x else x[..., :0, :]),
        gamma.new_empty(gamma.shape),
    )
    tensors = [grad, x, gamma, parameters, grad_x, grad_gamma]
    if x.dim() == 2:
        tensors = [tensor[None] for tensor in tensors]
    is_usual = len(base) == 2 and gamma.size(-1) == 1
    passes: Callable[..., Tensor] = _two_segments_backward if is_usual else _segments_backward
    if (x.is_cuda or INTERPRETS) and uses_triton(x):
        from graphrelu.ops.triton import apply as kernels

        passes = kernels.backward
    with without_autocast(grad):
        grad_parameters = passes(*tensors, base, batch, needs_x)
    return grad_x, grad_gamma, grad_parameters.view(parameters.shape)


def _two_segments_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    grad_x: Tensor,
    grad_gamma: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    needs_x: bool,
) -> Tensor:
    r"""`K = 2` and a weight for each node, as by default, in half the time of
    :func:`_segments_backward`: the first segment is the second plus

    .. math:: (s_0 - s_1) x + \gamma (\Delta a \, x + \Delta b),

    where it is chosen. With the gradient :math:`g`, and its part :math:`p` where the first segment
    is chosen, the columns :math:`[g x, g, p x, p]` side by side give the gradients of the weights
    in one product, and those of :math:`a_1, b_1, \Delta a, \Delta b` in another.
    """
    a0, a1, b0, b1 = parameters.flatten(2, 3).unbind(2)
    parameters = torch.stack([a1, b1, a0 - a1, b0 - b1], dim=2)
    sums = torch.zeros_like(parameters)
    for block in _blocks(grad):
        x_block, weight = x[:, block].to(gamma.dtype), gamma[:, block]
        own = _rows(parameters, batch, block)
        a, _, more_a, more_b = own.unbind(2)
        value = torch.addcmul(more_b, more_a, x_block)
        columns = value.new_empty(*value.shape[:2], 4, value.size(2))
        g_x, g, p_x, p = columns.unbind(2)
        g.copy_(grad[:, block])
        _weighted(value, weight, x_block, base[0] - base[1], out=value)
        # ReLU's own: a tie goes to the later segment.
        torch.ops.aten.threshold_backward.grad_input(g, value, 0.0, grad_input=p)
        torch.mul(g, x_block, out=g_x)
        torch.mul(p, x_block, out=p_x)
        if needs_x:
            torch.mul(a, g, out=value).addcmul_(more_a, p)
            _weighted(value, weight, p, base[0], out=grad_x[:, block])
            if base[1]:
                grad_x[:, block].add_(torch.sub(g, p, out=value), alpha=base[1])
        if batch is None:
            grad_gamma[:, block] = columns.flatten(2) @ own.flatten(2).mT
            sums += (weight.mT @ columns.flatten(2)).view_as(sums)
        else:
            grad_gamma[:, block] = own.mul_(columns).sum(dim=(2, 3)).unsqueeze(2)
            columns.mul_(weight.unsqueeze(3))
            for of_replica, own in zip(sums, columns, strict=True):  # the first dimension is fast
                of_replica.index_add_(0, batch[block], own)
    grad_a, grad_b, grad_a0, grad_b0 = sums.unbind(2)
    return torch.stack([grad_a0, grad_a - grad_a0, grad_b0, grad_b - grad_b0], dim=2)


def _segments_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    grad_x: Tensor,
    grad_gamma: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    needs_x: bool,
) -> Tensor:
    """Any number of segments, and of weights per node. Like its twin it writes the gradients of x
    and gamma, and returns that of the parameters."""
    sums, base_slopes = torch.zeros_like(parameters), gamma.new_tensor(base).view(-1, 1)
    for block in _blocks(grad):
        x_block, g = (tensor[:, block, None].to(gamma.dtype) for tensor in (x, grad))
        weight = gamma[:, block, :, None]
        slopes, intercepts = _rows(parameters, batch, block).unbind(2)
        lines = torch.addcmul(intercepts, slopes, x_block)  # [R, n, K, C]
        values = base_slopes * x_block + weight * lines
        best = values.flip(2).argmax(2, keepdim=True)  # a tie goes to the last segment
        part = torch.zeros_like(lines).scatter_(2, len(base) - 1 - best, g)
        of_segments = (part * lines).sum(dim=3)
        grad_gamma[:, block] = of_segments.sum_to_size(grad_gamma[:, block].shape)
        if needs_x:
            grad_x[:, block] = (part * (base_slopes + weight * slopes)).sum(dim=2)
        own = torch.stack([part * weight * x_block, part * weight], dim=2)
        if batch is None:
            sums += own.sum(dim=1, keepdim=True)
        else:
            sums += graph_sum(own.flatten(2), batch[block], sums.size(1)).view_as(sums)
    return sums


def _apply_backward_shapes(
    grad: Tensor, x: Tensor, gamma: Tensor, parameters: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    needs_x = rest[-1]
    grad_x = torch.empty_like(x if needs_x else x[..., :0, :])
    return grad_x, gamma.new_empty(gamma.shape), parameters.new_empty(parameters.shape)


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
        needs_x = ctx.needs_input_grad[0]
        grads = _backward(grad, *factors, ctx.base, batch, needs_x)
        return grads[0] if needs_x else None, *grads[1:], None, None

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
    """:func:`graphrelu.functional.apply` in one pass, and its gradient in another."""
    return _Apply.apply(x, gamma, parameters, base, batch)
