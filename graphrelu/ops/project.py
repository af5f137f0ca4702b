"""Project on a GPU: from the features to the node logits, and to the mean of each graph."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.ops import all_at_once, custom_operator, differentiated, launcher, uses_triton


def _outputs(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    logits = weight.new_empty(*x.shape[:-1], weight.size(-2))
    return logits, weight.new_empty(*x.shape[:-2], batch_size, x.size(-1))


_INPUTS = "Tensor x, Tensor weight, Tensor mass, Tensor? batch"
_forward = custom_operator(
    "project",
    f"({_INPUTS}, SymInt batch_size) -> (Tensor, Tensor)",
    launcher("project", "forward"),
    _outputs,
)
_backward = custom_operator(
    "project_backward",
    f"({_INPUTS}, Tensor grad_logits, Tensor grad_mean) -> (Tensor, Tensor)",
    launcher("project", "backward"),
    lambda x, weight, *rest: (torch.empty_like(x), weight.new_empty(weight.shape)),
)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
    ) -> tuple[Tensor, Tensor]:
        return _forward(x, weight, mass, batch, batch_size)

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
        grads = _backward(x, weight, mass, batch, grad_logits, grad_mean)
        return *grads, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return all_at_once(_Project.apply, args[3], info, in_dims, *args)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> tuple[Tensor, Tensor]:
    """:func:`graphrelu.functional.project`; for one output, on a GPU in one pass, and its gradient
    in another."""
    if weight.size(-2) > 1 or not uses_triton(x):
        return functional.project(x, weight, mass, batch, batch_size)
    return _Project.apply(x, weight, mass, batch, batch_size)
