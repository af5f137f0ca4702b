"""Project, diffuse and apply in plain torch.

The passes over the features go block by block over the nodes. No temporary is larger than a block:
one of the features' size would cost more than the passes themselves. :mod:`graphrelu.ops.dispatch`
gives the shapes.
"""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphrelu.functional import graph_sum, nodes_per_graph, polynomial

# Elements of one block: small enough that the temporaries of a block stay in the cache that the
# cores share, large enough that the overhead of a torch call does not show (measured on two cores).
_BLOCK = 1 << 19
_kept = threading.local()
# Vectors by a sparse matrix, on a CPU: torch needs MKL on Linux for it.
_MULTIPLIES_VECTORS = torch.backends.mkl.is_available() and sys.platform == "linux"

_MAX_UINT16 = 1 << 16  # indices below it
_MAX_INT32 = torch.iinfo(torch.int32).max
_MAX_INT64 = torch.iinfo(torch.int64).max


def can_be_read(*tensors: Tensor) -> bool:
    """Whether the tensors have values: under :func:`torch.compile` and inside of the transforms of
    :mod:`torch.func` they have none."""
    if torch.compiler.is_compiling():
        return False
    try:
        for tensor in tensors:
            tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def is_read_for_free(*tensors: Tensor) -> bool:
    """Whether a look at the values waits for no other device."""
    return all(tensor.device.type == "cpu" for tensor in tensors) and can_be_read(*tensors)


def _blocks(x: Tensor) -> Iterator[slice]:
    """Slices of nodes; a GPU takes all nodes at once."""
    num_nodes = x.size(1)
    step = num_nodes if x.is_cuda else _BLOCK // max(1, x.size(0) * x.size(2))
    step = max(1, step)
    for start in range(0, num_nodes, step):
        yield slice(start, min(start + step, num_nodes))


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[R, N, H]` and the means of `mass * x` over the nodes of each graph
    `[R, B, C]`, in the precision of `weight`."""
    replicas, num_nodes, channels = x.shape
    projection = weight.new_empty(replicas, num_nodes, weight.size(1))
    total = weight.new_zeros(replicas, batch_size, channels)
    with torch.autocast(x.device.type, enabled=False):
        for block in _whole_or_blocks(x, weight):
            x_block = x[:, block].to(weight.dtype)
            projection[:, block] = x_block @ weight.transpose(1, 2)
            if batch is None:
                total += mass[:, None, block] @ x_block
                continue
            graphs = batch.expand(replicas, -1)[:, block]
            weighted = mass[:, block, None] * x_block
            for out, own, of_node in zip(total, weighted, graphs, strict=True):
                out += graph_sum(own, of_node, batch_size)
    return projection, total.div_(_nodes(x, batch, batch_size))


def _nodes(x: Tensor, batch: Tensor | None, batch_size: int) -> int | Tensor:
    """The nodes to divide by, of each graph, `[1 or R, B, 1]`: one of a graph without nodes."""
    if batch is None:
        return max(1, x.size(1))
    counts = [nodes_per_graph(own, batch_size) for own in batch]
    return torch.stack(counts).clamp(min=1).unsqueeze(2)


def project_backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    batch: Tensor | None,
    grad_projection: Tensor,
    grad_mean: Tensor,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x, added to `grad_x` in place where it is given, and of the weight.

    On one graph that of x is one product of rank H + 1 instead of two large terms and their sum.
    """
    replicas = x.size(0)
    grad_sum = grad_mean / _nodes(x, batch, grad_mean.size(1))
    out = torch.zeros_like(x) if grad_x is None else grad_x
    grad_weight = torch.zeros_like(weight)
    right = torch.cat([weight, grad_sum], dim=1) if batch is None else weight
    with torch.autocast(x.device.type, enabled=False):
        for block in _whole_or_blocks(x, weight):
            left = grad_projection[:, block]
            mass_block = mass.expand(replicas, -1)[:, block, None]
            grad_weight += left.transpose(1, 2) @ x[:, block].to(weight.dtype)
            if batch is None:
                left = torch.cat([left, mass_block], dim=2)
            own = out[:, block].to(weight.dtype)  # a view, unless the features are converted
            own.baddbmm_(left, right)
            if batch is not None:
                graphs = batch.expand(replicas, -1)[:, block]
                for grad, weights, of_graph, of_node in zip(
                    own, mass_block, grad_sum, graphs, strict=True
                ):
                    grad.addcmul_(weights, of_graph.index_select(0, of_node))
            if out.dtype != weight.dtype:
                out[:, block] = own
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


def order_by(index: Tensor, size: int) -> Tensor:
    """The order by indices below `size`; that of equal ones stays."""
    if is_read_for_free(index) and size <= _MAX_UINT16:
        # By NumPy's radix sort, which takes a tenth of the time of torch's on a mini-batch.
        return torch.from_numpy(np.argsort(index.numpy().astype(np.uint16), kind="stable"))
    # A compiler that does not know the size yet would have to ask.
    shorter = index if torch.compiler.is_compiling() else index.to(index_dtype(size))
    return torch.argsort(shorter, stable=True)


def sorted_entries(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Tensor:
    """The order of a matrix's entries by row, then by column; that of duplicates stays."""
    is_short = is_read_for_free(row, col) and max(num_rows, num_cols) <= _MAX_UINT16
    if torch.compiler.is_compiling() or (not is_short and num_rows * num_cols <= _MAX_INT64):
        return torch.argsort(row * num_cols + col, stable=True)
    by_col = order_by(col, num_cols)
    return by_col.index_select(0, order_by(row.index_select(0, by_col), num_rows))


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
    shape = x.shape
    if matrix.value.numel() == 0 or x.numel() == 0:  # the sparse libraries refuse empty operands

        def step(current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
            return b * previous if b else torch.zeros_like(previous)

    else:
        size = (x.size(0), x.size(0))
        csr = torch.sparse_csr_tensor(*matrix, size, check_invariants=False)
        multiply: Callable[..., Tensor] = torch.addmm
        if x.is_cpu and x.size(1) == 1 and _MULTIPLIES_VECTORS:  # faster than one column
            x, multiply = x.squeeze(1), torch.addmv

        def step(current: Tensor, previous: Tensor, a: float, b: float) -> Tensor:
            return multiply(previous, csr, current, beta=b, alpha=a)

    return polynomial(x, step, alpha, steps, diffusion).view(shape)


def apply(
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    """The largest segment."""
    replicas = max(x.size(0), gamma.size(0), parameters.size(0))
    y = x.new_empty(replicas, x.size(1), x.size(2))
    if not _has_two_segments(gamma, base):
        for block in _blocks(y):
            segment = _segments(x, gamma, parameters, base, batch, block)
            y[:, block] = reduce(torch.maximum, (segment(k)[2] for k in range(len(base))))
        return y
    parameters = parameters.flatten(2, 3)
    buffers = _buffers(y, gamma.dtype, 2 if batch is None else 6)
    for block in _blocks(y):
        x_block, weight = x[:, block].to(gamma.dtype), gamma[:, block]
        first, second = buffers[:2, :, : x_block.size(1)].unbind()
        a0, a1, b0, b1 = _rows(parameters, batch, block, buffers[2:]).unbind(2)
        _scaled(torch.addcmul(b0, a0, x_block, out=first), weight, x_block, base[0], out=first)
        _scaled(torch.addcmul(b1, a1, x_block, out=second), weight, x_block, base[1], out=second)
        torch.maximum(first, second, out=y[:, block])
    return y


def _scaled(value: Tensor, weight: Tensor, x: Tensor, slope: float, out: Tensor) -> None:
    """`slope * x + weight * value`, in as few passes as it takes."""
    if slope == 1:
        torch.addcmul(x, weight, value, out=out)
    else:
        torch.mul(weight, value, out=out)
        if slope:
            out.add_(x, alpha=slope)


def apply_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, which has no rows where it is not needed, gamma and parameters."""
    with torch.autocast(grad.device.type, enabled=False):
        grad_x = torch.empty_like(grad if needs_x else grad[:, :0])
        of_segments = (
            _two_segments_backward if _has_two_segments(gamma, base) else _segments_backward
        )
        return grad_x, *of_segments(grad, x, gamma, parameters, base, batch, grad_x)


def _has_two_segments(gamma: Tensor, base: Sequence[float]) -> bool:
    """Whether `K = 2` and each node has one weight, as by default."""
    return len(base) == 2 and gamma.size(2) == 1


def _two_segments_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    grad_x: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Half the time of :func:`_segments_backward`: the first segment is the second plus

    .. math:: (s_0 - s_1) x + \gamma (\Delta a \, x + \Delta b),

    where it is chosen. With the gradient :math:`g`, and its part :math:`p` where the first segment
    is chosen, the columns :math:`[g x, g, p x, p]` beside each other give the gradients of the
    weights in one product, and those of :math:`a_1, b_1, \Delta a, \Delta b` in another.
    """
    replicas, num_nodes, _ = grad.shape
    needs_x = grad_x.size(1) == num_nodes
    grad_gamma = gamma.new_empty(replicas, num_nodes, 1)
    a0, a1, b0, b1 = parameters.flatten(2, 3).unbind(2)
    parameters = torch.stack([a1, b1, a0 - a1, b0 - b1], dim=2)
    grads = parameters.new_zeros(replicas, *parameters.shape[1:])
    buffers = _buffers(grad, gamma.dtype, 5 if batch is None else 9)
    values, columns = buffers[0], _beside(buffers[1:5])
    for block in _blocks(grad):
        x_block, weight = x[:, block].to(gamma.dtype), gamma[:, block]
        value, beside = (buffer[:, : x_block.size(1)] for buffer in (values, columns))
        own = _rows(parameters, batch, block, buffers[5:])
        a, _, more_a, more_b = own.unbind(2)
        g_x, g, p_x, p = beside.unbind(2)
        g.copy_(grad[:, block])
        torch.addcmul(more_b, more_a, x_block, out=value)
        _scaled(value, weight, x_block, base[0] - base[1], out=value)
        # ReLU's own: a tie goes to the later segment.
        torch.ops.aten.threshold_backward.grad_input(g, value, 0.0, grad_input=p)
        torch.mul(g, x_block, out=g_x)
        torch.mul(p, x_block, out=p_x)
        if needs_x:
            torch.mul(a, g, out=value).addcmul_(more_a, p)
            _scaled(value, weight, p, base[0], out=grad_x[:, block])
            if base[1]:
                grad_x[:, block].add_(torch.sub(g, p, out=value), alpha=base[1])
        if batch is None:
            grad_gamma[:, block] = beside.flatten(2) @ own.flatten(2).transpose(1, 2)
            grads += (weight.transpose(1, 2) @ beside.flatten(2)).view_as(grads)
        else:
            grad_gamma[:, block] = own.mul_(beside).sum(dim=(2, 3)).unsqueeze(2)
            beside.mul_(weight.unsqueeze(3))
            for of_replica, own in zip(grads, beside, strict=True):  # the first dimension is fast
                of_replica.index_add_(0, batch[block], own)
    grad_a, grad_b, grad_a0, grad_b0 = grads.unbind(2)
    grads = torch.stack([grad_a0, grad_a - grad_a0, grad_b0, grad_b - grad_b0], dim=2)
    return grad_gamma, grads.unflatten(2, (2, 2))


def _segments_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    grad_x: Tensor,
) -> tuple[Tensor, Tensor]:
    """Any number of segments, and of weights per node, one segment after the other."""
    replicas, num_nodes, _ = grad.shape
    needs_x = grad_x.size(1) == num_nodes
    grad_gamma = gamma.new_zeros(replicas, *gamma.shape[1:])
    grads = parameters.new_zeros(replicas, *parameters.shape[1:])
    for block in _blocks(grad):
        segment = _segments(x, gamma, parameters, base, batch, block)
        g, x_block = grad[:, block].to(gamma.dtype), x[:, block].to(gamma.dtype)
        best, choice = segment(0)[2], torch.zeros_like(g, dtype=torch.int16)
        for k in range(1, len(base)):
            value = segment(k)[2]
            choice.masked_fill_(value >= best, k)  # a tie goes to the later segment
            best = torch.maximum(best, value)
        total = torch.zeros_like(g)
        for k, slope in enumerate(base):
            weight, inner, _, a = segment(k)
            part = torch.where(choice == k, g, 0.0)
            grad_gamma[:, block, k % gamma.size(2)] += (part * inner).sum(dim=2)
            total.add_(part, alpha=slope)
            part *= weight
            total.addcmul_(part, a)
            for i, own in enumerate((part * x_block, part)):
                if batch is None:
                    grads[:, 0, i, k] += own.sum(dim=1)
                    continue
                for of_replica, of_nodes in zip(grads, own, strict=True):
                    of_replica[:, i, k] += graph_sum(of_nodes, batch[block], grads.size(1))
        if needs_x:
            grad_x[:, block] = total
    return grad_gamma, grads


def _segments(
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
    block: slice,
) -> Callable[[int], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Of the k-th segment on a block of nodes: the weights, `a * x + b`, what both and the base
    slope make of `x`, and `a`."""
    x, gamma = x[:, block].to(gamma.dtype), gamma[:, block]
    if batch is not None:
        parameters = parameters.index_select(1, batch[block])
    slopes, intercepts = parameters.unbind(2)

    def segment(k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight, a = gamma[:, :, k % gamma.size(2), None], slopes[:, :, k]
        inner = torch.addcmul(intercepts[:, :, k], a, x)
        return weight, inner, torch.addcmul(base[k] * x, weight, inner), a

    return segment


def _rows(parameters: Tensor, batch: Tensor | None, block: slice, room: Tensor) -> Tensor:
    """The parameters `[R, B, 4, C]` of each node of a block, `[R, 1 or n, 4, C]`."""
    if batch is None:
        return parameters
    graphs = batch[block]
    out = _beside(room)[: parameters.size(0), : graphs.size(0)]
    return torch.index_select(parameters, 1, graphs, out=out)


def _beside(buffers: Tensor) -> Tensor:
    """Four blocks `[4, R, n, C]` as one, with four values of each element: `[R, n, 4, C]`."""
    _, replicas, rows, channels = buffers.shape
    return buffers.view(replicas, rows, 4, channels)


def _buffers(like: Tensor, dtype: torch.dtype, count: int) -> Tensor:
    """Room for `count` blocks, for all blocks in turn. Each thread keeps its room on a CPU: fresh
    memory costs more than the passes over it."""
    rows = next(_blocks(like), slice(0, 0)).stop
    shape = (count, like.size(0), rows, like.size(2))
    if like.device.type != "cpu":
        return like.new_empty(shape, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    kept: Tensor | None = getattr(_kept, "room", None)
    if kept is None or kept.numel() < size:
        with torch.inference_mode(False):  # what is kept must serve training, too
            kept = _kept.room = like.new_empty(size, dtype=torch.uint8)
    return kept[:size].view(dtype).view(shape)
