"""A step of the diffusion over a matrix in compressed rows, in Triton.

A program adds the entries of its rows in a fixed order: the libraries' products divide a long row
among programs that finish in any order, and do not give the same bits twice.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton.launch import launch

# Of one column, a program takes so many rows, and entries of each at a time; of several columns one
# row.
_ROWS, _FEW_ENTRIES = 8, 16
_COLS, _ENTRIES = 64, 32


@triton.jit
def add_column_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    out_ptr,
    num_rows,
    alpha,
    beta,
    ADDS: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """`out = alpha * matrix @ vector + beta * out`."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_rows = rows < num_rows
    start = tl.load(rowptr_ptr + rows, mask=in_rows, other=0)
    end = tl.load(rowptr_ptr + rows + 1, mask=in_rows, other=0)
    total = tl.zeros([ROWS, ENTRIES], dtype=tl.float32)
    for first in range(0, tl.max(end - start, axis=0), ENTRIES):
        entries = start[:, None] + first + tl.arange(0, ENTRIES)[None, :]
        mask = entries < end[:, None]
        col = tl.load(col_ptr + entries, mask=mask, other=0)
        value = tl.load(value_ptr + entries, mask=mask, other=0.0)
        total += value * tl.load(vector_ptr + col, mask=mask, other=0.0)
    out = alpha * tl.sum(total, axis=1)
    if ADDS:
        out += beta * tl.load(out_ptr + rows, mask=in_rows, other=0.0)
    tl.store(out_ptr + rows, out, mask=in_rows)


@triton.jit
def add_product_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    out_ptr,
    width,
    alpha,
    beta,
    ADDS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLS: tl.constexpr,
):
    """The same for a matrix `[N, width]`."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    in_cols = cols < width
    end = tl.load(rowptr_ptr + row + 1)
    total = tl.zeros([ENTRIES, COLS], dtype=tl.float32)
    for first in range(tl.load(rowptr_ptr + row), end, ENTRIES):
        entries = first + tl.arange(0, ENTRIES)
        in_row = entries < end
        col = tl.load(col_ptr + entries, mask=in_row, other=0).to(tl.int64)
        value = tl.load(value_ptr + entries, mask=in_row, other=0.0)
        mask = in_row[:, None] & in_cols[None, :]
        x = tl.load(vector_ptr + col[:, None] * width + cols[None, :], mask=mask, other=0.0)
        total += value[:, None] * x
    at = out_ptr + row * width + cols
    out = alpha * tl.sum(total, axis=0)
    if ADDS:
        out += beta * tl.load(at, mask=in_cols, other=0.0)
    tl.store(at, out, mask=in_cols)


def add_product(
    out: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, x: Tensor, beta: float, alpha: float
) -> Tensor:
    """`beta * out + alpha * matrix @ x`, in place; `out` and `x` are `[N, width]`, and not the
    same."""
    num_rows, width = out.shape
    tensors, factors = (rowptr, col, value, x.contiguous(), out), (alpha, beta)
    if width == 1:
        grid = (triton.cdiv(num_rows, _ROWS), 1, 1)
        tile = {"num_warps": 1, "ROWS": _ROWS, "ENTRIES": _FEW_ENTRIES}
        launch(add_column_kernel, grid, tensors, (num_rows,), factors, ADDS=beta != 0, **tile)
        return out
    cols = min(_COLS, triton.next_power_of_2(width))
    grid = (num_rows, triton.cdiv(width, cols), 1)
    tile = {"ENTRIES": _ENTRIES, "COLS": cols}
    launch(add_product_kernel, grid, tensors, (width,), factors, ADDS=beta != 0, **tile)
    return out
