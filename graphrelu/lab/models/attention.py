"""Attention of all heads, and of all models of a :func:`torch.func.vmap`, at once on a GPU.

An entry's weights, and a node's features, lie beside each other for all heads and are gathered
together, where :mod:`graphrelu.lab.models.sparse` would take a matrix for each head. The operators
launch the kernels of :mod:`graphrelu.lab.models.kernels` and carry a leading dimension `R` of
independent replicas (1 outside of `vmap`).
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from graphrelu.lab.models import kernels
from graphrelu.lab.models.sparse import SparseMatrix
from graphrelu.ops import replicated

# Elements of a program's tile: sixteen for each thread of at most four warps.
_TILE = 2048
_MAX_CHANNELS_PER_TILE = 128


def _entries(num_entries: int, num_rows: int, width: int) -> dict[str, int]:
    """How many entries a program takes at once: as many as a row has on average, rounded up."""
    average = triton.next_power_of_2(triton.cdiv(num_entries, num_rows))
    entries = max(1, min(average, _TILE // width))
    return {"ENTRIES": entries, "num_warps": _warps(entries * width)}


def _warps(tile: int) -> int:
    return max(1, min(4, tile // 512))


@torch.library.custom_op("graphrelu_lab::weighted_sum", mutates_args=())
def weighted_sum_op(
    weight: Tensor, x: Tensor | None, rowptr: Tensor, col: Tensor, order: Tensor | None
) -> Tensor:
    """`[R, rows, H, C]` from `weight [R, E, H]` and `x [R, columns, H, C]`, else of ones, `C` one.

    The weight of an entry is at its place in `order`.
    """
    replicas, num_entries, heads = weight.shape
    num_rows = rowptr.numel() - 1
    num_cols, channels = (0, 1) if x is None else (x.size(1), x.size(3))
    out = weight.new_empty(replicas, num_rows, heads, channels)
    if out.numel() == 0 or num_entries == 0:
        return out.zero_()
    weight = weight.contiguous()
    features, places = weight if x is None else x.contiguous(), col if order is None else order
    cols = min(triton.next_power_of_2(heads * channels), _MAX_CHANNELS_PER_TILE)
    options = {"H": heads, "C": channels, "COLS": cols, **_entries(num_entries, num_rows, cols)}
    options |= {"GATHERS": x is not None, "ORDERED": order is not None}
    kernels.weighted_sum_kernel[num_rows, replicas, triton.cdiv(heads * channels, cols)](
        weight, features, rowptr, col, places, out, num_rows, num_cols, num_entries, **options
    )
    return out


@torch.library.custom_op("graphrelu_lab::entry_products", mutates_args=())
def entry_products_op(left: Tensor, right: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """`[R, E, H]` from `left [R, rows, H, C]` and `right [R, columns, H, C]`."""
    replicas, num_rows, heads, channels = left.shape
    out = left.new_empty(replicas, col.numel(), heads)
    if out.numel() == 0 or channels == 0:
        return out.zero_()
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS_PER_TILE)
    pairs = _TILE // cols
    options = {"H": heads, "C": channels, "PAIRS": pairs, "COLS": cols, "num_warps": _warps(_TILE)}
    kernels.entry_products_kernel[triton.cdiv(col.numel() * heads, pairs), replicas](
        *(left.contiguous(), right.contiguous(), row.contiguous(), col, out),
        *(num_rows, right.size(1), col.numel()),
        **options,
    )
    return out


def _softmax_options(col: Tensor, num_rows: int, heads: int, slope: float) -> dict[str, Any]:
    width = triton.next_power_of_2(heads)
    sizes = {"SLOPE": slope, "H": heads, "HEADS": width}
    return {**sizes, **_entries(col.numel(), num_rows, width)}


@torch.library.custom_op("graphrelu_lab::edge_softmax", mutates_args=())
def edge_softmax_op(
    source: Tensor, target: Tensor, rowptr: Tensor, col: Tensor, slope: float
) -> Tensor:
    """`[R, E, H]` from `source [R, columns, H]` and `target [R, rows, H]`."""
    replicas, num_rows, heads = target.shape
    alpha = target.new_empty(replicas, col.numel(), heads)
    if alpha.numel() == 0:
        return alpha
    kernels.edge_softmax_kernel[num_rows, replicas](
        *(source.contiguous(), target.contiguous(), rowptr, col, alpha),
        *(num_rows, source.size(1), col.numel()),
        **_softmax_options(col, num_rows, heads, slope),
    )
    return alpha


@torch.library.custom_op("graphrelu_lab::edge_softmax_backward", mutates_args=())
def edge_softmax_backward_op(
    grad: Tensor,
    alpha: Tensor,
    source: Tensor,
    target: Tensor,
    rowptr: Tensor,
    col: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of the sums at the entries, `[R, E, H]`, and of the target."""
    replicas, num_rows, heads = target.shape
    grad_sum, grad_target = alpha.new_empty(alpha.shape), target.new_empty(target.shape)
    if alpha.numel() == 0:
        return grad_sum, grad_target.zero_()
    tensors = (t.contiguous() for t in (grad, alpha, source, target))
    kernels.edge_softmax_backward_kernel[num_rows, replicas](
        *(*tensors, rowptr, col, grad_sum, grad_target),
        *(num_rows, source.size(1), col.numel()),
        **_softmax_options(col, num_rows, heads, slope),
    )
    return grad_sum, grad_target


@weighted_sum_op.register_fake
def _(weight: Tensor, x: Tensor | None, rowptr: Tensor, *rest: Any) -> Tensor:
    channels = 1 if x is None else x.size(3)
    return weight.new_empty(weight.size(0), rowptr.numel() - 1, weight.size(2), channels)


@entry_products_op.register_fake
@edge_softmax_op.register_fake
def _(left: Tensor, right: Tensor, places: Tensor, col: Tensor, *rest: Any) -> Tensor:
    return left.new_empty(left.size(0), col.numel(), left.size(2))


@edge_softmax_backward_op.register_fake
def _(grad: Tensor, alpha: Tensor, source: Tensor, target: Tensor, *rest: Any) -> Any:
    return alpha.new_empty(alpha.shape), target.new_empty(target.shape)


def _fold_replicas(op: Any, num_tensors: int) -> None:
    """Under vmap the mapped dimension of the first tensors joins the replicas."""

    @op.register_vmap  # type: ignore[untyped-decorator, unused-ignore]
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size = info.batch_size
        folded = [
            None if tensor is None else replicated(tensor, dim, size).flatten(0, 1)
            for tensor, dim in zip(args[:num_tensors], in_dims, strict=False)
        ]
        outs = op(*folded, *args[num_tensors:])
        if isinstance(outs, Tensor):
            return outs.unflatten(0, (size, -1)), 0
        return tuple(out.unflatten(0, (size, -1)) for out in outs), (0,) * len(outs)


_fold_replicas(weighted_sum_op, 2)
_fold_replicas(entry_products_op, 2)
_fold_replicas(edge_softmax_op, 2)
_fold_replicas(edge_softmax_backward_op, 4)


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
        return weighted_sum_op(weight.unsqueeze(0), x.unsqueeze(0), rowptr, col, None).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.matrix = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, x, row = ctx.saved_tensors
        matrix, grad = ctx.matrix, grad.unsqueeze(0)
        by_col = matrix.pattern_t.rowptr, matrix.pattern_t.col, matrix.order
        grad_x = _FirstOrder.apply(weighted_sum_op, weight.unsqueeze(0), grad, *by_col)
        places = row, matrix.pattern.col
        grad_weight = _FirstOrder.apply(entry_products_op, grad, x.unsqueeze(0), *places)
        return grad_weight.squeeze(0), grad_x.squeeze(0), None, None


class _EdgeSoftmax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(source: Tensor, target: Tensor, matrix: SparseMatrix, slope: float) -> Tensor:
        rowptr, col = matrix.pattern.rowptr, matrix.pattern.col
        scores = source.unsqueeze(0), target.unsqueeze(0)
        return edge_softmax_op(*scores, rowptr, col, slope).squeeze(0)

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
            edge_softmax_backward_op, *tensors, *pattern, ctx.slope
        )
        by_col = matrix.pattern_t.rowptr, matrix.pattern_t.col, matrix.order
        grad_source = _FirstOrder.apply(weighted_sum_op, grad_sum, None, *by_col)
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
