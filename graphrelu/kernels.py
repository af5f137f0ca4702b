r"""Fused twins of :mod:`graphrelu.functional`: the same numbers without large temporaries.

:func:`piecewise_max` applies

.. math::
    y_{nc} = \max_k \{ s_k x_{nc} + \gamma_{nk} (a^k_c x_{nc} + b^k_c) \}

straight from its factors, block by block over the nodes, and recomputes the chosen segment in
the backward pass: neither the coefficients `[N, K, C]` nor a mask is ever stored.

The operators carry a leading dimension `R` of independent replicas (1 outside of `vmap`):
`x [R, N, C]`, `gamma [R, N, 1 or K]`, `slopes` and `intercepts [R, B, K, C]`, `batch [N]`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional

# Elements of one block: small enough that the temporaries of a block stay in the cache of a
# core, large enough that the overhead of a torch call does not show (measured on two cores).
_BLOCK = 1 << 18


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of nodes; a GPU takes all nodes at once."""
    num_nodes = x.size(1)
    step = num_nodes if x.is_cuda else _BLOCK // max(1, x.size(0) * x.size(2))
    step = max(1, step)
    for start in range(0, num_nodes, step):
        yield slice(start, min(start + step, num_nodes))


def _rows(parameter: Tensor, k: int, batch: Tensor | None, block: slice) -> Tensor:
    """Row `k` of a channel-wise parameter for each node of a block, `[R, 1 or n, C]`."""
    if batch is None:
        return parameter[:, :, k]
    return parameter[:, :, k].index_select(1, batch[block])


def _factors(
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    k: int,
    batch: Tensor | None,
    block: slice,
) -> tuple[Tensor, Tensor, Tensor]:
    """What segment `k` is made of: the node weight `[R, n, 1]`, its slope and intercept."""
    j = min(k, gamma.size(2) - 1)
    weight = gamma[:, block, j : j + 1]
    return weight, _rows(slopes, k, batch, block), _rows(intercepts, k, batch, block)


def _segment(x: Tensor, gamma: Tensor, a: Tensor, b: Tensor, base: float) -> Tensor:
    out = torch.addcmul(b, a, x)
    out = out.mul_(gamma) if out.size(0) >= gamma.size(0) else out * gamma
    return out.add_(x, alpha=base) if base else out


@torch.library.custom_op("graphrelu::piecewise_max", mutates_args=())
def _piecewise_max(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    replicas = max(x.size(0), gamma.size(0), slopes.size(0))
    y = x.new_empty(replicas, x.size(1), x.size(2))
    for block in _blocks(y):
        x_block = x[:, block].to(gamma.dtype)
        segments = (
            _segment(x_block, *_factors(gamma, slopes, intercepts, k, batch, block), base[k])
            for k in range(len(base))
        )
        out = next(segments)
        for segment in segments:
            torch.maximum(out, segment, out=out)
        y[:, block] = out
    return y


@_piecewise_max.register_fake
def _(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    replicas = max(x.size(0), gamma.size(0), slopes.size(0))
    return x.new_empty(replicas, x.size(1), x.size(2))


@torch.library.custom_op("graphrelu::piecewise_max_backward", mutates_args=())
def _piecewise_max_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, gamma, slopes and intercepts."""
    replicas = grad.size(0)
    grad_x = torch.empty_like(grad)
    grad_gamma = gamma.new_zeros(replicas, *gamma.shape[1:])
    grad_slopes = slopes.new_zeros(replicas, *slopes.shape[1:])
    grad_intercepts = torch.zeros_like(grad_slopes)
    with torch.autocast(grad.device.type, enabled=False):
        for block in _blocks(grad):
            x_block, grad_block = x[:, block].to(gamma.dtype), grad[:, block].to(gamma.dtype)
            factors = [
                _factors(gamma, slopes, intercepts, k, batch, block) for k in range(len(base))
            ]
            best = _segment(x_block, *factors[0], base[0])
            # The part of the gradient that each segment receives: where a later one is larger, it
            # takes over; a tie stays with the earlier.
            parts = [grad_block]
            takes_over = torch.empty_like(best)
            for k in range(1, len(base)):
                segment = _segment(x_block, *factors[k], base[k])
                torch.gt(segment, best, out=takes_over)
                parts = [torch.addcmul(part, part, takes_over, value=-1.0) for part in parts]
                parts.append(grad_block * takes_over)
                torch.maximum(best, segment, out=best)
            grad_x_block = torch.zeros_like(grad_block)
            for k, (part, (weight, a, b)) in enumerate(zip(parts, factors, strict=True)):
                # d y / d x, on the nodes where segment k was chosen
                slope = torch.mul(weight, a).add_(base[k])
                grad_x_block.addcmul_(slope, part)
                part_x = part * x_block
                j = min(k, gamma.size(2) - 1)
                grad_gamma[:, block, j] += _dot(part_x, a) + _dot(part, b)
                _accumulate(grad_slopes[:, :, k], weight, part_x, batch, block)
                _accumulate(grad_intercepts[:, :, k], weight, part, batch, block)
            grad_x[:, block] = grad_x_block
    return grad_x, grad_gamma, grad_slopes, grad_intercepts


def _dot(values: Tensor, rows: Tensor) -> Tensor:
    """The inner product over channels, `[R, n]`."""
    if rows.size(1) == 1:
        return (values @ rows.transpose(1, 2)).squeeze(2)
    return (values * rows).sum(dim=2)


def _accumulate(
    out: Tensor, weight: Tensor, values: Tensor, batch: Tensor | None, block: slice
) -> None:
    """Adds the weighted sum over a block's nodes to each graph's row of `out` `[R, B, C]`."""
    if batch is None:
        out += weight.transpose(1, 2) @ values
    else:
        out.index_add_(1, batch[block], weight * values)


@_piecewise_max_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    replicas = grad.size(0)
    grad_slopes = slopes.new_empty(replicas, *slopes.shape[1:])
    return (
        torch.empty_like(grad),
        gamma.new_empty(replicas, *gamma.shape[1:]),
        grad_slopes,
        torch.empty_like(grad_slopes),
    )


def _fold_replicas(op: Callable[..., Any], num_tensors: int) -> Callable[..., Any]:
    """The vmap rule of both operators: the mapped dimension joins the replicas."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        tensors, rest, dims = args[:num_tensors], args[num_tensors:], in_dims[:num_tensors]
        if in_dims[-1] is not None:
            raise NotImplementedError("vmap over batch is not supported.")
        replicas = max(
            tensor.size(0) if dim is None else tensor.movedim(dim, 0).size(1)
            for tensor, dim in zip(tensors, dims, strict=True)
        )
        folded = []
        for tensor, dim in zip(tensors, dims, strict=True):
            if dim is None and tensor.size(0) == 1:
                folded.append(tensor)  # broadcasts inside
                continue
            tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
            tensor = tensor.expand(info.batch_size, replicas, *tensor.shape[2:])
            folded.append(tensor.flatten(0, 1))
        outs = op(*folded, *rest)

        def unfold(out: Tensor) -> Tensor:
            return out.unflatten(0, (info.batch_size, replicas))

        if isinstance(outs, Tensor):
            return unfold(outs), 0
        return tuple(map(unfold, outs)), (0,) * len(outs)

    return rule


_piecewise_max.register_vmap(_fold_replicas(_piecewise_max, 4))
_piecewise_max_backward.register_vmap(_fold_replicas(_piecewise_max_backward, 5))


class _PiecewiseMax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        gamma: Tensor,
        slopes: Tensor,
        intercepts: Tensor,
        base: tuple[float, ...],
        batch: Tensor | None,
    ) -> Tensor:
        factors = (t.unsqueeze(0) for t in (x, gamma, slopes, intercepts))
        return _piecewise_max(*factors, base, batch).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *factors, base, batch = inputs
        ctx.save_for_backward(*factors, batch)
        ctx.base = base

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *factors, batch = ctx.saved_tensors
        grads = _PiecewiseMaxBackward.apply(grad, *factors, ctx.base, batch)
        return *grads, None, None


class _PiecewiseMaxBackward(torch.autograd.Function):
    """A function of its own, so that second derivatives exist (by the reference)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        x: Tensor,
        gamma: Tensor,
        slopes: Tensor,
        intercepts: Tensor,
        base: tuple[float, ...],
        batch: Tensor | None,
    ) -> tuple[Tensor, ...]:
        tensors = (t.unsqueeze(0) for t in (grad, x, gamma, slopes, intercepts))
        return tuple(t.squeeze(0) for t in _piecewise_max_backward(*tensors, base, batch))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, base, batch = inputs
        ctx.save_for_backward(*tensors, batch)
        ctx.base = base

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, batch = ctx.saved_tensors

        def first_order(grad: Tensor, *factors: Tensor) -> tuple[Tensor, ...]:
            def forward(x: Tensor, gamma: Tensor, slopes: Tensor, intercepts: Tensor) -> Tensor:
                alpha, beta = functional.coefficients(gamma, slopes, intercepts, ctx.base, batch)
                return functional.piecewise_max(x, alpha, beta)

            return torch.func.vjp(forward, *factors)[1](grad)

        return *torch.func.vjp(first_order, *tensors)[1](grads), None, None


def piecewise_max(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: tuple[float, ...],
    batch: Tensor | None = None,
) -> Tensor:
    """:func:`functional.coefficients` and :func:`functional.piecewise_max` in one.

    Args:
        x: `[N, C]`.
        gamma: `[N, 1]`, or `[N, K]` with a weight for each segment; its type is computed in.
        slopes: `[B, K, C]`.
        intercepts: `[B, K, C]`.
        base: The `K` base slopes.
        batch: `[N]`, the graph of each node; none where `B` is one.
    """
    out: Tensor = _PiecewiseMax.apply(x, gamma, slopes, intercepts, base, batch)
    return out


class _ProjectAndSum(torch.autograd.Function):
    """Its gradient of x is one product of rank H + 1 instead of two large terms and their sum."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
        return x @ weight.t(), mass.unsqueeze(0) @ x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_projection: Tensor, grad_sum: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mass = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            left = torch.cat([grad_projection, mass.unsqueeze(1)], dim=1)
            grad_x = left @ torch.cat([weight, grad_sum])
            grad_mass = x @ grad_sum.squeeze(0) if ctx.needs_input_grad[2] else None
            return grad_x, grad_projection.t() @ x, grad_mass


def project_and_sum(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[N, H]` and the sum of `x` over its nodes, weighted by `mass`, `[1, C]`."""
    out: tuple[Tensor, Tensor] = _ProjectAndSum.apply(x, weight, mass)
    return out
