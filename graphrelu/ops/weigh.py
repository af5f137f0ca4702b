"""Weigh: from the diffused logits to the weight of each node, for batches on a GPU in one launch.

Elsewhere the equations are as fast: without a batch they take nine launches in both passes, which
cost the host as much as two of Triton's.
"""

from typing import Any

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import Form
from graphrelu.ops import differentiated, has_values, launcher, one_by_one, uses_triton

_run = launcher("weigh", "run")


class _Weigh(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, form: Form, batch: Tensor, batch_size: int) -> Tensor:
        return _run(logits, form, batch, batch_size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        logits, ctx.form, batch, ctx.batch_size = inputs
        ctx.save_for_backward(logits, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, batch = ctx.saved_tensors
        rest = ctx.form, batch, ctx.batch_size
        if torch.is_grad_enabled() or not has_values(grad):
            grads = differentiated(lambda z: functional.weigh(z, *rest), (logits,), grad)
            return *grads, None, None, None
        return _run(logits, *rest, grad), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        return one_by_one(_Weigh.apply, info, in_dims, *args)


def weigh(logits: Tensor, form: Form, batch: Tensor | None = None, batch_size: int = 1) -> Tensor:
    """:func:`graphrelu.functional.weigh`. A compiler makes few launches of the equations."""
    is_usual = form.mode == "calibrated" and logits.size(-1) == 1
    if batch is not None and is_usual and uses_triton(logits) and not torch.compiler.is_compiling():
        return _Weigh.apply(logits, form, batch, batch_size)
    return functional.weigh(logits, form, batch, batch_size)
