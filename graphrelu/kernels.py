r"""Fused twins of :mod:`graphrelu.functional`: the same numbers without large temporaries.

:func:`piecewise_max` applies

.. math::
    y_{nc} = \max_k \{ s_k x_{nc} + \gamma_{nk} (a^k_c x_{nc} + b^k_c) \}

straight from its factors and recomputes the chosen segment in the backward pass: neither the
coefficients `[N, K, C]` nor a mask is ever stored. :func:`project_and_sum` is the only other pass
over the features. Both are custom operators, with an implementation for each backend.

The operators carry a leading dimension `R` of independent replicas (1 outside of `vmap`):
`x [R, N, C]`, `gamma [R, N, 1 or K]`, `slopes` and `intercepts [R, B, K, C]`, `batch [N]`;
`weight [R, H, C]`, `mass [N]`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.backend import implementation
from graphrelu.eager import with_eager_twin


@torch.library.custom_op("graphrelu::piecewise_max", mutates_args=())
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


@torch.library.custom_op("graphrelu::project_and_sum", mutates_args=())
def _project_and_sum(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    return implementation(x).project_and_sum(x, weight, mass)


@_project_and_sum.register_fake
def _(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    replicas, num_nodes, channels = x.shape
    projection = weight.new_empty(replicas, num_nodes, weight.size(1))
    return projection, weight.new_empty(replicas, 1, channels)


@torch.library.custom_op("graphrelu::project_and_sum_backward", mutates_args=())
def _project_and_sum_backward(
    x: Tensor, weight: Tensor, mass: Tensor, grad_projection: Tensor, grad_sum: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and weight."""
    return implementation(x).project_and_sum_backward(x, weight, mass, grad_projection, grad_sum)


@_project_and_sum_backward.register_fake
def _(
    x: Tensor, weight: Tensor, mass: Tensor, grad_projection: Tensor, grad_sum: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _fold_all(op: Callable[..., Any]) -> Callable[..., Any]:
    """The vmap rule of both: as above, but every tensor but `mass` has all replicas."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Tensor) -> tuple[Any, Any]:
        if in_dims[2] is not None:  # each replica has a graph of its own
            each = [
                op(*(t if dim is None else t.select(dim, i) for t, dim in zip(args, in_dims)))  # noqa: B905
                for i in range(info.batch_size)
            ]
            return tuple(map(torch.stack, zip(*each, strict=True))), (0,) * len(each[0])
        folded = []
        for position, (tensor, dim) in enumerate(zip(args, in_dims, strict=True)):
            if position != 2:
                tensor = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
                tensor = tensor.expand(info.batch_size, *tensor.shape[1:]).flatten(0, 1)
            folded.append(tensor)
        outs = op(*folded)
        return tuple(out.unflatten(0, (info.batch_size, -1)) for out in outs), (0,) * len(outs)

    return rule


_project_and_sum.register_vmap(_fold_all(_project_and_sum))
_project_and_sum_backward.register_vmap(_fold_all(_project_and_sum_backward))


class _ProjectAndSum(torch.autograd.Function):
    """Also hands `x` on: what the activation sends back for it and the gradient of this pass are
    then added in one pass, in place, instead of being two tensors and their sum."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projection, total = _project_and_sum(x.unsqueeze(0), weight.unsqueeze(0), mass)
        return projection.squeeze(0), total.squeeze(0), x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(
        ctx: Any, grad_projection: Tensor, grad_sum: Tensor, grad_x: Tensor
    ) -> tuple[Tensor | None, ...]:
        x, weight, mass = ctx.saved_tensors
        if ctx.needs_input_grad[2] or torch.is_grad_enabled():
            # Learned edge weights, or a second derivative: in terms that autograd can follow.
            features = x.to(weight.dtype)
            left = torch.cat([grad_projection, mass.unsqueeze(1)], dim=1)
            own = left @ torch.cat([weight, grad_sum])
            grad_mass = features @ grad_sum.squeeze(0)
            return grad_x + own.to(x.dtype), grad_projection.t() @ features, grad_mass
        tensors = (t.unsqueeze(0) for t in (x, weight))
        grads = (t.unsqueeze(0) for t in (grad_projection, grad_sum))
        if not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is None:
            # Nobody else holds this gradient: it comes from `piecewise_max`, which made it.
            own, grad_weight = implementation(x).project_and_sum_backward(
                *tensors, mass, *grads, grad_x.unsqueeze(0)
            )
            return own.squeeze(0), grad_weight.squeeze(0), None
        own, grad_weight = _project_and_sum_backward(*tensors, mass, *grads)
        return grad_x + own.squeeze(0), grad_weight.squeeze(0), None


def _project_and_sum_eager(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, ...]:
    tensors = (t.unsqueeze(0) for t in (x, weight))
    projection, total = implementation(x).project_and_sum(*tensors, mass)
    return projection.squeeze(0), total.squeeze(0), x.view_as(x)


_project_and_sum_function = with_eager_twin(_ProjectAndSum, _project_and_sum_eager)


def project_and_sum(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`x @ weight.T` `[N, H]`, the sum of `x` over its nodes weighted by `mass` `[1, C]`, and `x`,
    of which this must be the only use but one: the activation's."""
    out: tuple[Tensor, Tensor, Tensor] = _project_and_sum_function(x, weight, mass)
    return out
