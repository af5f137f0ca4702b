"""Project on a GPU: from the features to the node logits, and to the mean of the graph."""

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


def _outputs(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    logits = weight.new_empty(*x.shape[:-1], weight.size(-2))
    return logits, weight.new_empty(*x.shape[:-2], 1, x.size(-1))


_INPUTS = "Tensor x, Tensor weight, Tensor mass"
_forward = custom_operator(
    "project",
    f"({_INPUTS}) -> (Tensor, Tensor)",
    launcher("project", "forward"),
    _outputs,
)
_backward = custom_operator(
    "project_backward",
    f"({_INPUTS}, Tensor grad_logits, Tensor grad_mean) -> (Tensor, Tensor)",
    launcher("project", "backward"),
    lambda x, weight, *rest: (torch.empty_like(x), weight.new_empty(weight.shape)),
)


@with_signature
class _Project(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
        return _forward(x, weight, mass)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_logits: Tensor, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        inputs, grads = ctx.saved_tensors, (grad_logits, grad_mean)
        if torch.is_grad_enabled() or ctx.needs_input_grad[2]:  # the mass, of learned edge weights
            return differentiated(functional.project, inputs, grads)
        return *_backward(*inputs, *grads), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return all_at_once(_Project.apply, info, in_dims, *args)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> tuple[Tensor, Tensor]:
    """:func:`graphrelu.functional.project`; for one graph and one output, on a GPU in one pass, and
    its gradient in another."""
    if batch is not None or weight.size(-2) > 1 or not uses_triton(x):
        return functional.project(x, weight, mass, batch, batch_size)
    return _Project.apply(x, weight, mass)
