"""Project on a GPU: both outputs of one pass over the features, and both gradients of another.

Layout: `x [R, N, C]`, `weight [R, 1, C]`, `mass [R, N]`, of which all replicas that share one have
a stride of 0, and `batch [N]`, sorted.
"""

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
def project_kernel(
    x_ptr,
    weight_ptr,
    mass_ptr,
    batch_ptr,
    logits_ptr,
    partial_ptr,
    num_nodes,
    mass_replica,
    x_replica,
    x_row,
    C: tl.constexpr,
    BATCHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """`x @ weight` and the mean of `mass * x` of each graph, in one pass."""
    graph, program = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    replica = tl.program_id(2).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    x_ptr += replica * x_replica
    weight_ptr += replica * C
    mass_ptr += replica * mass_replica
    logits_ptr += replica * num_nodes
    group = replica * tl.num_programs(0) + graph
    partial_ptr += (group * tl.num_programs(1) + program) * C  # [R, B, programs, C]
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(weight_ptr + cols, mask=in_cols, other=0.0)
        total = tl.zeros([ROWS, COLS], dtype=tl.float32)
        begin = start + program * ROWS
        for first in tl.range(begin, end, tl.num_programs(1) * ROWS, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            mass = tl.load(mass_ptr + rows, mask=in_rows, other=0.0)
            total += x * mass[:, None]
            projected = tl.sum(x * weight[None, :], axis=1)
            if chunk > 0:
                projected += tl.load(logits_ptr + rows, mask=in_rows, other=0.0)
            tl.store(logits_ptr + rows, projected, mask=in_rows)
        share = tl.sum(total, axis=0) / tl.maximum(end - start, 1)
        tl.store(partial_ptr + cols, share, mask=in_cols)


@triton.jit
def project_backward_kernel(
    x_ptr,
    weight_ptr,
    mass_ptr,
    batch_ptr,
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
    BATCHED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradients of x and of the weight, in one pass."""
    graph, program = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    replica = tl.program_id(2).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    x_ptr += replica * x_replica
    weight_ptr += replica * C
    mass_ptr += replica * mass_replica
    grad_logits_ptr += replica * num_nodes
    grad_mean_ptr += (replica * tl.num_programs(0) + graph) * C
    grad_x_ptr += replica * grad_x_replica
    group = replica * tl.num_programs(0) + graph
    partial_ptr += (group * tl.num_programs(1) + program) * C  # [R, B, programs, C]
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(weight_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_sum = tl.load(grad_mean_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_sum /= tl.maximum(end - start, 1)
        total = tl.zeros([ROWS, COLS], dtype=tl.float32)
        begin = start + program * ROWS
        for first in tl.range(begin, end, tl.num_programs(1) * ROWS, num_stages=STAGES):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
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


def forward(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    """The node logits `[..., N, 1]`, and the mean of `mass * x` of each graph `[..., B, C]`."""
    logits, of_graphs = weight.new_empty(*x.shape[:-1], 1), (*x.shape[:-2], batch_size, x.size(-1))
    if x.numel() == 0:
        return logits, weight.new_zeros(of_graphs)
    x, mass = with_dense_rows(with_replicas(x, 2)), with_dense_rows(with_replicas(mass, 1))
    graphs = x if batch is None else batch.contiguous()  # not read without
    replicas, num_nodes, channels = x.shape
    programs, options = plan("project", x.dtype, num_nodes, channels, batch_size, replicas)
    partial = weight.new_empty(replicas, batch_size, programs, channels)
    with torch.cuda.device_of(x):
        project_kernel[(batch_size, programs, replicas)](
            *(x, weight.contiguous(), mass, graphs, logits, partial, num_nodes),
            *(mass.stride(0), *x.stride()[:2]),
            BATCHED=batch is not None,
            **options,
        )
    return logits, partial.sum(dim=2).view(of_graphs)


def backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    batch: Tensor | None,
    grad_logits: Tensor,
    grad_mean: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight."""
    x = with_dense_rows(x)
    grad_x = torch.empty_like(x)
    if x.numel() == 0:
        return grad_x, torch.zeros_like(weight)
    x, out = with_replicas(x, 2), with_replicas(grad_x, 2)
    mass = with_dense_rows(with_replicas(mass, 1))
    graphs = x if batch is None else batch.contiguous()
    replicas, num_nodes, channels = x.shape
    batch_size = grad_mean.size(-2)
    programs, options = plan("project_backward", x.dtype, num_nodes, channels, batch_size, replicas)
    partial = weight.new_empty(replicas, batch_size, programs, channels)
    grads = grad_logits.contiguous(), grad_mean.contiguous()
    with torch.cuda.device_of(x):
        project_backward_kernel[(batch_size, programs, replicas)](
            *(x, weight.contiguous(), mass, graphs, *grads, out, partial, num_nodes),
            *(mass.stride(0), *x.stride()[:2], *out.stride()[:2]),
            BATCHED=batch is not None,
            **options,
        )
    return grad_x, partial.sum(dim=(1, 2)).view_as(weight)
