"""Triton kernels: attention over a graph's edges, and seeded dropout.

:mod:`graphrelu.lab.models.attention` and :mod:`graphrelu.lab.models.dropout` call them. Computed in
float32, or in float64 where the features are.

Attention: a program has one row of the matrix and walks over its entries in blocks, so that sums
have a fixed order; inner products at the entries need no sums over rows and are spread over
programs evenly. Layout: `x`, `left` and `right [R, N, H, C]`, `source` and `target [R, N, H]`, and
per entry `weight`, `alpha` and `grad [R, E, H]`: all heads of a node or of an entry lie beside each
other.
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
def _block(first, end, heads, H: tl.constexpr, ENTRIES: tl.constexpr):
    """Some entries of a row: their numbers, which belong to the row, places and mask."""
    entries = (first + tl.arange(0, ENTRIES)).to(tl.int64)
    in_row = entries < end
    at = entries[:, None] * H + heads[None, :]
    return entries, in_row, at, in_row[:, None] & (heads < H)[None, :]


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
    target_at = target_ptr + (replica * num_rows + row) * H + heads
    target = _wide(tl.load(target_at, mask=heads < H, other=0.0))
    largest = tl.full([HEADS], float("-inf"), dtype=target.dtype)
    total = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries, in_row, at, mask = _block(first, end, heads, H, ENTRIES)
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        score = tl.where(score > 0, score, score * SLOPE)
        score = tl.where(in_row[:, None], score, float("-inf"))
        higher = tl.maximum(largest, tl.max(score, axis=0))
        total = total * tl.exp(largest - higher)
        total += tl.sum(tl.exp(score - higher[None, :]), axis=0)
        largest = higher
    for first in range(start, end, ENTRIES):
        entries, in_row, at, mask = _block(first, end, heads, H, ENTRIES)
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        score = tl.where(score > 0, score, score * SLOPE)
        alpha = tl.exp(score - largest[None, :]) / total[None, :]
        tl.store(alpha_ptr + at, alpha.to(alpha_ptr.dtype.element_ty), mask=mask)


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
    target_at = (replica * num_rows + row) * H + heads
    target = _wide(tl.load(target_ptr + target_at, mask=heads < H, other=0.0))
    inner = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries, in_row, at, mask = _block(first, end, heads, H, ENTRIES)
        alpha = _wide(tl.load(alpha_ptr + at, mask=mask, other=0.0))
        inner += tl.sum(alpha * _wide(tl.load(grad_ptr + at, mask=mask, other=0.0)), axis=0)
    total = tl.zeros([HEADS], dtype=target.dtype)
    for first in range(start, end, ENTRIES):
        entries, in_row, at, mask = _block(first, end, heads, H, ENTRIES)
        alpha = _wide(tl.load(alpha_ptr + at, mask=mask, other=0.0))
        grad = _wide(tl.load(grad_ptr + at, mask=mask, other=0.0))
        grad = alpha * (grad - inner[None, :])
        score = _sums(source_ptr, col_ptr, target, entries, heads, mask, in_row, H)
        grad = tl.where(score > 0, grad, grad * SLOPE)
        tl.store(grad_sum_ptr + at, grad.to(grad_sum_ptr.dtype.element_ty), mask=mask)
        total += tl.sum(grad, axis=0)
    total = total.to(grad_target_ptr.dtype.element_ty)
    tl.store(grad_target_ptr + target_at, total, mask=heads < H)


@triton.jit
def _mix(bits, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Of unsigned bits: products wrap around and shifts bring in zeros."""
    bits ^= bits >> 16
    bits *= FIRST
    bits ^= bits >> 13
    bits *= SECOND
    return bits ^ (bits >> 16)


@triton.jit(do_not_specialize=["call"])
def dropout_kernel(
    x_ptr,
    seed_ptr,
    step_ptr,
    out_ptr,
    numel,
    x_replica,
    call,
    threshold,
    SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPREAD: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    CALL: tl.constexpr,
):
    """The stages of :func:`graphrelu.lab.models.dropout.keep_mask`, and what they keep, scaled."""
    replica = tl.program_id(1).to(tl.int64)
    key = tl.load(seed_ptr + replica).to(tl.uint32) * SPREAD
    key = _mix(key + 1, FIRST, SECOND) + tl.load(step_ptr).to(tl.uint32) * SPREAD
    key = _mix(key, FIRST, SECOND) + (call + 1).to(tl.uint32) * CALL
    key = _mix(key, FIRST, SECOND)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = _mix(index.to(tl.uint32) * SPREAD + key, FIRST, SECOND) + key
    bits = _mix(bits, FIRST, SECOND)
    keep = (bits & 0x7FFFFFFF).to(tl.int32) >= threshold
    mask = index < numel
    x = tl.load(x_ptr + replica * x_replica + index, mask=mask, other=0.0)
    if x.dtype != tl.float64:
        x = x.to(tl.float32)
    out = tl.where(keep, x * SCALE, 0.0)
    tl.store(out_ptr + replica * numel + index, out.to(out_ptr.dtype.element_ty), mask=mask)
