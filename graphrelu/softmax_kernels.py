"""The node-wise parameters from the node MLP's outputs, and back, in Triton.

A weight is `min(cap, u)` with `u_n = scale * softmax_n(z / temperature)`; the softmax is over all
nodes, so that each direction is a reduction into partial results, one for each program, and a pass
in which every program puts the few partial results together by itself.

Where the diffusion has renumbered and scaled the nodes (:mod:`graphrelu.sliced`), `z` comes times
`scale` in the new order, and its gradient goes out the same way: neither is rearranged in a pass of
its own. The parts below are called by the kernels of :mod:`graphrelu.block_kernels`.

In the smooth form it is `softmax_n(rho * z / temperature)`, where `z` are the means of
:mod:`graphrelu.smooth_kernels`, in the order of the nodes, and `moments` what is known of them.
"""

import triton
import triton.language as tl

from graphrelu.smooth_kernels import direct_gradient, smoothness


@triton.jit
def statistics(
    program,
    programs,
    z_ptr,
    scale_ptr,
    moments_ptr,
    largest_ptr,
    total_ptr,
    num_nodes,
    inverse_temperature,
    noise,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest `z` of a program's nodes, and the sum of the exponentials relative to it.

    The factor comes after the difference: a product that is rounded here and not there, as part of
    a sum, would make an infinite weight of a large `z`.
    """
    factor = inverse_temperature
    if SMOOTH:
        rho = smoothness(program, programs, moments_ptr, num_nodes, noise, SMOOTH, PARTIALS)
        factor = inverse_temperature * rho.to(tl.float32)
    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], dtype=tl.float32)
    for first in range(program * BLOCK, num_nodes, programs * BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        mask = nodes < num_nodes
        z = tl.load(z_ptr + nodes, mask=mask, other=0.0)
        if SLICED:
            z /= tl.load(scale_ptr + nodes, mask=mask, other=1.0)
        higher = tl.maximum(largest, tl.max(tl.where(mask, z, float("-inf")), axis=0))
        # Nothing yet is relative to minus infinity, which a factor of zero would make a NaN of.
        largest = tl.where(total > 0, largest, higher)
        total *= tl.exp((largest - higher) * factor)
        total += tl.sum(tl.where(mask, tl.exp((z - higher) * factor), 0.0), axis=0)
        largest = higher
    tl.store(largest_ptr + program, largest)
    tl.store(total_ptr + program, total)


@triton.jit
def weights(
    program,
    z_ptr,
    rank_ptr,
    node_scale_ptr,
    moments_ptr,
    largest_ptr,
    total_ptr,
    u_ptr,
    gamma_ptr,
    num_nodes,
    num_partials,
    inverse_temperature,
    scale,
    cap,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The weights, with and without the cap."""
    factor = inverse_temperature
    if SMOOTH:
        factor = inverse_temperature * tl.load(moments_ptr).to(tl.float32)
    at = tl.arange(0, PARTIALS)
    partial = tl.load(largest_ptr + at, mask=at < num_partials, other=float("-inf"))
    largest = tl.max(partial, axis=0)
    partial = tl.where(at < num_partials, partial, largest)
    total = tl.load(total_ptr + at, mask=at < num_partials, other=0.0)
    total = tl.sum(total * tl.exp((partial - largest) * factor), axis=0)
    nodes = program * BLOCK + tl.arange(0, BLOCK)
    mask = nodes < num_nodes
    rows = nodes
    if SLICED:
        rows = tl.load(rank_ptr + nodes, mask=mask, other=0)
    z = tl.load(z_ptr + rows, mask=mask, other=0.0)
    if SLICED:
        z /= tl.load(node_scale_ptr + nodes, mask=mask, other=1.0)
    u = tl.exp((z - largest) * factor) * (scale / total)
    tl.store(u_ptr + nodes, u, mask=mask)
    tl.store(gamma_ptr + nodes, tl.where(u > cap, cap, u), mask=mask)  # a NaN stays one


@triton.jit
def inner_product(
    program,
    programs,
    u_ptr,
    grad_ptr,
    z_ptr,
    moments_ptr,
    inner_ptr,
    num_nodes,
    cap,
    SMOOTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program's part of `sum_n u_n dL/du_n`; in the smooth form also of `sum_n u_n dL/du_n d_n`
    and `sum_n u_n d_n`, with `d` the difference of `z` to its mean."""
    inner = tl.zeros([BLOCK], dtype=tl.float32)
    if SMOOTH:
        mean = tl.load(moments_ptr + 1)
        weighted = tl.zeros([BLOCK], dtype=tl.float32)
        centred = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(program * BLOCK, num_nodes, programs * BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        mask = nodes < num_nodes
        u = tl.load(u_ptr + nodes, mask=mask, other=0.0)
        grad = tl.load(grad_ptr + nodes, mask=mask, other=0.0)
        part = tl.where(u > cap, 0.0, u * grad)
        inner += part
        if SMOOTH:
            z = tl.load(z_ptr + nodes, mask=mask, other=0.0)
            difference = (z.to(tl.float64) - mean).to(tl.float32)
            weighted += part * difference
            centred += u * difference
    tl.store(inner_ptr + program, tl.sum(inner, axis=0))
    if SMOOTH:
        tl.store(inner_ptr + programs + program, tl.sum(weighted, axis=0))
        tl.store(inner_ptr + 2 * programs + program, tl.sum(centred, axis=0))


@triton.jit
def logit_gradient(
    program,
    u_ptr,
    grad_ptr,
    inner_ptr,
    rank_ptr,
    node_scale_ptr,
    z_ptr,
    unit_ptr,
    moments_ptr,
    grad_z_ptr,
    direct_ptr,
    num_nodes,
    num_partials,
    inverse_temperature,
    inverse_scale,
    cap,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`dL/dz_n = u_n (dL/du_n - sum_m u_m dL/du_m / scale) / temperature`.

    In the smooth form that is the gradient of `rho * z_n`, and what goes out that of the diffused
    projection, which `z` is in units of `unit`.
    """
    at = tl.arange(0, PARTIALS)
    inner = tl.sum(tl.load(inner_ptr + at, mask=at < num_partials, other=0.0), axis=0)
    nodes = program * BLOCK + tl.arange(0, BLOCK)
    mask = nodes < num_nodes
    u = tl.load(u_ptr + nodes, mask=mask, other=0.0)
    grad = tl.where(u > cap, 0.0, tl.load(grad_ptr + nodes, mask=mask, other=0.0))
    grad = u * (grad - inner * inverse_scale) * inverse_temperature
    if SMOOTH:
        weighted = tl.load(inner_ptr + num_partials + at, mask=at < num_partials, other=0.0)
        centred = tl.load(inner_ptr + 2 * num_partials + at, mask=at < num_partials, other=0.0)
        # The gradients of rho * z_n add up to zero: the mean of z has no part in that of rho.
        grad_rho = tl.sum(weighted, axis=0) - inner * inverse_scale * tl.sum(centred, axis=0)
        grad_rho *= inverse_temperature
        pull = direct_gradient(program, grad_rho, moments_ptr, direct_ptr, SMOOTH)
        z = tl.load(z_ptr + nodes, mask=mask, other=0.0).to(tl.float64)
        difference = (z - tl.load(moments_ptr + 1)).to(tl.float32)
        grad = grad * tl.load(moments_ptr).to(tl.float32) + pull * difference
        grad /= tl.load(unit_ptr + nodes, mask=mask, other=1.0)
    if SLICED:
        grad *= tl.load(node_scale_ptr + nodes, mask=mask, other=0.0)
        nodes = tl.load(rank_ptr + nodes, mask=mask, other=0)
    tl.store(grad_z_ptr + nodes, grad, mask=mask)
