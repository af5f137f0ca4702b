"""The node-wise parameters from the node MLP's outputs, and back, in Triton.

A weight is `min(cap, u)` with `u_n = scale * softmax_n(z / temperature)`; the softmax is over all
nodes, so that each direction is a reduction into partial results, one for each program, and a pass
in which every program puts the few partial results together by itself.

Where the diffusion has renumbered and scaled the nodes (:mod:`graphrelu.sliced`), `z` comes times
`scale` in the new order, and its gradient goes out the same way: neither is rearranged in a pass of
its own. The parts below are called by the kernels of :mod:`graphrelu.block_kernels`.
"""

import triton
import triton.language as tl


@triton.jit
def statistics(
    program,
    programs,
    z_ptr,
    scale_ptr,
    largest_ptr,
    total_ptr,
    num_nodes,
    inverse_temperature,
    SLICED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest of a program's nodes, and the sum of their exponentials relative to it."""
    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], dtype=tl.float32)
    for first in range(program * BLOCK, num_nodes, programs * BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        mask = nodes < num_nodes
        z = tl.load(z_ptr + nodes, mask=mask, other=float("-inf")) * inverse_temperature
        if SLICED:
            z /= tl.load(scale_ptr + nodes, mask=mask, other=1.0)
        higher = tl.maximum(largest, tl.max(z, axis=0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(z - higher), axis=0)
        largest = higher
    tl.store(largest_ptr + program, largest)
    tl.store(total_ptr + program, total)


@triton.jit
def weights(
    program,
    z_ptr,
    rank_ptr,
    node_scale_ptr,
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
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The weights, with and without the cap."""
    at = tl.arange(0, PARTIALS)
    partial = tl.load(largest_ptr + at, mask=at < num_partials, other=float("-inf"))
    largest = tl.max(partial, axis=0)
    total = tl.load(total_ptr + at, mask=at < num_partials, other=0.0)
    total = tl.sum(total * tl.exp(partial - largest), axis=0)
    nodes = program * BLOCK + tl.arange(0, BLOCK)
    mask = nodes < num_nodes
    rows = nodes
    if SLICED:
        rows = tl.load(rank_ptr + nodes, mask=mask, other=0)
    z = tl.load(z_ptr + rows, mask=mask, other=0.0) * inverse_temperature
    if SLICED:
        z /= tl.load(node_scale_ptr + nodes, mask=mask, other=1.0)
    u = tl.exp(z - largest) * (scale / total)
    tl.store(u_ptr + nodes, u, mask=mask)
    tl.store(gamma_ptr + nodes, tl.where(u > cap, cap, u), mask=mask)  # a NaN stays one


@triton.jit
def inner_product(
    program, programs, u_ptr, grad_ptr, inner_ptr, num_nodes, cap, BLOCK: tl.constexpr
):
    """A program's part of `sum_n u_n dL/du_n`."""
    inner = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(program * BLOCK, num_nodes, programs * BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        u = tl.load(u_ptr + nodes, mask=nodes < num_nodes, other=0.0)
        grad = tl.load(grad_ptr + nodes, mask=nodes < num_nodes, other=0.0)
        inner += tl.where(u > cap, 0.0, u * grad)
    tl.store(inner_ptr + program, tl.sum(inner, axis=0))


@triton.jit
def logit_gradient(
    program,
    u_ptr,
    grad_ptr,
    inner_ptr,
    rank_ptr,
    node_scale_ptr,
    grad_z_ptr,
    num_nodes,
    num_partials,
    inverse_temperature,
    inverse_scale,
    cap,
    SLICED: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`dL/dz_n = u_n (dL/du_n - sum_m u_m dL/du_m / scale) / temperature`."""
    at = tl.arange(0, PARTIALS)
    inner = tl.sum(tl.load(inner_ptr + at, mask=at < num_partials, other=0.0), axis=0)
    nodes = program * BLOCK + tl.arange(0, BLOCK)
    mask = nodes < num_nodes
    u = tl.load(u_ptr + nodes, mask=mask, other=0.0)
    grad = tl.where(u > cap, 0.0, tl.load(grad_ptr + nodes, mask=mask, other=0.0))
    grad = u * (grad - inner * inverse_scale) * inverse_temperature
    if SLICED:
        grad *= tl.load(node_scale_ptr + nodes, mask=mask, other=0.0)
        nodes = tl.load(rank_ptr + nodes, mask=mask, other=0)
    tl.store(grad_z_ptr + nodes, grad, mask=mask)
