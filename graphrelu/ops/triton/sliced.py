r"""Diffusion of a single column over a large graph on a GPU.

A product with one column is bound by the gathers of its entries and by the launches around it.
Here rows are sorted by their number of entries and laid out in slices, column by column, so that
neighbouring threads read neighbouring indices (the SELL-C-sigma format); a long row is cut into
pieces, so that no thread has more than others; the recurrence of the polynomial is computed where
the product is; and the values of an unweighted graph are never read: with :math:`\mathbf{q} =
\mathbf{D}^{-1/2} \mathbf{t}`, the step :math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}
\mathbf{t}` is :math:`\mathbf{D}^{-1} \mathbf{A} \mathbf{q}`. Sums have a fixed order.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.diffusion import CSR, chebyshev_coefficients
from graphrelu.ops.products import index_dtype
from graphrelu.ops.triton.launch import launch, workspace
from graphrelu.ops.triton.sliced_kernels import long_rows_kernel, product_kernel

# Below this number of entries torch's own product keeps up, and a mini-batch, which is used once,
# is not worth the sorting.
FROM_ENTRIES = 1_000_000

_ROWS = 128  # of a slice: one for each thread of four warps
_UNROLL = 4  # gathers of a thread that are under way at once
_LONGEST = 128  # entries that a thread sums at most

_coefficients = lru_cache(maxsize=64)(chebyshev_coefficients)


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

    def diffuse(self, x: Tensor, alpha: float, steps: int, diffusion: str) -> Tensor:
        """:func:`graphrelu.diffusion.pagerank` of a column, `[N]`."""
        start = x.index_select(0, self.order) * self.scale
        if diffusion == "power":
            out = self._power(start, alpha, steps)
        else:
            out = self._chebyshev(start, _coefficients(alpha, steps))
        return (out[: x.numel()] / self.scale).index_select(0, self.rank)

    def _power(self, start: Tensor, alpha: float, steps: int) -> Tensor:
        current, num_rows = start, self.rank.numel()
        even, odd, pieces = workspace(start, num_rows, num_rows, self.num_pieces)
        for k in range(steps):
            following = odd if k % 2 else even
            self._step(current, start, following, start, pieces, (1 - alpha, alpha, 0.0, 0.0))
            current = following
        return current

    def _chebyshev(self, start: Tensor, coefficients: list[float]) -> Tensor:
        if len(coefficients) == 1:
            return coefficients[0] * start
        num_rows = self.rank.numel()
        out, current, pieces = workspace(start, num_rows, num_rows, self.num_pieces)
        factors = (1.0, 0.0, coefficients[1], coefficients[0])
        self._step(start, start, current, out, pieces, factors, sums=True, starts=True)
        previous = start
        for coefficient in coefficients[2:]:
            # What is replaced is read at the same row alone.
            factors = (2.0, -1.0, coefficient, 0.0)
            self._step(current, previous, previous, out, pieces, factors, sums=True)
            previous, current = current, previous
        return out

    def _step(
        self,
        x: Tensor,
        previous: Tensor,
        following: Tensor,
        out: Tensor,
        pieces: Tensor,
        factors: tuple[float, float, float, float],
        sums: bool = False,
        starts: bool = False,
    ) -> None:
        """`following = a * A x + b * previous`; where it sums, `out += c * following`, which starts
        as `d * previous`."""
        recurrence = (previous, self.scale, out, following)
        value = x if self.value is None else self.value  # x: not read
        is_scaled = self.value is None
        launch(
            product_kernel,
            (self.slices.numel() - 1, 1, 1),
            (self.col, value, self.slices, x, *recurrence, pieces),
            (self.rank.numel(), self.num_long, self.num_pieces),
            factors,
            SCALED=is_scaled,
            SUMS=sums,
            STARTS=starts,
            ROWS=_ROWS,
            UNROLL=_UNROLL,
        )
        if self.num_long:
            launch(
                long_rows_kernel,
                (self.num_long, 1, 1),
                (pieces, self.pieces, *recurrence),
                (),
                factors,
                SCALED=is_scaled,
                SUMS=sums,
                STARTS=starts,
                BLOCK=256,
            )


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
    filler = -piece_row.numel() % _ROWS, -(num_rows - num_long) % _ROWS
    pad = torch.nn.functional.pad
    lengths = torch.cat(
        [pad(cuts[1] - cuts[0], (0, filler[0])), pad(length[num_long:], (0, filler[1]))]
    )
    starts = torch.cat(
        [pad(start[piece_row] + cuts[0], (0, filler[0])), pad(start[num_long:], (0, filler[1]))]
    )

    width = lengths.view(-1, _ROWS).amax(dim=1)
    slices = torch.cat([width.new_zeros(1), (_ROWS * width).cumsum(0)])
    size = int(slices[-1])
    row = torch.repeat_interleave(lengths, output_size=col.numel())
    position = torch.arange(row.numel(), device=device) - (lengths.cumsum(0) - lengths)[row]
    place = slices[row // _ROWS] + position * _ROWS + row % _ROWS
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


class _SlicedPageRank(torch.autograd.Function):
    """The gradient of :math:`S x` is :math:`S^T` applied to the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sliced: Sliced, transposed: Sliced, *settings: Any) -> Tensor:
        ctx.rest = transposed, sliced, *settings
        return sliced.diffuse(x.view(-1), *settings).view(-1, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _SlicedPageRank.apply(grad.contiguous(), *ctx.rest), *([None] * 5)


def pagerank_sliced(
    x: Tensor, sliced: Sliced, transposed: Sliced, alpha: float, steps: int, diffusion: str
) -> Tensor:
    """:func:`graphrelu.diffusion.pagerank_csr` of one column, `[N, 1]`."""
    out: Tensor = _SlicedPageRank.apply(x.contiguous(), sliced, transposed, alpha, steps, diffusion)
    return out
