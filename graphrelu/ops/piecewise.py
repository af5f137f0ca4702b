r"""Fused twins of :mod:`graphrelu.functional`: the same numbers without large temporaries.

:func:`piecewise_max` applies

.. math::
    y_{nc} = \max_k \{ s_k x_{nc} + \gamma_{nk} (a^k_c x_{nc} + b^k_c) \}

straight from its factors and recomputes the chosen segment in the backward pass: neither the
coefficients `[N, K, C]` nor a mask is ever stored. :mod:`graphrelu.ops.project` is the only other
pass over the features. The custom operators have an implementation for each backend.

The operators carry a leading dimension `R` of independent replicas (1 outside of `vmap`):
`x [R, N, C]`, `gamma [R, N, 1 or K]`, `slopes` and `intercepts [R, B, K, C]`, `batch [N]`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.ops.dispatch import implementation
from graphrelu.ops.eager import with_eager_twin
from graphrelu.ops.products import replicated

# Written out, as torch 2.6 does not read `Sequence` in an annotation.
_FACTORS = "Tensor x, Tensor gamma, Tensor slopes, Tensor intercepts, float[] base, Tensor? batch"


@torch.library.custom_op(
    "graphrelu::piecewise_max", mutates_args=(), schema=f"({_FACTORS}) -> Tensor"
)
def _piecewise_max(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    return implementation(x).piecewise_max(x, gamma, slopes, intercepts, base, batch)


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


@torch.library.custom_op(
    "graphrelu::piecewise_max_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_FACTORS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
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
    return implementation(x).piecewise_max_backward(grad, x, gamma, slopes, intercepts, base, batch)


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
            base, batch = rest
            batch = batch.movedim(in_dims[-1], 0)
            return _fold_into_nodes(op, tensors, dims, base, batch)
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


def _fold_into_nodes(
    op: Callable[..., Any],
    tensors: Sequence[Tensor],
    dims: Sequence[int | None],
    base: Sequence[float],
    batch: Tensor,
) -> tuple[Any, Any]:
    """The vmap rule where `batch` `[V, N]` is mapped, too: the mapped dimension joins the nodes,
    and each of its places has graphs of its own."""
    size = batch.size(0)
    folded = [
        replicated(tensor, dim, size).transpose(0, 1).flatten(1, 2)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
    num_graphs = folded[-1].size(1) // size
    batch = batch + num_graphs * torch.arange(size, device=batch.device).view(-1, 1)
    outs = op(*folded, base, batch.flatten())
    if isinstance(outs, Tensor):
        return outs.unflatten(1, (size, -1)), 1
    return tuple(out.unflatten(1, (size, -1)) for out in outs), (1,) * len(outs)


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
        grads = _piecewise_max_backward_function(grad, *factors, ctx.base, batch)
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


def _piecewise_max_eager(x: Tensor, *rest: Any) -> Tensor:
    *factors, base, batch = rest
    factors = [t.unsqueeze(0) for t in (x, *factors)]
    out: Tensor = implementation(x).piecewise_max(*factors, base, batch)
    return out.squeeze(0)


def _piecewise_max_backward_eager(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *tensors, base, batch = rest
    tensors = [t.unsqueeze(0) for t in (grad, *tensors)]
    grads = implementation(grad).piecewise_max_backward(*tensors, base, batch)
    return tuple(t.squeeze(0) for t in grads)


_piecewise_max_function = with_eager_twin(_PiecewiseMax, _piecewise_max_eager)
_piecewise_max_backward_function = with_eager_twin(
    _PiecewiseMaxBackward, _piecewise_max_backward_eager
)


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
    out: Tensor = _piecewise_max_function(x, gamma, slopes, intercepts, base, batch)
    return out
