"""The smoothness of what the node MLP sees, and its gradient, in Triton.

With `p_n` the projection of node `n` and `z_n` the mean of the projections around it, `rho =
share ** SMOOTH`, `share = min(1, Var(z) / P)`, `P = Var(p) + noise * mean(p^2)`. Squares are added
in float64, which has the digits for a variance as the difference of two sums, and the range.

`moments` holds rho, the mean of `z`, that of `p` (less the noise) and `2 / (N P)` times the
derivative of rho, which is zero where the share is at its limit; then partial sums of `p`, `p^2`,
`z` and `z^2`, one of each for each program.
"""

import triton
import triton.language as tl


@triton.jit
def moments_kernel(
    z_ptr,
    rank_ptr,
    node_scale_ptr,
    unit_ptr,
    local_ptr,
    mean_ptr,
    moments_ptr,
    num_nodes,
    SLICED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The means from the diffused projections, in the order of the nodes, and the partial sums."""
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    p_sum = tl.zeros([BLOCK], dtype=tl.float64)
    p_square = tl.zeros([BLOCK], dtype=tl.float64)
    z_sum = tl.zeros([BLOCK], dtype=tl.float64)
    z_square = tl.zeros([BLOCK], dtype=tl.float64)
    for first in range(program * BLOCK, num_nodes, programs * BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        mask = nodes < num_nodes
        unit = tl.load(unit_ptr + nodes, mask=mask, other=1.0)
        rows = nodes
        if SLICED:
            unit *= tl.load(node_scale_ptr + nodes, mask=mask, other=1.0)
            rows = tl.load(rank_ptr + nodes, mask=mask, other=0)
        z = tl.load(z_ptr + rows, mask=mask, other=0.0) / unit
        tl.store(mean_ptr + nodes, z, mask=mask)
        p = tl.load(local_ptr + nodes, mask=mask, other=0.0).to(tl.float64)
        z = z.to(tl.float64)
        p_sum += p
        p_square += p * p
        z_sum += z
        z_square += z * z
    partial_ptr = moments_ptr + 4 + program
    tl.store(partial_ptr, tl.sum(p_sum, axis=0))
    tl.store(partial_ptr + programs, tl.sum(p_square, axis=0))
    tl.store(partial_ptr + 2 * programs, tl.sum(z_sum, axis=0))
    tl.store(partial_ptr + 3 * programs, tl.sum(z_square, axis=0))


@triton.jit
def _mean(partial_ptr, num_partials, num_nodes, PARTIALS: tl.constexpr):
    at = tl.arange(0, PARTIALS)
    return tl.sum(tl.load(partial_ptr + at, mask=at < num_partials, other=0.0), axis=0) / num_nodes


@triton.jit
def smoothness(
    program,
    num_partials,
    moments_ptr,
    num_nodes,
    noise,
    SMOOTH: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """Rho; the first program also writes what follows from the partial sums."""
    partial_ptr = moments_ptr + 4
    p_mean = _mean(partial_ptr, num_partials, num_nodes, PARTIALS)
    p_square = _mean(partial_ptr + num_partials, num_partials, num_nodes, PARTIALS)
    z_mean = _mean(partial_ptr + 2 * num_partials, num_partials, num_nodes, PARTIALS)
    z_square = _mean(partial_ptr + 3 * num_partials, num_partials, num_nodes, PARTIALS)
    p_variance, z_variance = p_square - p_mean * p_mean, z_square - z_mean * z_mean
    # Rounding may be below zero, and a NaN stays one.
    z_variance = tl.where(z_variance < 0, 0.0, z_variance)
    p_variance = tl.where(p_variance < 0, 0.0, p_variance) + noise * p_square
    is_seen = p_variance > 0
    p_variance = tl.where(is_seen, p_variance, 1.0)
    ratio = z_variance / p_variance
    rho = tl.where(ratio > 1, 1.0, ratio)
    pull = tl.where(is_seen & (ratio <= 1), 2 / (p_variance * num_nodes), 0.0)
    if SMOOTH == 2:
        pull *= 2 * rho
        rho *= rho
    tl.store(moments_ptr, rho, mask=program == 0)
    tl.store(moments_ptr + 1, z_mean, mask=program == 0)
    # P's gradient is pull * (p_n - mean(p) + noise * p_n), or pull * (1 + noise) * (p_n - m): the
    # noise is to be seen in m alone.
    tl.store(moments_ptr + 2, p_mean - noise * p_mean, mask=program == 0)
    tl.store(moments_ptr + 3, pull, mask=program == 0)
    return rho


@triton.jit
def direct_gradient(program, grad_rho, moments_ptr, direct_ptr, SMOOTH: tl.constexpr):
    """The factor of `z_n - mean(z)` in the gradient of `z_n`. What the gradient of `p_n` follows
    from is written by the first program: `slope * (p_n - mean)`, the mean as the sum of two numbers
    of half the digits."""
    pull = grad_rho * tl.load(moments_ptr + 3)
    mean = tl.load(moments_ptr + 2)
    rounded = mean.to(tl.float32)
    share = tl.load(moments_ptr)
    if SMOOTH == 2:
        share = tl.sqrt(share)
    slope = -(pull * share).to(tl.float32)
    tl.store(direct_ptr, slope, mask=program == 0)
    tl.store(direct_ptr + 1, rounded, mask=program == 0)
    tl.store(direct_ptr + 2, (mean - rounded).to(tl.float32), mask=program == 0)
    return pull.to(tl.float32)
