"""Apply on a GPU: one pass over the features forward, and one backward.

The rows of one graph, or of one replica, are consecutive, so that the rows of a tile share slopes
and intercepts. Graphs are the first dimension of a grid, as the others end at 65,535.

Layout: `x [R, N, C]`, `gamma [R, N, 1]`, `parameters [R, B, 2, K, C]`, `batch [N]`, sorted.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton.tiles import (
    nodes_of,
    plan,
    with_dense_rows,
    with_replicas,
)


@triton.jit
def _segment(parameters_ptr, k, cols, K, C):
    """A segment's slopes and intercepts, as rows."""
    a = tl.load(parameters_ptr + k * C + cols, mask=cols < C, other=0.0)
    b = tl.load(parameters_ptr + (K + k) * C + cols, mask=cols < C, other=0.0)
    return a[None, :], b[None, :]


@triton.jit
def apply_kernel(
    x_ptr,
    gamma_ptr,
    parameters_ptr,
    batch_ptr,
    y_ptr,
    num_nodes,
    x_replica,
    x_row,
    y_replica,
    y_row,
    base_first,
    base_rest,
    C: tl.constexpr,
    K: tl.constexpr,
    BATCHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    graph, program = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    replica = tl.program_id(2).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    x_ptr += replica * x_replica
    gamma_ptr += replica * num_nodes
    parameters_ptr += (replica * tl.num_programs(0) + graph) * 2 * K * C
    y_ptr += replica * y_replica
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        first_a, first_b = _segment(parameters_ptr, 0, cols, K, C)
        last_a, last_b = first_a, first_b
        if K == 2:
            last_a, last_b = _segment(parameters_ptr, 1, cols, K, C)
        begin = start + program * ROWS
        for first in tl.range(begin, end, tl.num_programs(1) * ROWS, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            best = x
            for k in tl.static_range(K):
                if K > 2:
                    a, b = _segment(parameters_ptr, k, cols, K, C)
                elif k == 0:
                    a, b = first_a, first_b
                else:
                    a, b = last_a, last_b
                base = base_first if k == 0 else base_rest
                value = base * x + weight * (a * x + b)
                best = value if k == 0 else tl.where(value >= best, value, best)
            y_at = y_ptr + rows[:, None] * y_row + cols[None, :]
            tl.store(y_at, best.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def apply_backward_kernel(
    grad_ptr,
    x_ptr,
    gamma_ptr,
    parameters_ptr,
    batch_ptr,
    grad_x_ptr,
    grad_gamma_ptr,
    partial_ptr,
    num_nodes,
    grad_replica,
    grad_row,
    x_replica,
    x_row,
    grad_x_replica,
    grad_x_row,
    base_first,
    base_rest,
    C: tl.constexpr,
    K: tl.constexpr,
    BATCHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
    K_PADDED: tl.constexpr,
):
    graph, program = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    replica = tl.program_id(2).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    grad_ptr += replica * grad_replica
    x_ptr += replica * x_replica
    gamma_ptr += replica * num_nodes
    parameters_ptr += (replica * tl.num_programs(0) + graph) * 2 * K * C
    grad_x_ptr += replica * grad_x_replica
    grad_gamma_ptr += replica * num_nodes
    # [R, B, programs, 2, K, C]
    group = (replica * tl.num_programs(0) + graph) * tl.num_programs(1) + program
    partial_ptr += group * 2 * K * C
    segments = tl.arange(0, K_PADDED)
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        first_slopes, first_intercepts = _segment(parameters_ptr, 0, cols, K, C)
        last_slopes, last_intercepts = first_slopes, first_intercepts
        if K == 2:
            last_slopes, last_intercepts = _segment(parameters_ptr, 1, cols, K, C)
        if K <= 2:  # a tile for each sum: rows are added across threads once, at the end
            first_a = tl.zeros([ROWS, COLS], dtype=tl.float32)
            first_b, last_a, last_b = first_a, first_a, first_a
        else:
            grad_a = tl.zeros([K_PADDED, COLS], dtype=tl.float32)
            grad_b = tl.zeros([K_PADDED, COLS], dtype=tl.float32)
        begin = start + program * ROWS
        for first in tl.range(begin, end, tl.num_programs(1) * ROWS, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            grad_at = grad_ptr + rows[:, None] * grad_row + cols[None, :]
            grad = tl.load(grad_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            choice = tl.zeros([ROWS, COLS], dtype=tl.int32)
            best, slope, inner = x, x, x
            for k in tl.static_range(K):
                if K > 2:
                    a, b = _segment(parameters_ptr, k, cols, K, C)
                elif k == 0:
                    a, b = first_slopes, first_intercepts
                else:
                    a, b = last_slopes, last_intercepts
                base = base_first if k == 0 else base_rest
                own = a * x + b
                own_slope = base + weight * a
                value = base * x + weight * own
                if k == 0:
                    best, inner = value, own
                    slope = own_slope + tl.zeros_like(x)
                else:
                    takes_over = value >= best  # a tie goes to the later segment
                    best = tl.where(takes_over, value, best)
                    inner = tl.where(takes_over, own, inner)
                    slope = tl.where(takes_over, own_slope, slope)
                    choice = tl.where(takes_over, k, choice)
            grad_x = (grad * slope).to(grad_x_ptr.dtype.element_ty)
            grad_x_at = grad_x_ptr + rows[:, None] * grad_x_row + cols[None, :]
            tl.store(grad_x_at, grad_x, mask=mask)
            node = tl.sum(inner * grad, axis=1)  # the gradient of the weight
            if chunk > 0:
                node += tl.load(grad_gamma_ptr + rows, mask=in_rows, other=0.0)
            tl.store(grad_gamma_ptr + rows, node, mask=in_rows)
            weighted = grad * weight
            for k in tl.static_range(K):
                part = tl.where(choice == k, weighted, 0.0)
                if K > 2:
                    is_k = segments[:, None] == k
                    grad_a += tl.where(is_k, tl.sum(part * x, axis=0)[None, :], 0.0)
                    grad_b += tl.where(is_k, tl.sum(part, axis=0)[None, :], 0.0)
                elif k == 0:
                    first_a += part * x
                    first_b += part
                else:
                    last_a += part * x
                    last_b += part
        if K <= 2:
            tl.store(partial_ptr + cols, tl.sum(first_a, axis=0), mask=in_cols)
            tl.store(partial_ptr + K * C + cols, tl.sum(first_b, axis=0), mask=in_cols)
            if K == 2:
                tl.store(partial_ptr + C + cols, tl.sum(last_a, axis=0), mask=in_cols)
                tl.store(partial_ptr + 3 * C + cols, tl.sum(last_b, axis=0), mask=in_cols)
        else:
            in_parameters = (segments < K)[:, None] & in_cols[None, :]
            out_at = segments[:, None] * C + cols[None, :]
            tl.store(partial_ptr + out_at, grad_a, mask=in_parameters)
            tl.store(partial_ptr + K * C + out_at, grad_b, mask=in_parameters)


def forward(
    x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float], batch: Tensor | None
) -> Tensor:
    """Reads x once and writes y once. Segments beyond the first share one base slope."""
    x, gamma, parameters = with_dense_rows(x), gamma.contiguous(), parameters.contiguous()
    out = torch.empty_like(x)  # not a view: users may write to it
    if out.numel() == 0:
        return out
    x, y = with_replicas(x, 2), with_replicas(out, 2)
    replicas, num_nodes, channels = x.shape
    num_graphs, _, K, _ = parameters.shape[-4:]
    graphs = x if batch is None else batch  # not read without
    programs, options = plan("apply", x.dtype, num_nodes, channels, num_graphs, replicas)
    with torch.cuda.device_of(x):
        apply_kernel[(num_graphs, programs, replicas)](
            *(x, gamma, parameters, graphs, y, num_nodes),
            *(*x.stride()[:2], *y.stride()[:2], base[0], base[-1]),
            K=K,
            BATCHED=batch is not None,
            **options,
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    parameters: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, gamma and parameters."""
    grad, x = with_dense_rows(grad), with_dense_rows(x)
    gamma, parameters = gamma.contiguous(), parameters.contiguous()
    # Not views, to which autograd could not add in place.
    grad_x, grad_gamma = torch.empty_like(x), torch.empty_like(gamma)
    if grad.numel() == 0:
        return grad_x, grad_gamma.zero_(), torch.zeros_like(parameters)
    grad, x, out = (with_replicas(tensor, 2) for tensor in (grad, x, grad_x))
    replicas, num_nodes, channels = grad.shape
    num_graphs, _, K, _ = parameters.shape[-4:]
    programs, options = plan("apply_backward", x.dtype, num_nodes, channels, num_graphs, replicas)
    partial = parameters.new_empty(replicas, num_graphs, programs, 2, K, channels)
    graphs = x if batch is None else batch
    strides = *grad.stride()[:2], *x.stride()[:2], *out.stride()[:2]
    with torch.cuda.device_of(x):
        apply_backward_kernel[(num_graphs, programs, replicas)](
            *(grad, x, gamma, parameters, graphs, out, grad_gamma, partial, num_nodes),
            *(*strides, base[0], base[-1]),
            K=K,
            BATCHED=batch is not None,
            K_PADDED=1 << (K - 1).bit_length(),
            **options,
        )
    return grad_x, grad_gamma, partial.sum(dim=2).view(parameters.shape)
