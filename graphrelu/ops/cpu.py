"""The three operations in plain torch: project, diffuse, apply.

The passes over the features go block by block over the nodes. No temporary is larger than a block:
one of the features' size would cost more than the passes themselves. :mod:`graphrelu.ops.dispatch`
gives the shapes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphrelu.functional import polynomial

# Elements of one block: small enough that the temporaries of a block stay in the cache of a
# core, large enough that the overhead of a torch call does not show (measured on two cores).
_BLOCK = 1 << 18


_MAX_INT32 = torch.iinfo(torch.int32).max
_MAX_INT64 = torch.iinfo(torch.int64).max


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of nodes; a GPU takes all nodes at once."""
    num_nodes = x.size(1)
    step = num_nodes if x.is_cuda else _BLOCK // max(1, x.size(0) * x.size(2))
    step = max(1, step)
    for start in range(0, num_nodes, step):
        yield slice(start, min(start + step, num_nodes))


def project(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[R, N, H]` and `mass @ x` `[R, 1, C]`, in the precision of `weight`."""
    replicas, num_nodes, channels = x.shape
    projection = weight.new_empty(replicas, num_nodes, weight.size(1))
    total = weight.new_zeros(replicas, 1, channels)
    with torch.autocast(x.device.type, enabled=False):
        for block in _whole_or_blocks(x, weight):
            x_block = x[:, block].to(weight.dtype)
            projection[:, block] = x_block @ weight.transpose(1, 2)
            total += mass[block].view(1, 1, -1) @ x_block
    return projection, total


def project_backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    grad_projection: Tensor,
    grad_sum: Tensor,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x, added to `grad_x` in place where it is given, and of the weight.

    That of x is one product of rank H + 1 instead of two large terms and their sum.
    """
    replicas = x.size(0)
    out = torch.empty_like(x) if grad_x is None else grad_x
    grad_weight = torch.zeros_like(weight)
    right = torch.cat([weight, grad_sum], dim=1)
    with torch.autocast(x.device.type, enabled=False):
        for block in _whole_or_blocks(x, weight):
            grad_block = grad_projection[:, block]
            grad_weight += grad_block.transpose(1, 2) @ x[:, block].to(weight.dtype)
            left = torch.cat(
                [grad_block, mass[block].view(1, -1, 1).expand(replicas, -1, 1)], dim=2
            )
            if grad_x is None:
                out[:, block] = left @ right
            elif replicas == 1 and out.dtype == weight.dtype:
                out[0, block].addmm_(left[0], right[0])
            else:
                out[:, block] = out[:, block] + left @ right
    return out, grad_weight


def _whole_or_blocks(x: Tensor, weight: Tensor) -> Iterator[slice]:
    """Blocks where the features must be converted; a product takes care of itself."""
    return iter([slice(None)]) if x.dtype == weight.dtype else _blocks(x)


class CSR(NamedTuple):
    """A sparse matrix in compressed rows."""

    rowptr: Tensor
    col: Tensor
    value: Tensor


def index_dtype(*sizes: int) -> torch.dtype:
    """The type that counts so far. MKL takes 32-bit indices: others would be converted in every
    product; and a product is bound by the memory that it reads, half of which are indices."""
    return torch.int32 if max(sizes) <= _MAX_INT32 else torch.int64


def sorted_entries(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Tensor:
    """The order of a matrix's entries by row, then by column; that of duplicates stays."""
    # A compiler that does not know the sizes yet would have to ask.
    if torch.compiler.is_compiling() or num_rows * num_cols <= _MAX_INT64:
        return torch.argsort(row * num_cols + col, stable=True)
    by_col = torch.argsort(col, stable=True)
    return by_col[torch.argsort(row[by_col], stable=True)]


def block_diagonal(rowptr: Tensor, col: Tensor, num_cols: int) -> tuple[Tensor, Tensor]:
    """One matrix in compressed rows, with `R` of the same size along its diagonal: those of
    `rowptr [R, rows + 1]` and `col [R, nonzeros]`."""
    replicas, nonzeros = col.shape
    sizes = (replicas * (rowptr.size(1) - 1), replicas * num_cols, replicas * nonzeros)
    block = torch.arange(replicas, dtype=index_dtype(*sizes), device=col.device).view(-1, 1)
    starts = (rowptr[:, :-1] + nonzeros * block).flatten()
    end = starts.new_full((1,), replicas * nonzeros)
    return torch.cat([starts, end]), (col + num_cols * block).flatten()


def diffuse(x: Tensor, matrix: CSR, alpha: float, steps: int, diffusion: str) -> Tensor:
    """:func:`graphrelu.functional.polynomial`, with the update in the product."""
    if matrix.value.numel() == 0 or x.numel() == 0:  # the sparse libraries refuse empty operands

        def step(current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
            return b * previous if b else torch.zeros_like(previous)

    else:
        size = (x.size(0), x.size(0))
        csr = torch.sparse_csr_tensor(*matrix, size, check_invariants=False)

        def step(current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
            return torch.addmm(previous, csr, current, beta=b, alpha=a)

    return polynomial(x, step, alpha, steps, diffusion)


def _rows(parameter: Tensor, k: int, batch: Tensor | None, block: slice) -> Tensor:
    """Row `k` of a channel-wise parameter for each node of a block, `[R, 1 or n, C]`."""
    if batch is None:
        return parameter[:, :, k]
    return parameter[:, :, k].index_select(1, batch[block])


def _factors(
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    k: int,
    batch: Tensor | None,
    block: slice,
) -> tuple[Tensor, Tensor, Tensor]:
    """What segment `k` is made of: the node weight `[R, n, 1]`, its slope and intercept."""
    j = min(k, gamma.size(2) - 1)
    weight = gamma[:, block, j : j + 1]
    return weight, _rows(slopes, k, batch, block), _rows(intercepts, k, batch, block)


def _segment(x: Tensor, gamma: Tensor, a: Tensor, b: Tensor, base: float) -> Tensor:
    out = torch.addcmul(b, a, x)
    out = out.mul_(gamma) if out.size(0) >= gamma.size(0) else out * gamma
    return out.add_(x, alpha=base) if base else out


def apply(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    """The largest segment."""
    replicas = max(x.size(0), gamma.size(0), slopes.size(0))
    y = x.new_empty(replicas, x.size(1), x.size(2))
    for block in _blocks(y):
        x_block = x[:, block].to(gamma.dtype)
        segments = (
            _segment(x_block, *_factors(gamma, slopes, intercepts, k, batch, block), base[k])
            for k in range(len(base))
        )
        out = next(segments)
        for segment in segments:
            torch.maximum(out, segment, out=out)
        y[:, block] = out
    return y


def apply_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, gamma, slopes and intercepts."""
    replicas = grad.size(0)
    grad_x = torch.empty_like(grad)
    grad_gamma = gamma.new_zeros(replicas, *gamma.shape[1:])
    grad_slopes = slopes.new_zeros(replicas, *slopes.shape[1:])
    grad_intercepts = torch.zeros_like(grad_slopes)
    with torch.autocast(grad.device.type, enabled=False):
        for block in _blocks(grad):
            x_block, grad_block = x[:, block].to(gamma.dtype), grad[:, block].to(gamma.dtype)
            factors = [
                _factors(gamma, slopes, intercepts, k, batch, block) for k in range(len(base))
            ]
            best = _segment(x_block, *factors[0], base[0])
            # The part of the gradient that each segment receives: where a later one is as large,
            # it takes over.
            parts = [grad_block]
            takes_over = torch.empty_like(best)
            for k in range(1, len(base)):
                segment = _segment(x_block, *factors[k], base[k])
                torch.ge(segment, best, out=takes_over)
                parts = [torch.addcmul(part, part, takes_over, value=-1.0) for part in parts]
                parts.append(grad_block * takes_over)
                torch.maximum(best, segment, out=best)
            grad_x_block = torch.zeros_like(grad_block)
            for k, (part, (weight, a, b)) in enumerate(zip(parts, factors, strict=True)):
                # d y / d x, on the nodes where segment k was chosen
                slope = torch.mul(weight, a).add_(base[k])
                grad_x_block.addcmul_(slope, part)
                part_x = part * x_block
                j = min(k, gamma.size(2) - 1)
                grad_gamma[:, block, j] += _dot(part_x, a) + _dot(part, b)
                _accumulate(grad_slopes[:, :, k], weight, part_x, batch, block)
                _accumulate(grad_intercepts[:, :, k], weight, part, batch, block)
            grad_x[:, block] = grad_x_block
    return grad_x, grad_gamma, grad_slopes, grad_intercepts


def _dot(values: Tensor, rows: Tensor) -> Tensor:
    """The inner product over channels, `[R, n]`."""
    if rows.size(1) == 1:
        return (values @ rows.transpose(1, 2)).squeeze(2)
    return (values * rows).sum(dim=2)


def _accumulate(
    out: Tensor, weight: Tensor, values: Tensor, batch: Tensor | None, block: slice
) -> None:
    """Adds the weighted sum over a block's nodes to each graph's row of `out` `[R, B, C]`."""
    if batch is None:
        out += weight.transpose(1, 2) @ values
    else:
        out.index_add_(1, batch[block], weight * values)
