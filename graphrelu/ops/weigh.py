"""Weigh: from the diffused logits to the weight of each node, on a GPU in one launch.

Anywhere else the equations themselves are fast enough: :func:`graphrelu.functional.weigh`.
"""

from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import Form, has_values
from graphrelu.ops import differentiated, replicated, uses_triton


class _Weigh(torch.autograd.Function):
    """Of `logits [N, H]`: the replicas of a vmap are joined, as graphs or as columns."""

    @staticmethod
    def forward(logits: Tensor, form: Form, batch: Tensor | None, batch_size: int) -> Tensor:
        from graphrelu.ops.triton import weigh as kernels

        return kernels.forward(logits, form, batch, batch_size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, ctx.form, batch, ctx.batch_size = inputs
        ctx.save_for_backward(logits, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from graphrelu.ops.triton import weigh as kernels

        logits, batch = ctx.saved_tensors
        if torch.is_grad_enabled() or not has_values(grad):

            def equations(logits: Tensor) -> Tensor:
                return functional.weigh(logits, ctx.form, batch, ctx.batch_size)

            return *differentiated(equations, (logits,), grad), None, None, None
        return kernels.backward(grad, logits, ctx.form, batch, ctx.batch_size), None, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        logits: Tensor,
        form: Form,
        batch: Tensor | None,
        batch_size: int,
    ) -> tuple[Tensor, int]:
        logits = replicated(logits, in_dims[0], info.batch_size)
        if batch is None or in_dims[2] is None:
            columns = logits.movedim(0, 1)  # [N, R, H]
            out = _Weigh.apply(columns.flatten(1), form, batch, batch_size)
            return out.view(columns.shape), 1
        batch, total = functional.joined(batch.movedim(in_dims[2], 0), batch_size)
        return _Weigh.apply(logits.flatten(0, 1), form, batch, total).view(logits.shape), 0


def weigh(logits: Tensor, form: Form, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    """:func:`graphrelu.functional.weigh`. A compiler makes few launches of the equations itself,
    and a very long column is too much for one program."""
    too_long = batch is None and logits.size(0) > functional.LONG_COLUMN
    if too_long or torch.compiler.is_compiling() or not uses_triton(logits):
        return functional.weigh(logits, form, batch, batch_size)
    out: Tensor = _Weigh.apply(logits, form, batch, batch_size)
    return out
