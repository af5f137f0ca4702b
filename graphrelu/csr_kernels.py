"""A step of the diffusion over a matrix in compressed rows, in Triton.

One program for each row, which adds its entries in a fixed order: the libraries' products divide a
long row among programs that finish in any order, and do not give the same bits twice.
"""

import triton
import triton.language as tl
from torch import Tensor

from graphrelu.launch import launch

# Elements of a program's tile: of one column, the entries of a row of average degree.
_ENTRIES = 32
_COLS = 64


@triton.jit
def add_product_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    x_ptr,
    out_ptr,
    width,
    alpha,
    beta,
    ADDS: tl.constexpr,
    ENTRIES: tl.constexpr,
    COLS: tl.constexpr,
):
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
        x = tl.load(x_ptr + col[:, None] * width + cols[None, :], mask=mask, other=0.0)
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
    cols = min(_COLS, triton.next_power_of_2(width))
    launch(
        add_product_kernel,
        (num_rows, triton.cdiv(width, cols), 1),
        (rowptr, col, value, x.contiguous(), out),
        (width,),
        (alpha, beta),
        num_warps=1 if cols == 1 else 4,
        ADDS=beta != 0,
        ENTRIES=_ENTRIES,
        COLS=cols,
    )
    return out
