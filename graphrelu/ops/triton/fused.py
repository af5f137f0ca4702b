"""Fused on a GPU: GReLU on a batch of small graphs, one launch forward and one backward.

One program takes a graph, from the features to the output. Between its steps, what all of its
threads need stands in memory, where a barrier makes it visible.

Layout: `x [N, C]`, `parameters [B, 4, C]`: the slopes and then the intercepts of both segments;
`batch [N]`, sorted, or none for a single graph.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.ops.triton.tiles import with_dense_rows

_TILE, _WARPS = 2048, 8
_MAX_CHANNELS = 256  # of a tile
_ENTRIES = 4  # of a row of the matrix, taken at a time: the degree of an atom
_MIN_NODES, _MAX_NODES = 32, 512  # of a vector with one entry per node
_PROBES = tl.constexpr(256)


@triton.jit
def _first_node(batch_ptr, graph, num_nodes):
    """The first node of a graph, in a sorted `batch`: a search by many probes at a time."""
    first = graph * 0
    left = first + num_nodes
    while left > 0:
        apart = tl.cdiv(left, _PROBES)
        probes = tl.arange(0, _PROBES) * apart
        of_graph = tl.load(batch_ptr + first + probes, mask=probes < left, other=graph)
        before = tl.sum((of_graph < graph).to(tl.int32), axis=0)
        # The graph begins after the last probe that is before it.
        passed = tl.maximum((before - 1) * apart + 1, 0)
        first += passed
        left = tl.where(before > 0, tl.minimum(left - passed, apart - 1), 0)
    return first


@triton.jit
def nodes_of(batch_ptr, graph, num_nodes, BATCHED: tl.constexpr):
    """Where the nodes of a graph begin and end: without a batch they are all."""
    start, end = graph * 0, graph * 0 + num_nodes
    if BATCHED:
        start = _first_node(batch_ptr, graph, num_nodes)
        end = _first_node(batch_ptr, graph + 1, num_nodes)
    return start, end


@triton.jit
def _tanh(y):
    """Its series near zero, where the other form would cancel."""
    square = y * y
    series = 2.0 / 15.0 + square * (-17.0 / 315.0 + square * (62.0 / 2835.0))
    near = y * (1.0 + square * (-1.0 / 3.0 + square * series))
    return tl.where(square < 0.0625, near, 1.0 - 2.0 / (1.0 + tl.exp(2.0 * y)))


@triton.jit
def _diffuse(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    constant_ptr,
    spare_ptr,
    out_ptr,
    start,
    end,
    alpha,
    steps,
    NODES: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Power iteration from `constant`; in turns into `out` and `spare`, and last into `out`."""
    vector_ptr = constant_ptr
    for step in range(steps):
        to_ptr = tl.where((steps - step) % 2 == 1, out_ptr, spare_ptr)
        for first in range(start, end, NODES):
            rows = first + tl.arange(0, NODES)
            in_rows = rows < end
            begin = tl.load(rowptr_ptr + rows, mask=in_rows, other=0)
            stop = tl.load(rowptr_ptr + rows + 1, mask=in_rows, other=0)
            total = tl.zeros([NODES, ENTRIES], dtype=tl.float32)
            for passed in range(0, tl.max(stop - begin, axis=0), ENTRIES):
                entries = begin[:, None] + passed + tl.arange(0, ENTRIES)[None, :]
                mask = entries < stop[:, None]
                col = tl.load(col_ptr + entries, mask=mask, other=0)
                value = tl.load(value_ptr + entries, mask=mask, other=0.0)
                total += value * tl.load(vector_ptr + col, mask=mask, other=0.0)
            out = (1.0 - alpha) * tl.sum(total, axis=1)
            out += alpha * tl.load(constant_ptr + rows, mask=in_rows, other=0.0)
            tl.store(to_ptr + rows, out, mask=in_rows)
        tl.debug_barrier()
        vector_ptr = to_ptr


@triton.jit
def _softmax_sums(logits_ptr, start, end, temperature, NODES: tl.constexpr):
    """The largest logit, and the sum of the exponentials of all others' distances from it."""
    largest = tl.full([NODES], float("-inf"), dtype=tl.float32)
    for first in range(start, end, NODES):
        nodes = first + tl.arange(0, NODES)
        z = tl.load(logits_ptr + nodes, mask=nodes < end, other=float("-inf"))
        largest = tl.maximum(largest, z)
    most = tl.max(largest, axis=0)
    sums = tl.zeros([NODES], dtype=tl.float64)
    for first in range(start, end, NODES):
        nodes = first + tl.arange(0, NODES)
        z = tl.load(logits_ptr + nodes, mask=nodes < end, other=float("-inf"))
        sums += tl.exp((z - most) / temperature).to(tl.float64)
    return most, tl.sum(sums, axis=0).to(tl.float32)


@triton.jit
def fused_kernel(
    x_ptr,
    node_weight_ptr,
    channel_weight_ptr,
    channel_bias_ptr,
    mass_ptr,
    rowptr_ptr,
    col_ptr,
    value_ptr,
    batch_ptr,
    kept_nodes_ptr,
    kept_channels_ptr,
    y_ptr,
    mean_ptr,
    parameters_ptr,
    logits_ptr,
    gamma_ptr,
    scratch_ptr,
    num_nodes,
    x_row,
    alpha,
    steps,
    scale,
    temperature,
    gamma_max,
    negative_slope,
    C: tl.constexpr,
    BATCHED: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    NODES: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    graph = tl.program_id(0).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    count = tl.maximum(end - start, 1).to(tl.float32)
    projected_ptr, spare_ptr = scratch_ptr, scratch_ptr + num_nodes
    mean_ptr += graph * C
    parameters_ptr += graph * 4 * C
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(node_weight_ptr + cols, mask=in_cols, other=0.0)[None, :]
        total = tl.zeros([ROWS, COLS], dtype=tl.float32)
        for first in range(start, end, ROWS):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            total += x * tl.load(mass_ptr + rows, mask=in_rows, other=0.0)[:, None]
            projected = tl.sum(x * weight, axis=1)
            if chunk > 0:
                projected += tl.load(projected_ptr + rows, mask=in_rows, other=0.0)
            tl.store(projected_ptr + rows, projected, mask=in_rows)
        mean = tl.sum(total, axis=0) / count
        tl.store(mean_ptr + cols, mean, mask=in_cols)
        for k in tl.static_range(4):
            at = k * C + cols
            own = tl.load(channel_bias_ptr + at, mask=in_cols, other=0.0)
            own += tl.load(channel_weight_ptr + at, mask=in_cols, other=0.0) * mean
            own = _tanh(scale * own)
            if DROPS:
                own *= tl.load(kept_channels_ptr + cols, mask=in_cols, other=0).to(tl.float32)
            tl.store(parameters_ptr + at, own, mask=in_cols)
        tl.debug_barrier()
    _diffuse(
        rowptr_ptr,
        col_ptr,
        value_ptr,
        projected_ptr,
        spare_ptr,
        logits_ptr,
        start,
        end,
        alpha,
        steps,
        NODES,
        ENTRIES,
    )
    most, total = _softmax_sums(logits_ptr, start, end, temperature, NODES)
    for first in range(start, end, NODES):
        nodes = first + tl.arange(0, NODES)
        z = tl.load(logits_ptr + nodes, mask=nodes < end, other=0.0)
        gamma = count * (tl.exp((z - most) / temperature) / total)
        gamma = tl.where(gamma > gamma_max, gamma_max, gamma)
        if DROPS:
            gamma *= tl.load(kept_nodes_ptr + nodes, mask=nodes < end, other=0).to(tl.float32)
        tl.store(gamma_ptr + nodes, gamma, mask=nodes < end)
    tl.debug_barrier()
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        a0 = tl.load(parameters_ptr + cols, mask=in_cols, other=0.0)[None, :]
        a1 = tl.load(parameters_ptr + C + cols, mask=in_cols, other=0.0)[None, :]
        b0 = tl.load(parameters_ptr + 2 * C + cols, mask=in_cols, other=0.0)[None, :]
        b1 = tl.load(parameters_ptr + 3 * C + cols, mask=in_cols, other=0.0)[None, :]
        for first in range(start, end, ROWS):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            y = x + weight * (a0 * x + b0)
            other = negative_slope * x + weight * (a1 * x + b1)
            y = tl.where(other >= y, other, y)
            tl.store(y_ptr + rows[:, None] * C + cols[None, :], y.to(y_ptr.dtype.element_ty), mask)


@triton.jit
def fused_backward_kernel(
    grad_ptr,
    x_ptr,
    node_weight_ptr,
    channel_weight_ptr,
    mean_ptr,
    parameters_ptr,
    logits_ptr,
    gamma_ptr,
    mass_ptr,
    rowptr_ptr,
    col_ptr,
    value_ptr,
    batch_ptr,
    kept_nodes_ptr,
    kept_channels_ptr,
    grad_x_ptr,
    partial_ptr,
    grad_mean_ptr,
    scratch_ptr,
    num_nodes,
    grad_row,
    x_row,
    alpha,
    steps,
    scale,
    temperature,
    gamma_max,
    negative_slope,
    C: tl.constexpr,
    BATCHED: tl.constexpr,
    DROPS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    NODES: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """The graph's share of the gradients of the parameters goes into `partial [B, 9, C]`: the node
    weight, then the channels' weights, then their biases."""
    graph = tl.program_id(0).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    count = tl.maximum(end - start, 1).to(tl.float32)
    mean_ptr += graph * C
    grad_mean_ptr += graph * C
    parameters_ptr += graph * 4 * C
    partial_ptr += graph * 9 * C
    grad_gamma_ptr, grad_logits_ptr = scratch_ptr, scratch_ptr + num_nodes
    spare_ptr, diffused_ptr = scratch_ptr + 2 * num_nodes, scratch_ptr + 3 * num_nodes
    # Apply.
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        a0 = tl.load(parameters_ptr + cols, mask=in_cols, other=0.0)
        a1 = tl.load(parameters_ptr + C + cols, mask=in_cols, other=0.0)
        b0 = tl.load(parameters_ptr + 2 * C + cols, mask=in_cols, other=0.0)
        b1 = tl.load(parameters_ptr + 3 * C + cols, mask=in_cols, other=0.0)
        sum_a0 = tl.zeros([ROWS, COLS], dtype=tl.float32)
        sum_a1, sum_b0, sum_b1 = sum_a0, sum_a0, sum_a0
        for first in range(start, end, ROWS):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            grad_at = grad_ptr + rows[:, None] * grad_row + cols[None, :]
            grad = tl.load(grad_at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(gamma_ptr + rows, mask=in_rows, other=0.0)[:, None]
            inner0 = a0[None, :] * x + b0[None, :]
            inner1 = a1[None, :] * x + b1[None, :]
            # A tie goes to the later segment.
            later = negative_slope * x + weight * inner1 >= x + weight * inner0
            slope0, slope1 = 1.0 + weight * a0[None, :], negative_slope + weight * a1[None, :]
            grad_x = grad * tl.where(later, slope1, slope0)
            grad_x_at = grad_x_ptr + rows[:, None] * C + cols[None, :]
            tl.store(grad_x_at, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
            grad_gamma = tl.sum(grad * tl.where(later, inner1, inner0), axis=1)
            if chunk > 0:
                grad_gamma += tl.load(grad_gamma_ptr + rows, mask=in_rows, other=0.0)
            tl.store(grad_gamma_ptr + rows, grad_gamma, mask=in_rows)
            grad1 = tl.where(later, grad * weight, 0.0)
            grad0 = tl.where(later, 0.0, grad * weight)
            sum_a0 += grad0 * x
            sum_a1 += grad1 * x
            sum_b0 += grad0
            sum_b1 += grad1
        # The channel map.
        mean = tl.load(mean_ptr + cols, mask=in_cols, other=0.0)
        grad_mean = tl.zeros([COLS], dtype=tl.float32)
        for k in tl.static_range(4):
            if k == 0:
                own, tanh = tl.sum(sum_a0, axis=0), a0
            elif k == 1:
                own, tanh = tl.sum(sum_a1, axis=0), a1
            elif k == 2:
                own, tanh = tl.sum(sum_b0, axis=0), b0
            else:
                own, tanh = tl.sum(sum_b1, axis=0), b1
            if DROPS:
                own *= tl.load(kept_channels_ptr + cols, mask=in_cols, other=0).to(tl.float32)
            own *= scale * (1.0 - tanh * tanh)
            tl.store(partial_ptr + (1 + k) * C + cols, own * mean, mask=in_cols)
            tl.store(partial_ptr + (5 + k) * C + cols, own, mask=in_cols)
            at = channel_weight_ptr + k * C + cols
            grad_mean += own * tl.load(at, mask=in_cols, other=0.0)
        tl.store(grad_mean_ptr + cols, grad_mean / count, mask=in_cols)
        tl.debug_barrier()
    # Weigh, over the nodes twice: for the mean of softmax times gradient, and with it.
    most, total = _softmax_sums(logits_ptr, start, end, temperature, NODES)
    centre = 0.0
    for turn in tl.static_range(2):
        sums = tl.zeros([NODES], dtype=tl.float64)
        for first in range(start, end, NODES):
            nodes = first + tl.arange(0, NODES)
            in_nodes = nodes < end
            z = tl.load(logits_ptr + nodes, mask=in_nodes, other=float("-inf"))
            softmax = tl.exp((z - most) / temperature) / total
            grad = count * tl.load(grad_gamma_ptr + nodes, mask=in_nodes, other=0.0)
            if DROPS:
                grad *= tl.load(kept_nodes_ptr + nodes, mask=in_nodes, other=0).to(tl.float32)
            grad = tl.where(count * softmax > gamma_max, 0.0, grad)
            if turn == 0:
                sums += (softmax * grad).to(tl.float64)
            else:
                grad = softmax * (grad - centre) / temperature
                tl.store(grad_logits_ptr + nodes, grad, mask=in_nodes)
        if turn == 0:
            centre = tl.sum(sums, axis=0).to(tl.float32)
    tl.debug_barrier()
    _diffuse(
        rowptr_ptr,
        col_ptr,
        value_ptr,
        grad_logits_ptr,
        spare_ptr,
        diffused_ptr,
        start,
        end,
        alpha,
        steps,
        NODES,
        ENTRIES,
    )
    # Project.
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        weight = tl.load(node_weight_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_mean = tl.load(grad_mean_ptr + cols, mask=in_cols, other=0.0)[None, :]
        grad_weight = tl.zeros([ROWS, COLS], dtype=tl.float32)
        for first in range(start, end, ROWS):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < end
            mask = in_rows[:, None] & in_cols[None, :]
            x_at = x_ptr + rows[:, None] * x_row + cols[None, :]
            x = tl.load(x_at, mask=mask, other=0.0).to(tl.float32)
            grad = tl.load(diffused_ptr + rows, mask=in_rows, other=0.0)[:, None]
            mass = tl.load(mass_ptr + rows, mask=in_rows, other=0.0)[:, None]
            grad_weight += grad * x
            grad_x_at = grad_x_ptr + rows[:, None] * C + cols[None, :]
            grad_x = tl.load(grad_x_at, mask=mask, other=0.0).to(tl.float32)
            grad_x += grad * weight + mass * grad_mean
            tl.store(grad_x_at, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        tl.store(partial_ptr + cols, tl.sum(grad_weight, axis=0), mask=in_cols)


def forward(
    x: Tensor, node_weight: Tensor, channel_weight: Tensor, channel_bias: Tensor, given: Any
) -> tuple[Tensor, ...]:
    """The output; and mean, parameters, diffused logits and weights, for the backward pass."""
    num_nodes, channels = x.shape
    graphs, mass = given.batch_size, given.mass
    out, parameters = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        mass.new_empty(graphs, 4, channels),
    )
    mean, logits, gamma = (
        mass.new_empty(graphs, channels),
        torch.empty_like(mass),
        torch.empty_like(mass),
    )
    x = with_dense_rows(x)
    weights = (w.contiguous() for w in (node_weight, channel_weight, channel_bias))
    scratch = mass.new_empty(2, num_nodes)
    with torch.cuda.device_of(x):
        fused_kernel[(graphs,)](
            *(x, *weights, *_graph(given, x), out, mean, parameters, logits, gamma, scratch),
            *(num_nodes, x.stride(0), *_constants(given)),
            **_options(x, given),
        )
    return out, mean, parameters, logits, gamma


def backward(
    grad: Tensor,
    x: Tensor,
    node_weight: Tensor,
    channel_weight: Tensor,
    mean: Tensor,
    parameters: Tensor,
    logits: Tensor,
    gamma: Tensor,
    given: Any,
) -> tuple[Tensor, ...]:
    """The gradients of the features, of the node weight, and of the channels' weight and bias."""
    num_nodes, channels = x.shape
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partial = mean.new_empty(given.batch_size, 9, channels)
    grad, x = with_dense_rows(grad), with_dense_rows(x)
    seen = node_weight.contiguous(), channel_weight.contiguous(), mean, parameters, logits, gamma
    scratch = torch.empty_like(mean), mean.new_empty(4, num_nodes)
    with torch.cuda.device_of(x):
        fused_backward_kernel[(given.batch_size,)](
            *(grad, x, *seen, *_graph(given, x), grad_x, partial, *scratch),
            *(num_nodes, grad.stride(0), x.stride(0), *_constants(given)),
            **_options(x, given),
        )
    return grad_x, *partial.sum(dim=0).split([1, 4, 4])


def _graph(given: Any, unread: Tensor) -> list[Tensor]:
    """What of the graph and of dropout is there; the rest is not read."""
    tensors = (
        given.mass,
        given.rowptr,
        given.col,
        given.value,
        given.batch,
        given.kept_nodes,
        given.kept_channels,
    )
    return [unread if tensor is None else tensor.contiguous() for tensor in tensors]


def _constants(given: Any) -> tuple[Any, ...]:
    limits = given.scale, given.temperature, given.gamma_max
    return given.alpha, given.steps, *limits, given.negative_slope


def _options(x: Tensor, given: Any) -> dict[str, Any]:
    """How the work of a program is divided."""
    num_nodes, channels = x.shape
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS)
    nodes = 1 << (num_nodes // given.batch_size).bit_length()
    return {
        "C": channels,
        "BATCHED": given.batch is not None,
        "DROPS": given.kept_nodes is not None,
        "ROWS": max(1, _TILE // cols),
        "COLS": cols,
        "NODES": min(max(nodes, _MIN_NODES), _MAX_NODES),
        "ENTRIES": _ENTRIES,
        "num_warps": _WARPS,
    }
