"""Diffuse on a GPU, over compressed rows.

A program adds the entries of its rows in a fixed order: the libraries' products divide a long row
among programs that finish in any order, and do not give the same bits twice.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.functional import polynomial
from graphrelu.ops import cpu
from graphrelu.ops.cpu import CSR

# Of one column, a program takes so many rows, and entries of each at a time; of several columns one
# row.
_ROWS, _FEW_ENTRIES = 8, 16
_COLS, _ENTRIES = 64, 32


@triton.jit
def column_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    previous_ptr,
    out_ptr,
    num_rows,
    a,
    b,
    ADDS: tl.constexpr,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """`out = a * matrix @ vector + b * previous`, for one column."""
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
    out = a * tl.sum(total, axis=1)
    if ADDS:
        out += b * tl.load(previous_ptr + rows, mask=in_rows, other=0.0)
    tl.store(out_ptr + rows, out, mask=in_rows)


@triton.jit
def columns_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    previous_ptr,
    out_ptr,
    width,
    a,
    b,
    ADDS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLS: tl.constexpr,
):
    """The same for several columns, `[N, width]`."""
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
    at = row * width + cols
    out = a * tl.sum(total, axis=0)
    if ADDS:
        out += b * tl.load(previous_ptr + at, mask=in_cols, other=0.0)
    tl.store(out_ptr + at, out, mask=in_cols)


def diffuse(x: Tensor, matrix: CSR, alpha: float, steps: int, diffusion: str) -> Tensor:
    """:func:`graphrelu.functional.polynomial` of `x [N, F]`."""
    if matrix.value.numel() == 0 or x.numel() == 0 or x.dtype != torch.float:
        return cpu.diffuse(x, matrix, alpha, steps, diffusion)
    num_rows, width = x.shape
    if width == 1:
        launch, size = column_kernel[(triton.cdiv(num_rows, _ROWS),)], num_rows
        tile = {"ROWS": _ROWS, "ENTRIES": _FEW_ENTRIES, "num_warps": 1}
    else:
        cols = min(_COLS, triton.next_power_of_2(width))
        launch, size = columns_kernel[(num_rows, triton.cdiv(width, cols))], width
        tile = {"ENTRIES": _ENTRIES, "COLS": cols}

    def step(current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
        out = torch.empty_like(current)
        with torch.cuda.device_of(out):
            launch(*matrix, current, previous, out, size, a, b, ADDS=b != 0, **tile)
        return out

    return polynomial(x, step, alpha, steps, diffusion)
