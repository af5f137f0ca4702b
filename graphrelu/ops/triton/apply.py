"""Apply on a GPU: one pass over the features forward, and one backward; for one or two segments.

Layout: `x [R, N, C]`, `gamma [R, N, 1]`, `parameters [R, 2, K, C]`: slopes, then intercepts.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton.tiles import plan, with_dense_rows, with_replicas


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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    program, replica = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    x_ptr += replica * x_replica
    gamma_ptr += replica * num_nodes
    parameters_ptr += replica * 2 * K * C
    y_ptr += replica * y_replica
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        a0, b0 = _segment(parameters_ptr, 0, cols, K, C)
        a1, b1 = _segment(parameters_ptr, K - 1, cols, K, C)
        step = tl.num_programs(0) * ROWS
        for first in tl.range(program * ROWS, num_nodes, step, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < num_nodes
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            best = base_first * x + weight * (a0 * x + b0)
            if K == 2:
                value = base_rest * x + weight * (a1 * x + b1)
                best = tl.where(value >= best, value, best)
            y_at = y_ptr + rows[:, None] * y_row + cols[None, :]
            tl.store(y_at, best.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def apply_backward_kernel(
    grad_ptr,
    x_ptr,
    gamma_ptr,
    parameters_ptr,
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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    program, replica = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    grad_ptr += replica * grad_replica
    x_ptr += replica * x_replica
    gamma_ptr += replica * num_nodes
    parameters_ptr += replica * 2 * K * C
    grad_x_ptr += replica * grad_x_replica
    grad_gamma_ptr += replica * num_nodes
    partial_ptr += (replica * tl.num_programs(0) + program) * 2 * K * C  # [R, programs, 2, K, C]
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        a0, b0 = _segment(parameters_ptr, 0, cols, K, C)
        a1, b1 = _segment(parameters_ptr, K - 1, cols, K, C)
        # A tile for each sum: rows are added across threads once, at the end.
        sum_a0 = tl.zeros([ROWS, COLS], dtype=tl.float32)
        sum_b0, sum_a1, sum_b1 = sum_a0, sum_a0, sum_a0
        step = tl.num_programs(0) * ROWS
        for first in tl.range(program * ROWS, num_nodes, step, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < num_nodes
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            grad_at = grad_ptr + rows[:, None] * grad_row + cols[None, :]
            grad = tl.load(grad_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            inner = a0 * x + b0
            slope = base_first + weight * a0 + tl.zeros_like(x)
            part = grad * weight
            if K == 2:
                own = a1 * x + b1
                # A tie goes to the later segment.
                later = base_rest * x + weight * own >= base_first * x + weight * inner
                inner = tl.where(later, own, inner)
                slope = tl.where(later, base_rest + weight * a1, slope)
                of_later = tl.where(later, part, 0.0)
                sum_a1 += of_later * x
                sum_b1 += of_later
                part = tl.where(later, 0.0, part)
            sum_a0 += part * x
            sum_b0 += part
            grad_x = (grad * slope).to(grad_x_ptr.dtype.element_ty)
            grad_x_at = grad_x_ptr + rows[:, None] * grad_x_row + cols[None, :]
            tl.store(grad_x_at, grad_x, mask=mask)
            node = tl.sum(inner * grad, axis=1)  # the gradient of the weight
            if chunk > 0:
                node += tl.load(grad_gamma_ptr + rows, mask=in_rows, other=0.0)
            tl.store(grad_gamma_ptr + rows, node, mask=in_rows)
        tl.store(partial_ptr + cols, tl.sum(sum_a0, axis=0), mask=in_cols)
        tl.store(partial_ptr + K * C + cols, tl.sum(sum_b0, axis=0), mask=in_cols)
        if K == 2:
            tl.store(partial_ptr + C + cols, tl.sum(sum_a1, axis=0), mask=in_cols)
            tl.store(partial_ptr + 3 * C + cols, tl.sum(sum_b1, axis=0), mask=in_cols)


def forward(x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float]) -> Tensor:
    """Reads x once and writes y once."""
    x, gamma, parameters = with_dense_rows(x), gamma.contiguous(), parameters.contiguous()
    out = torch.empty_like(x)  # not a view: users may write to it
    if out.numel() == 0:
        return out
    x, y = with_replicas(x, 2), with_replicas(out, 2)
    replicas, num_nodes, channels = x.shape
    programs, options = plan("apply", x.dtype, num_nodes, channels, replicas)
    with torch.cuda.device_of(x):
        apply_kernel[(programs, replicas)](
            *(x, gamma, parameters, y, num_nodes),
            *(*x.stride()[:2], *y.stride()[:2], base[0], base[-1]),
            K=parameters.size(-2),
            **options,
        )
    return out


def backward(
    grad: Tensor, x: Tensor, gamma: Tensor, parameters: Tensor, base: Sequence[float]
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
    K = parameters.size(-2)
    programs, options = plan("apply_backward", x.dtype, num_nodes, channels, replicas)
    partial = parameters.new_empty(replicas, programs, 2, K, channels)
    strides = *grad.stride()[:2], *x.stride()[:2], *out.stride()[:2]
    with torch.cuda.device_of(x):
        apply_backward_kernel[(programs, replicas)](
            *(grad, x, gamma, parameters, out, grad_gamma, partial, num_nodes),
            *(*strides, base[0], base[-1]),
            K=K,
            **options,
        )
    return grad_x, grad_gamma, partial.sum(dim=1).view(parameters.shape)
