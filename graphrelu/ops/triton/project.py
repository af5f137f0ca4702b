"""Project on a GPU: both outputs of one pass over the features, and both gradients of another.

Layout: `x [R, N, C]`, `weight [R, 1, C]`, `mass [R, N]`, of which all replicas that share one have
a stride of 0.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton.tiles import plan, with_dense_rows, with_replicas


@triton.jit
def project_kernel(
    x_ptr,
    weight_ptr,
    mass_ptr,
    logits_ptr,
    partial_ptr,
    num_nodes,
    mass_replica,
    x_replica,
    x_row,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """`x @ weight` and the mean of `mass * x`, in one pass."""
    program, replica = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    x_ptr += replica * x_replica
    weight_ptr += replica * C
    mass_ptr += replica * mass_replica
    logits_ptr += replica * num_nodes
    partial_ptr += (replica * tl.num_programs(0) + program) * C  # [R, programs, C]
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(weight_ptr + cols, mask=in_cols, other=0.0)
        total = tl.zeros([ROWS, COLS], dtype=tl.float32)
        step = tl.num_programs(0) * ROWS
        for first in tl.range(program * ROWS, num_nodes, step, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < num_nodes
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            mass = tl.load(mass_ptr + rows, mask=in_rows, other=0.0)
            total += x * mass[:, None]
            projected = tl.sum(x * weight[None, :], axis=1)
            if chunk > 0:
                projected += tl.load(logits_ptr + rows, mask=in_rows, other=0.0)
            tl.store(logits_ptr + rows, projected, mask=in_rows)
        share = tl.sum(total, axis=0) / num_nodes
        tl.store(partial_ptr + cols, share, mask=in_cols)


@triton.jit
def project_backward_kernel(
    x_ptr,
    weight_ptr,
    mass_ptr,
    grad_logits_ptr,
    grad_mean_ptr,
    grad_x_ptr,
    partial_ptr,
    num_nodes,
    mass_replica,
    x_replica,
    x_row,
    grad_x_replica,
    grad_x_row,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradients of x and of the weight, in one pass."""
    program, replica = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    x_ptr += replica * x_replica
    weight_ptr += replica * C
    mass_ptr += replica * mass_replica
    grad_logits_ptr += replica * num_nodes
    grad_mean_ptr += replica * C
    grad_x_ptr += replica * grad_x_replica
    partial_ptr += (replica * tl.num_programs(0) + program) * C  # [R, programs, C]
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(weight_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_sum = tl.load(grad_mean_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_sum /= num_nodes
        total = tl.zeros([ROWS, COLS], dtype=tl.float32)
        step = tl.num_programs(0) * ROWS
        for first in tl.range(program * ROWS, num_nodes, step, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < num_nodes
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            mass = tl.load(mass_ptr + rows, mask=in_rows, other=0.0)[:, None]
            grad = tl.load(grad_logits_ptr + rows, mask=in_rows, other=0.0)[:, None]
            total += x * grad
            grad_x = grad * weight + mass * grad_sum
            grad_x_at = grad_x_ptr + rows[:, None] * grad_x_row + cols[None, :]
            tl.store(grad_x_at, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        tl.store(partial_ptr + cols, tl.sum(total, axis=0), mask=in_cols)


def forward(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The node logits `[..., N, 1]`, and the mean of `mass * x`, `[..., 1, C]`."""
    logits, of_graph = weight.new_empty(*x.shape[:-1], 1), (*x.shape[:-2], 1, x.size(-1))
    if x.numel() == 0:
        return logits, weight.new_zeros(of_graph)
    x, mass = with_dense_rows(with_replicas(x, 2)), with_dense_rows(with_replicas(mass, 1))
    replicas, num_nodes, channels = x.shape
    programs, options = plan("project", x.dtype, num_nodes, channels, replicas)
    partial = weight.new_empty(replicas, programs, channels)
    with torch.cuda.device_of(x):
        project_kernel[(programs, replicas)](
            *(x, weight.contiguous(), mass, logits, partial, num_nodes),
            *(mass.stride(0), *x.stride()[:2]),
            **options,
        )
    return logits, partial.sum(dim=1).view(of_graph)


def backward(
    x: Tensor, weight: Tensor, mass: Tensor, grad_logits: Tensor, grad_mean: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight."""
    x = with_dense_rows(x)
    grad_x = torch.empty_like(x)
    if x.numel() == 0:
        return grad_x, torch.zeros_like(weight)
    x, out = with_replicas(x, 2), with_replicas(grad_x, 2)
    mass = with_dense_rows(with_replicas(mass, 1))
    replicas, num_nodes, channels = x.shape
    programs, options = plan("project_backward", x.dtype, num_nodes, channels, replicas)
    partial = weight.new_empty(replicas, programs, channels)
    grads = grad_logits.contiguous(), grad_mean.contiguous()
    with torch.cuda.device_of(x):
        project_backward_kernel[(programs, replicas)](
            *(x, weight.contiguous(), mass, *grads, out, partial, num_nodes),
            *(mass.stride(0), *x.stride()[:2], *out.stride()[:2]),
            **options,
        )
    return grad_x, partial.sum(dim=1).view_as(weight)
