r"""The pass over the features from which the parameters of GReLU are computed.

The node MLP's first layer and the sum over the nodes, weighted by :math:`\mathbf{S}^{\top}
\mathbf{1}`, are all that the two blocks need of the features. The operators carry a leading
dimension `R` of replicas, as in :mod:`graphrelu.ops.piecewise`: `x [R, N, C]`, `weight [R, H, C]`,
`mass [N]`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphrelu.ops.dispatch import implementation
from graphrelu.ops.eager import is_transformed, with_eager_twin


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
    """The vmap rule of both operators: the mapped dimension joins the replicas."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Tensor) -> tuple[Any, Any]:
        if in_dims[2] is not None:  # each replica has a graph of its own
            each = [
                op(*(_one(t, dim, i) for t, dim in zip(args, in_dims, strict=True)))
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


def _one(tensor: Tensor, dim: int | None, i: int) -> Tensor:
    return tensor if dim is None else tensor.select(dim, i)


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
        if not is_transformed():
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
