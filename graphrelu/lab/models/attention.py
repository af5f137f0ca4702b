"""Attention of all heads, and of all models of a :func:`torch.func.vmap`, at once on a GPU.

An entry's weights, and a node's features, lie beside each other for all heads and are gathered
together, where :mod:`graphrelu.lab.models.sparse` would take a matrix for each head.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphrelu.lab.models import attention_ops as ops
from graphrelu.lab.models.sparse import SparseMatrix


class _FirstOrder(torch.autograd.Function):
    """An operator of a backward pass: it has no derivative of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(op: Callable[..., Any], *args: Any) -> Any:
        return op(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("Second derivatives of attention are not implemented.")


class _WeightedSum(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, x: Tensor, row: Tensor, matrix: SparseMatrix) -> Tensor:
        rowptr, col = matrix.pattern.rowptr, matrix.pattern.col
        return ops.weighted_sum(weight.unsqueeze(0), x.unsqueeze(0), rowptr, col, None).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.matrix = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, row = ctx.saved_tensors
        matrix, grad = ctx.matrix, grad.unsqueeze(0)
        by_col = matrix.pattern_t.rowptr, matrix.pattern_t.col, matrix.order
        grad_x = _FirstOrder.apply(ops.weighted_sum, weight.unsqueeze(0), grad, *by_col)
        places = row, matrix.pattern.col
        grad_weight = _FirstOrder.apply(ops.entry_products, grad, x.unsqueeze(0), *places)
        return grad_weight.squeeze(0), grad_x.squeeze(0), None, None


class _EdgeSoftmax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(source: Tensor, target: Tensor, matrix: SparseMatrix, slope: float) -> Tensor:
        rowptr, col = matrix.pattern.rowptr, matrix.pattern.col
        scores = source.unsqueeze(0), target.unsqueeze(0)
        return ops.edge_softmax(*scores, rowptr, col, slope).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        source, target, ctx.matrix, ctx.slope = inputs
        ctx.save_for_backward(output, source, target)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        matrix = ctx.matrix
        tensors = (t.unsqueeze(0) for t in (grad, *ctx.saved_tensors))
        pattern = matrix.pattern.rowptr, matrix.pattern.col
        grad_sum, grad_target = _FirstOrder.apply(
            ops.edge_softmax_backward, *tensors, *pattern, ctx.slope
        )
        by_col = matrix.pattern_t.rowptr, matrix.pattern_t.col, matrix.order
        grad_source = _FirstOrder.apply(ops.weighted_sum, grad_sum, None, *by_col)
        return grad_source.squeeze(3).squeeze(0), grad_target.squeeze(0), None, None


def weighted_sum(weight: Tensor, x: Tensor, row: Tensor, matrix: SparseMatrix) -> Tensor:
    """For each head the product of a matrix of that head's weights with its features.

    Args:
        weight: `[E, H]`, in the order of `matrix`.
        x: `[N, H, C]`.
        row: `[E]`, the row of each entry.
        matrix: Whose entries the weights belong to; its own values are not used.
    """
    out: Tensor = _WeightedSum.apply(weight, x, row, matrix)
    return out


def edge_softmax(source: Tensor, target: Tensor, matrix: SparseMatrix, slope: float) -> Tensor:
    """The weights `[E, H]` of GAT: the softmax, over the entries of a row, of the leaky ReLU.

    Args:
        source: `[N, H]`, the part of a score that belongs to the entry's column.
        target: `[N, H]`, that of its row.
        matrix: Whose entries are weighted; its own values are not used.
        slope: The leaky ReLU's negative slope.
    """
    out: Tensor = _EdgeSoftmax.apply(source, target, matrix, slope)
    return out
