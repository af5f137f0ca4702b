"""The product of a sliced matrix with one column, in Triton."""

import triton
import triton.language as tl


@triton.jit
def _update(
    rows,
    mask,
    product,
    previous_ptr,
    scale_ptr,
    out_ptr,
    next_ptr,
    a,
    b,
    c,
    d,
    SCALED: tl.constexpr,
    SUMS: tl.constexpr,
    STARTS: tl.constexpr,
):
    """The polynomial's recurrence at some rows: `next = a * product + b * previous`, and its term
    `c * next` of the result where that is a sum, which starts with `d * previous`."""
    if SCALED:
        scale = tl.load(scale_ptr + rows, mask=mask, other=0.0)
        product *= scale * scale  # D^-1
    previous = tl.load(previous_ptr + rows, mask=mask, other=0.0)
    value = a * product + b * previous
    tl.store(next_ptr + rows, value, mask=mask)
    if SUMS:
        out = d * previous if STARTS else tl.load(out_ptr + rows, mask=mask, other=0.0)
        tl.store(out_ptr + rows, out + c * value, mask=mask)


@triton.jit
def product_kernel(
    col_ptr,
    value_ptr,
    slice_ptr,
    x_ptr,
    previous_ptr,
    scale_ptr,
    out_ptr,
    next_ptr,
    partial_ptr,
    num_rows,
    num_long,
    num_pieces,
    a,
    b,
    c,
    d,
    SCALED: tl.constexpr,
    SUMS: tl.constexpr,
    STARTS: tl.constexpr,
    ROWS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """One slice for each program, one of its rows for each thread."""
    first = tl.program_id(0).to(tl.int64) * ROWS
    lane = tl.arange(0, ROWS)
    begin = tl.load(slice_ptr + tl.program_id(0))
    width = (tl.load(slice_ptr + tl.program_id(0) + 1) - begin) // ROWS
    total = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, width, UNROLL):
        step = start + tl.arange(0, UNROLL)
        at = begin + step[:, None] * ROWS + lane[None, :]
        col = tl.load(col_ptr + at, mask=(step < width)[:, None], other=-1)
        x = tl.load(x_ptr + col, mask=col >= 0, other=0.0)
        if not SCALED:
            x *= tl.load(value_ptr + at, mask=col >= 0, other=0.0)
        total += tl.sum(x, axis=0)
    if first < num_pieces:  # pieces of long rows, to be put together
        tl.store(partial_ptr + first + lane, total)
    else:
        rows = first - num_pieces + num_long + lane
        _update(
            rows,
            rows < num_rows,
            total,
            previous_ptr,
            scale_ptr,
            out_ptr,
            next_ptr,
            a,
            b,
            c,
            d,
            SCALED,
            SUMS,
            STARTS,
        )


@triton.jit
def long_rows_kernel(
    partial_ptr,
    piece_ptr,
    previous_ptr,
    scale_ptr,
    out_ptr,
    next_ptr,
    a,
    b,
    c,
    d,
    SCALED: tl.constexpr,
    SUMS: tl.constexpr,
    STARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One long row for each program: the sum of its pieces, in a fixed order."""
    row = tl.program_id(0)
    end = tl.load(piece_ptr + row + 1)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(tl.load(piece_ptr + row), end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(partial_ptr + at, mask=at < end, other=0.0)
    rows = row + tl.arange(0, 1)
    product = tl.sum(total, axis=0) + tl.zeros([1], dtype=tl.float32)
    _update(
        rows,
        rows >= 0,
        product,
        previous_ptr,
        scale_ptr,
        out_ptr,
        next_ptr,
        a,
        b,
        c,
        d,
        SCALED,
        SUMS,
        STARTS,
    )
