"""Attention over a graph's edges in Triton; :mod:`graphrelu.lab.models.attention` calls it.

A program has one row of the matrix and walks over its entries in blocks, so that sums have a fixed
order; inner products at the entries need no sums over rows and are spread over programs evenly.
Computed in float32, or in float64 where the features are.

Layout: `x`, `left` and `right [R, N, H, C]`, `source` and `target [R, N, H]`, and per entry
`weight`, `alpha` and `grad [R, E, H]`: all heads of a node or of an entry lie beside each other.
"""

import triton
import triton.language as tl


@triton.jit
def _wide(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def weighted_sum_kernel(
    weight_ptr,
    x_ptr,
    rowptr_ptr,
    col_ptr,
    order_ptr,
    out_ptr,
    num_rows,
    num_cols,
    num_entries,
    H: tl.constexpr,
    C: tl.constexpr,
    GATHERS: tl.constexpr,
    ORDERED: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLS: tl.constexpr,
):
    """The sum of a row's weights times the features of its columns; or of the weights alone."""
    row, replica = tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, end = tl.load(rowptr_ptr + row), tl.load(rowptr_ptr + row + 1)
    weight_ptr += replica * num_entries * H
    x_ptr += replica * num_cols * H * C
    out_ptr += (replica * num_rows + row) * H * C
    channels = tl.program_id(2).to(tl.int64) * COLS + tl.arange(0, COLS)
    in_channels = channels < H * C
    wide: tl.constexpr = tl.float64 if weight_ptr.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros([ENTRIES, COLS], dtype=wide)
    for first in range(start, end, ENTRIES):
        entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
        in_row = entries < end
        mask = in_row[:, None] & in_channels[None, :]
        places = entries
        if ORDERED:
            places = tl.load(order_ptr + entries, mask=in_row, other=0)
        at = places[:, None] * H + (channels // C)[None, :]
        term = _wide(tl.load(weight_ptr + at, mask=mask, other=0.0))
        if GATHERS:
            col = tl.load(col_ptr + entries, mask=in_row, other=0).to(tl.int64)
            at = col[:, None] * (H * C) + channels[None, :]
            term *= _wide(tl.load(x_ptr + at, mask=mask, other=0.0))
        total += term
    out = tl.sum(total, axis=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + channels, out, mask=in_channels)


@triton.jit
def entry_products_kernel(
    left_ptr,
    right_ptr,
    row_ptr,
    col_ptr,
    out_ptr,
    num_rows,
    num_cols,
    num_entries,
    H: tl.constexpr,
    C: tl.constexpr,
    PAIRS: tl.constexpr,
    COLS: tl.constexpr,
):
    """For each entry and head, the inner product of its row of `left` and its column's `right`."""
    replica = tl.program_id(1).to(tl.int64)
    left_ptr += replica * num_rows * H * C
    right_ptr += replica * num_cols * H * C
    pairs = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    entries, heads = pairs // H, pairs % H
    in_pairs = entries < num_entries
    row = tl.load(row_ptr + entries, mask=in_pairs, other=0).to(tl.int64)
    col = tl.load(col_ptr + entries, mask=in_pairs, other=0).to(tl.int64)
    wide: tl.constexpr = tl.float64 if left_ptr.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros([PAIRS, COLS], dtype=wide)
    for chunk in tl.static_range(0, C, COLS):
        channels = chunk + tl.arange(0, COLS)
        mask = in_pairs[:, None] & (channels < C)[None, :]
        left_at = ((row * H + heads) * C)[:, None] + channels[None, :]
        right_at = ((col * H + heads) * C)[:, None] + channels[None, :]
        left = _wide(tl.load(left_ptr + left_at, mask=mask, other=0.0))
        total += left * _wide(tl.load(right_ptr + right_at, mask=mask, other=0.0))
    out = tl.sum(total, axis=1).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + replica * num_entries * H + pairs, out, mask=in_pairs)


@triton.jit
def _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H: tl.constexpr):
    col = tl.load(col_ptr + entries, mask=in_row, other=0).to(tl.int64)
    at = col[:, None] * H + heads[None, :]
    return _wide(tl.load(source_ptr + at, mask=mask, other=0.0)) + target[None, :]


@triton.jit
def edge_softmax_kernel(
    source_ptr,
    target_ptr,
    rowptr_ptr,
    col_ptr,
    alpha_ptr,
    num_rows,
    num_cols,
    num_entries,
    SLOPE: tl.constexpr,
    H: tl.constexpr,
    HEADS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """The softmax over a row's entries of the leaky ReLU of `source[col] + target[row]`."""
    row, replica = tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, end = tl.load(rowptr_ptr + row), tl.load(rowptr_ptr + row + 1)
    source_ptr += replica * num_cols * H
    alpha_ptr += replica * num_entries * H
    heads = tl.arange(0, HEADS)
    in_heads = heads < H
    target_at = target_ptr + (replica * num_rows + row) * H + heads
    target = _wide(tl.load(target_at, mask=in_heads, other=0.0))
    largest = tl.full([HEADS], float("-inf"), dtype=target.dtype)
    total = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
        in_row = entries < end
        mask = in_row[:, None] & in_heads[None, :]
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        score = tl.where(score > 0, score, score * SLOPE)
        score = tl.where(in_row[:, None], score, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, axis=0))
        total = total * tl.exp(largest - higher)
        total += tl.sum(tl.exp(score - higher[None, :]), axis=0)
        largest = higher
    for first in range(start, end, ENTRIES):
        entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
        in_row = entries < end
        mask = in_row[:, None] & in_heads[None, :]
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        score = tl.where(score > 0, score, score * SLOPE)
        alpha = tl.exp(score - largest[None, :]) / total[None, :]
        at = alpha_ptr + entries[:, None] * H + heads[None, :]
        tl.store(at, alpha.to(alpha_ptr.dtype.element_ty), mask=mask)


@triton.jit
def edge_softmax_backward_kernel(
    grad_ptr,
    alpha_ptr,
    source_ptr,
    target_ptr,
    rowptr_ptr,
    col_ptr,
    grad_sum_ptr,
    grad_target_ptr,
    num_rows,
    num_cols,
    num_entries,
    SLOPE: tl.constexpr,
    H: tl.constexpr,
    HEADS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """The gradient of `source[col] + target[row]` at each entry, and its sums over the rows."""
    row, replica = tl.program_id(0), tl.program_id(1).to(tl.int64)
    start, end = tl.load(rowptr_ptr + row), tl.load(rowptr_ptr + row + 1)
    source_ptr += replica * num_cols * H
    grad_ptr += replica * num_entries * H
    alpha_ptr += replica * num_entries * H
    grad_sum_ptr += replica * num_entries * H
    heads = tl.arange(0, HEADS)
    in_heads = heads < H
    target_at = (replica * num_rows + row) * H + heads
    target = _wide(tl.load(target_ptr + target_at, mask=in_heads, other=0.0))
    inner = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
        mask = (entries < end)[:, None] & in_heads[None, :]
        at = entries[:, None] * H + heads[None, :]
        alpha = _wide(tl.load(alpha_ptr + at, mask=mask, other=0.0))
        inner += tl.sum(alpha * _wide(tl.load(grad_ptr + at, mask=mask, other=0.0)), axis=0)
    total = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
        in_row = entries < end
        mask = in_row[:, None] & in_heads[None, :]
        at = entries[:, None] * H + heads[None, :]
        alpha = _wide(tl.load(alpha_ptr + at, mask=mask, other=0.0))
        grad = _wide(tl.load(grad_ptr + at, mask=mask, other=0.0))
        grad = alpha * (grad - inner[None, :])
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        grad = tl.where(score > 0, grad, grad * SLOPE)
        tl.store(grad_sum_ptr + at, grad.to(grad_sum_ptr.dtype.element_ty), mask=mask)
        total += tl.sum(grad, axis=0)
    total = total.to(grad_target_ptr.dtype.element_ty)
    tl.store(grad_target_ptr + target_at, total, mask=in_heads)
