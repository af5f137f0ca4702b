"""Launches the kernels of :mod:`graphrelu.lab.models.attention_kernels`, as operators.

They carry a leading dimension `R` of independent replicas (1 outside of `vmap`).
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from graphrelu.lab.models.attention_kernels import (
    edge_softmax_backward_kernel,
    edge_softmax_kernel,
    entry_products_kernel,
    weighted_sum_kernel,
)
from graphrelu.ops.dispatch import replicated

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
def weighted_sum(
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
    cols = min(triton.next_power_of_2(heads * channels), _MAX_CHANNELS_PER_TILE)
    grid = (num_rows, replicas, triton.cdiv(heads * channels, cols))
    weighted_sum_kernel[grid](
        weight,
        weight if x is None else x.contiguous(),
        rowptr,
        col,
        col if order is None else order,
        out,
        num_rows,
        num_cols,
        num_entries,
        H=heads,
        C=channels,
        GATHERS=x is not None,
        ORDERED=order is not None,
        COLS=cols,
        **_entries(num_entries, num_rows, cols),
    )
    return out


@torch.library.custom_op("graphrelu_lab::entry_products", mutates_args=())
def entry_products(left: Tensor, right: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """`[R, E, H]` from `left [R, rows, H, C]` and `right [R, columns, H, C]`."""
    replicas, num_rows, heads, channels = left.shape
    out = left.new_empty(replicas, col.numel(), heads)
    if out.numel() == 0 or channels == 0:
        return out.zero_()
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS_PER_TILE)
    pairs = _TILE // cols
    entry_products_kernel[(triton.cdiv(col.numel() * heads, pairs), replicas)](
        left.contiguous(),
        right.contiguous(),
        row.contiguous(),
        col,
        out,
        num_rows,
        right.size(1),
        col.numel(),
        H=heads,
        C=channels,
        PAIRS=pairs,
        COLS=cols,
        num_warps=_warps(_TILE),
    )
    return out


@torch.library.custom_op("graphrelu_lab::edge_softmax", mutates_args=())
def edge_softmax(
    source: Tensor, target: Tensor, rowptr: Tensor, col: Tensor, slope: float
) -> Tensor:
    """`[R, E, H]` from `source [R, columns, H]` and `target [R, rows, H]`."""
    replicas, num_rows, heads = target.shape
    alpha = target.new_empty(replicas, col.numel(), heads)
    if alpha.numel() == 0:
        return alpha
    width = triton.next_power_of_2(heads)
    edge_softmax_kernel[(num_rows, replicas)](
        source.contiguous(),
        target.contiguous(),
        rowptr,
        col,
        alpha,
        num_rows,
        source.size(1),
        col.numel(),
        SLOPE=slope,
        H=heads,
        HEADS=width,
        **_entries(col.numel(), num_rows, width),
    )
    return alpha


@torch.library.custom_op("graphrelu_lab::edge_softmax_backward", mutates_args=())
def edge_softmax_backward(
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
    width = triton.next_power_of_2(heads)
    edge_softmax_backward_kernel[(num_rows, replicas)](
        grad.contiguous(),
        alpha.contiguous(),
        source.contiguous(),
        target.contiguous(),
        rowptr,
        col,
        grad_sum,
        grad_target,
        num_rows,
        source.size(1),
        col.numel(),
        SLOPE=slope,
        H=heads,
        HEADS=width,
        **_entries(col.numel(), num_rows, width),
    )
    return grad_sum, grad_target


@weighted_sum.register_fake
def _(
    weight: Tensor, x: Tensor | None, rowptr: Tensor, col: Tensor, order: Tensor | None
) -> Tensor:
    channels = 1 if x is None else x.size(3)
    return weight.new_empty(weight.size(0), rowptr.numel() - 1, weight.size(2), channels)


@entry_products.register_fake
def _(left: Tensor, right: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return left.new_empty(left.size(0), col.numel(), left.size(2))


@edge_softmax.register_fake
def _(source: Tensor, target: Tensor, rowptr: Tensor, col: Tensor, slope: float) -> Tensor:
    return target.new_empty(target.size(0), col.numel(), target.size(2))


@edge_softmax_backward.register_fake
def _(
    grad: Tensor,
    alpha: Tensor,
    source: Tensor,
    target: Tensor,
    rowptr: Tensor,
    col: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor]:
    return alpha.new_empty(alpha.shape), target.new_empty(target.shape)


def _fold_replicas(op: Callable[..., Any], num_tensors: int) -> Callable[..., Any]:
    """The vmap rule of the operators: the mapped dimension joins the replicas."""

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

    return rule


weighted_sum.register_vmap(_fold_replicas(weighted_sum, 2))
entry_products.register_vmap(_fold_replicas(entry_products, 2))
edge_softmax.register_vmap(_fold_replicas(edge_softmax, 2))
edge_softmax_backward.register_vmap(_fold_replicas(edge_softmax_backward, 4))
