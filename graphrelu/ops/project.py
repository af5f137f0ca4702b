"""Project on a GPU: from the features to the node logits, and to the mean of each graph."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.ops import differentiated, map_by_loop, stacked, uses_triton

_INPUTS = "Tensor x, Tensor weight, Tensor mass, Tensor? batch"
torch.library.define("graphrelu::project", f"({_INPUTS}, SymInt batch_size) -> (Tensor, Tensor)")
torch.library.define(
    "graphrelu::project_backward",
    f"({_INPUTS}, Tensor grad_logits, Tensor grad_mean) -> (Tensor, Tensor)",
)


@torch.library.impl("graphrelu::project", "default")
def _project(*inputs: Any) -> tuple[Tensor, Tensor]:
    from graphrelu.ops.triton import project as kernels

    return kernels.forward(*inputs)


@torch.library.impl("graphrelu::project_backward", "default")
def _project_backward(*inputs: Any) -> tuple[Tensor, Tensor]:
    from graphrelu.ops.triton import project as kernels

    return kernels.backward(*inputs)


def _project_shapes(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    logits = weight.new_empty(*x.shape[:-1], weight.size(-2))
    return logits, weight.new_empty(*x.shape[:-2], batch_size, x.size(-1))


def _project_backward_shapes(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), weight.new_empty(weight.shape)


torch.library.register_fake("graphrelu::project", _project_shapes)
torch.library.register_fake("graphrelu::project_backward", _project_backward_shapes)
_project_operator = torch.ops.graphrelu.project.default
_project_backward_operator = torch.ops.graphrelu.project_backward.default
map_by_loop(_project_backward_operator)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
    ) -> tuple[Tensor, Tensor]:
        return _project_operator(x, weight, mass, batch, batch_size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.batch_size = inputs[4]

    @staticmethod
    def backward(ctx: Any, grad_logits: Tensor, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mass, batch = ctx.saved_tensors
        if torch.is_grad_enabled() or ctx.needs_input_grad[2]:  # the mass, of learned edge weights
            equations = partial(functional.project, batch=batch, batch_size=ctx.batch_size)
            grads = differentiated(equations, (x, weight, mass), (grad_logits, grad_mean))
            return *grads, None, None
        grads = _project_backward_operator(x, weight, mass, batch, grad_logits, grad_mean)
        return *grads, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        all_args, dims, own_dims = list(args), in_dims[:4], (2, 2, 1, 1)
        # A mass or batch that all replicas share stays as it is.
        places = [
            i
            for i, (arg, dim) in enumerate(zip(args[:4], dims, strict=True))
            if i < 2 or not (arg is None or (dim is None and arg.dim() == 1))
        ]
        mapped = ([part[i] for i in places] for part in (dims, args, own_dims))
        tensors, sizes = stacked(info.batch_size, *mapped)
        for i, tensor in zip(places, tensors, strict=True):
            all_args[i] = tensor
        outs = _Project.apply(*all_args)
        return tuple(out.unflatten(0, sizes) for out in outs), (0, 0)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> tuple[Tensor, Tensor]:
    """:func:`graphrelu.functional.project`; for one output, on a GPU in one pass, and its gradient
    in another."""
    if weight.size(-2) > 1 or not uses_triton(x):
        return functional.project(x, weight, mass, batch, batch_size)
    return _Project.apply(x, weight, mass, batch, batch_size)
