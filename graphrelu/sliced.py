r"""Diffusion of a single column over a large graph on a GPU.

A product with one column is bound by the gathers of its entries and by the launches around it.
Here rows are sorted by their number of entries and laid out in slices, column by column, so that
neighbouring threads read neighbouring indices (the SELL-C-sigma format); a long row is cut into
pieces, so that no thread has more than others; the recurrence of the polynomial is computed where
the product is; and the values of an unweighted graph are never read: with :math:`\mathbf{q} =
\mathbf{D}^{-1/2} \mathbf{t}`, the step :math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}
\mathbf{t}` is :math:`\mathbf{D}^{-1} \mathbf{A} \mathbf{q}`. Sums have a fixed order.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from graphrelu.diffusion import CSR, chebyshev_coefficients
from graphrelu.sliced_kernels import long_rows_kernel, product_kernel

# Below this number of entries torch's own product keeps up, and a mini-batch, which is used once,
# is not worth the sorting.
FROM_ENTRIES = 1_000_000

_ROWS = 128  # of a slice: one for each thread of four warps
_UNROLL = 4  # gathers of a thread that are under way at once
_LONGEST = 128  # entries that a thread sums at most


class Sliced(NamedTuple):
    """A square matrix in slices; its rows and columns are renumbered by their number of entries.

    A column is multiplied in the new order and, in an unweighted graph, times :math:`D^{-1/2}`.
    """

    order: Tensor  # the old number of each new row
    rank: Tensor  # the new number of each old row
    scale: Tensor  # of the new rows: D^-1/2; ones, where the matrix has values
    unscale: Tensor  # 1 / scale
    slices: Tensor  # where each slice begins
    col: Tensor  # -1: no entry
    value: Tensor | None
    pieces: Tensor  # of each long row, the first
    num_long: int
    num_pieces: int  # of all long rows, rounded up to whole slices

    def diffuse(self, x: Tensor, alpha: float, steps: int, diffusion: str) -> Tensor:
        """:func:`graphrelu.diffusion.pagerank` of a column, `[N]`, in the new order and scale."""
        if diffusion == "power":
            return self._power(x, alpha, steps)
        return self._chebyshev(x, chebyshev_coefficients(alpha, steps))

    def _power(self, start: Tensor, alpha: float, steps: int) -> Tensor:
        current = start
        buffers = start.new_empty(2, start.numel()).unbind()
        for k in range(steps):
            self._step(current, start, buffers[k % 2], 1 - alpha, alpha)
            current = buffers[k % 2]
        return current

    def _chebyshev(self, start: Tensor, coefficients: list[float]) -> Tensor:
        out = coefficients[0] * start
        previous, current = start, start
        buffers = start.new_empty(3, start.numel()).unbind()
        for k, coefficient in enumerate(coefficients[1:], start=1):
            following = buffers[k % 3]
            a, b = (1.0, 0.0) if k == 1 else (2.0, -1.0)
            self._step(current, previous, following, a, b, out, coefficient)
            previous, current = current, following
        return out

    def _step(
        self,
        x: Tensor,
        previous: Tensor,
        following: Tensor,
        a: float,
        b: float,
        out: Tensor | None = None,
        coefficient: float = 0.0,
    ) -> None:
        """`following = a * A x + b * previous`, and `out += coefficient * following`."""
        none = x  # stands for a pointer that is not read
        partial = x.new_empty(self.num_pieces) if self.num_pieces else none
        recurrence = (previous, self.scale, none if out is None else out, following)
        options = {"SCALED": self.value is None, "SUMS": out is not None}
        product_kernel[(self.slices.numel() - 1,)](
            self.col,
            none if self.value is None else self.value,
            self.slices,
            x,
            *recurrence,
            partial,
            x.numel(),
            self.num_long,
            self.num_pieces,
            a,
            b,
            coefficient,
            **options,
            ROWS=_ROWS,
            UNROLL=_UNROLL,
        )
        if self.num_long:
            long_rows_kernel[(self.num_long,)](
                partial, self.pieces, *recurrence, a, b, coefficient, **options, BLOCK=256
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
    sliced_value, scale = None, torch.ones_like(value[:1]).expand(num_rows)
    if degree is None:
        sliced_value = value.new_zeros(size)
        sliced_value[place] = value[entry]
    else:
        scale = degree[order].clamp(min=1).rsqrt()  # an isolated node has no entry to scale
    return Sliced(
        order=order.int(),
        rank=rank.int(),
        scale=scale.contiguous(),
        unscale=scale.reciprocal(),
        slices=slices.int(),
        col=sliced_col,
        value=sliced_value,
        pieces=pieces.int(),
        num_long=num_long,
        num_pieces=piece_row.numel() + filler[0],
    )
