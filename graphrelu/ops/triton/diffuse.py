r"""Diffuse on a GPU: over compressed rows, or over slices, for one column and a large graph.

A program adds the entries of its rows in a fixed order: the libraries' products divide a long row
among programs that finish in any order, and do not give the same bits twice.

A product with one column is bound by the gathers of its entries. In slices, rows are sorted by
their number of entries and laid out column by column, so that neighbouring threads read
neighbouring indices (the SELL-C-sigma format). A long row is cut into pieces, so that no thread has
more than others. The values of an unweighted graph are never read: with :math:`\mathbf{q} =
\mathbf{D}^{-1/2} \mathbf{t}`, the product :math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}
\mathbf{t}` is :math:`\mathbf{D}^{-1} \mathbf{A} \mathbf{q}`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.functional import Step, inverse_root, polynomial
from graphrelu.ops import cpu
from graphrelu.ops.cpu import CSR, index_dtype

# Of one column, a program takes so many rows, and entries of each at a time; of several columns one
# row.
_ROWS, _FEW_ENTRIES = 8, 16
_COLS, _ENTRIES = 64, 32

# Slices pay from this number of entries on: a mini-batch, which is used once, is not worth the
# sorting.
FROM_ENTRIES = 1_000_000
_SLICE_ROWS = 128  # one for each thread of four warps
_UNROLL = 4  # gathers of a thread that are under way at once
_LONGEST = 128  # entries that a thread sums at most


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


def diffusion_step(matrix: CSR, x: Tensor) -> Step:
    """The step of :func:`graphrelu.functional.polynomial` over compressed rows."""
    if matrix.value.numel() == 0 or x.numel() == 0 or x.dtype != torch.float:
        return cpu.diffusion_step(matrix, x)
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

    return step


@triton.jit
def _update(
    rows,
    mask,
    product,
    previous_ptr,
    scale_ptr,
    out_ptr,
    a,
    b,
    SCALED: tl.constexpr,
):
    """`out = a * product + b * previous` at some rows."""
    if SCALED:
        scale = tl.load(scale_ptr + rows, mask=mask, other=0.0)
        product *= scale * scale  # D^-1
    previous = tl.load(previous_ptr + rows, mask=mask, other=0.0)
    tl.store(out_ptr + rows, a * product + b * previous, mask=mask)


@triton.jit
def slices_kernel(
    col_ptr,
    value_ptr,
    slice_ptr,
    x_ptr,
    previous_ptr,
    scale_ptr,
    out_ptr,
    partial_ptr,
    num_rows,
    num_long,
    num_pieces,
    a,
    b,
    SCALED: tl.constexpr,
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
        _update(rows, rows < num_rows, total, previous_ptr, scale_ptr, out_ptr, a, b, SCALED)


@triton.jit
def long_rows_kernel(
    partial_ptr,
    piece_ptr,
    previous_ptr,
    scale_ptr,
    out_ptr,
    a,
    b,
    SCALED: tl.constexpr,
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
    _update(rows, rows >= 0, product, previous_ptr, scale_ptr, out_ptr, a, b, SCALED)


class Sliced(NamedTuple):
    """A square matrix in slices; its rows and columns are renumbered by their number of entries.

    A column is multiplied in the new order and, in an unweighted graph, times :math:`D^{-1/2}`.
    """

    order: Tensor  # the old number of each new row
    rank: Tensor  # the new number of each old row
    scale: Tensor  # of the new rows: D^-1/2; ones, where the matrix has values
    slices: Tensor  # where each slice begins
    col: Tensor  # -1: no entry
    value: Tensor | None
    pieces: Tensor  # of each long row, the first
    num_long: int
    num_pieces: int  # of all long rows, rounded up to whole slices

    def diffuse(
        self, x: Tensor, transposed: "Sliced", alpha: float, steps: int, diffusion: str
    ) -> Tensor:
        """:func:`graphrelu.ops.dispatch.diffuse` of one column, `[N, 1]`."""
        settings = (alpha, steps, diffusion)
        out: Tensor = _DiffuseSliced.apply(x.contiguous(), self, transposed, *settings)
        return out

    def polynomial(self, x: Tensor, alpha: float, steps: int, diffusion: str) -> Tensor:
        """:func:`graphrelu.functional.polynomial` of a column, `[N]`."""
        start = x.index_select(0, self.order) * self.scale
        out = polynomial(start, self.step, alpha, steps, diffusion)
        return (out / self.scale).index_select(0, self.rank)

    def step(self, current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
        """The step of the polynomial, in the new order."""
        out, pieces = torch.empty_like(current), current.new_empty(self.num_pieces)
        value = current if self.value is None else self.value  # current: not read
        update = (previous, self.scale, out)
        with torch.cuda.device_of(current):
            slices_kernel[(self.slices.numel() - 1,)](
                self.col,
                value,
                self.slices,
                current,
                *update,
                pieces,
                self.rank.numel(),
                self.num_long,
                self.num_pieces,
                a,
                b,
                SCALED=self.value is None,
                ROWS=_SLICE_ROWS,
                UNROLL=_UNROLL,
            )
            if self.num_long:
                long_rows_kernel[(self.num_long,)](
                    pieces, self.pieces, *update, a, b, SCALED=self.value is None, BLOCK=256
                )
        return out


def slice_matrices(matrix: CSR, transposed: CSR) -> tuple[Sliced, Sliced]:
    """The slices of a matrix and of its transpose, which may be the same object."""
    degree = _degree_of_unweighted(matrix)
    first = slice_matrix(matrix, degree)
    return first, first if transposed is matrix else slice_matrix(transposed, degree)


def _degree_of_unweighted(matrix: CSR) -> Tensor | None:
    """The degrees, if all values of the normalised matrix follow from them."""
    count = matrix.rowptr.diff()
    scale = inverse_root(count.double())
    of_target = torch.repeat_interleave(scale, count, output_size=matrix.col.numel())
    of_source = scale[matrix.col]
    # A source without a degree sends nothing, whatever its own edges are.
    value = (of_source * of_target).to(matrix.value.dtype)
    follows = (of_source > 0) & (matrix.value == value)
    return count.to(matrix.value.dtype) if bool(follows.all()) else None


def slice_matrix(matrix: CSR, degree: Tensor | None) -> Sliced:
    """The slices of a matrix; waits for the device to learn their sizes.

    Args:
        matrix: The normalised adjacency.
        degree: `[N]`, where every weight is one and each source has a degree, else none.
    """
    rowptr, col, value = matrix
    num_rows, device = rowptr.numel() - 1, col.device
    length, order = rowptr.diff().long().sort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(num_rows, device=device)
    start = rowptr.long()[:-1][order]

    num_long = int((length > _LONGEST).sum())
    count = (length[:num_long] + _LONGEST - 1) // _LONGEST
    pieces = torch.cat([count.new_zeros(1), count.cumsum(0)])
    piece_row = torch.repeat_interleave(count)
    number = torch.arange(piece_row.numel(), device=device) - pieces[piece_row]
    cuts = [
        (number + shift) * length[piece_row] // count[piece_row] for shift in (0, 1)
    ]  # of equal size, as nearly as possible
    filler = -piece_row.numel() % _SLICE_ROWS, -(num_rows - num_long) % _SLICE_ROWS
    pad = torch.nn.functional.pad
    lengths = torch.cat(
        [pad(cuts[1] - cuts[0], (0, filler[0])), pad(length[num_long:], (0, filler[1]))]
    )
    starts = torch.cat(
        [pad(start[piece_row] + cuts[0], (0, filler[0])), pad(start[num_long:], (0, filler[1]))]
    )

    width = lengths.view(-1, _SLICE_ROWS).amax(dim=1)
    slices = torch.cat([width.new_zeros(1), (_SLICE_ROWS * width).cumsum(0)])
    size = int(slices[-1])
    row = torch.repeat_interleave(lengths, output_size=col.numel())
    position = torch.arange(row.numel(), device=device) - (lengths.cumsum(0) - lengths)[row]
    place = slices[row // _SLICE_ROWS] + position * _SLICE_ROWS + row % _SLICE_ROWS
    entry = starts[row] + position
    sliced_col = torch.full((size,), -1, dtype=torch.int32, device=device)
    sliced_col[place] = rank[col.long()[entry]].int()
    sliced_value, scale = None, value.new_ones(num_rows)
    if degree is None:
        sliced_value = value.new_zeros(size)
        sliced_value[place] = value[entry]
    else:
        scale = degree[order].clamp(min=1).rsqrt()  # an isolated node has no entry to scale
    return Sliced(
        order=order.int(),
        rank=rank.int(),
        scale=scale,
        slices=slices.to(index_dtype(size)),  # with their padding, more than entries
        col=sliced_col,
        value=sliced_value,
        pieces=pieces.int(),
        num_long=num_long,
        num_pieces=piece_row.numel() + filler[0],
    )


class _DiffuseSliced(torch.autograd.Function):
    """The gradient of :math:`S x` is :math:`S^T` applied to the incoming gradient."""

    @staticmethod
    def forward(x: Tensor, sliced: Sliced, transposed: Sliced, *settings: Any) -> Tensor:
        return sliced.polynomial(x.view(-1), *settings).view(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, sliced, transposed, *settings = inputs
        ctx.rest = transposed, sliced, *settings

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _DiffuseSliced.apply(grad.contiguous(), *ctx.rest), *([None] * 5)
