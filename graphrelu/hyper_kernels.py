"""The channel-wise hyperfunction, from partial sums to parameters and back, in Triton.

It is small, a matrix of `2 K C` outputs and `C` inputs: its parts have no launches of their own but
are done by some of the programs of :mod:`graphrelu.block_kernels`.
"""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    """The series near zero, where the quotient would cancel."""
    square = x * x
    series = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    decay = tl.exp(-2 * tl.abs(x))
    quotient = (1 - decay) / (1 + decay)
    return tl.where(tl.abs(x) < 0.25, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def sum_rows(ptr, num_rows, stride, cols, in_cols, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of some columns of a matrix, in a fixed order."""
    sums = tl.zeros([BLOCK, COLS], dtype=tl.float32)
    for first in range(0, num_rows, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        mask = (rows < num_rows)[:, None] & in_cols[None, :]
        at = rows.to(tl.int64)[:, None] * stride + cols[None, :]
        sums += tl.load(ptr + at, mask=mask, other=0.0)
    return tl.sum(sums, axis=0)


@triton.jit
def _scale(outputs, num_slopes, first_scale, rest_scale, intercept_scale, C: tl.constexpr):
    """Of each output: slopes of the first segment, of the others, then intercepts."""
    slope_scale = tl.where(outputs < C, first_scale, rest_scale)
    return tl.where(outputs < num_slopes, slope_scale, intercept_scale)


@triton.jit
def _mean(ptr, C: tl.constexpr, BLOCK: tl.constexpr):
    """Of the first `C` numbers."""
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, C, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(ptr + at, mask=at < C, other=0.0)
    return tl.sum(total, axis=0) / C


@triton.jit
def centre_kernel(
    hyper_ptr, gate_ptr, slopes_ptr, first_scale, C: tl.constexpr, BLOCK: tl.constexpr
):
    """The first segment's slopes from the hyperfunction's outputs, relative to their mean."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    hyper = tl.load(hyper_ptr + at, mask=at < C, other=0.0) - _mean(hyper_ptr, C, BLOCK)
    tl.store(slopes_ptr + at, hyper * tl.load(gate_ptr) * first_scale, mask=at < C)


@triton.jit
def parameters(
    program,
    weight_ptr,
    bias_ptr,
    gate_ptr,
    mean_ptr,
    hyper_ptr,
    slopes_ptr,
    intercepts_ptr,
    moments_ptr,
    num_outputs,
    num_slopes,
    channel_scale,
    first_scale,
    rest_scale,
    intercept_scale,
    GATED: tl.constexpr,
    REST_SMOOTH: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    """`tanh(scale * (weight @ mean + bias))`, and the same times the gate and, but for the first
    segment's slopes, the smoothness; intercepts that are no outputs are zero."""
    outputs = program * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    total = tl.load(bias_ptr + outputs, mask=is_output, other=0.0)
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        mean = tl.load(mean_ptr + cols, mask=cols < C, other=0.0)
        mask = is_output[:, None] & (cols < C)[None, :]
        weight_at = weight_ptr + outputs[:, None] * C + cols[None, :]
        total += tl.sum(tl.load(weight_at, mask=mask, other=0.0) * mean[None, :], axis=1)
    hyper = _tanh(channel_scale * total)
    tl.store(hyper_ptr + outputs, hyper, mask=is_output)
    is_slope = outputs < num_slopes
    if GATED:
        scale = _scale(outputs, num_slopes, first_scale, rest_scale, intercept_scale, C)
        if REST_SMOOTH:
            scale = tl.where(outputs < C, scale, scale * tl.load(moments_ptr).to(tl.float32))
        hyper *= tl.load(gate_ptr) * scale
    tl.store(slopes_ptr + outputs, hyper, mask=is_slope)
    tl.store(intercepts_ptr + outputs - num_slopes, hyper, mask=is_output & (outputs >= num_slopes))
    if num_outputs == num_slopes:
        tl.store(intercepts_ptr + outputs, tl.zeros_like(hyper), mask=is_slope)


@triton.jit
def output_gradient(
    program,
    partial_ptr,
    hyper_ptr,
    mean_ptr,
    gate_ptr,
    grad_bias_ptr,
    grad_weight_ptr,
    partial_gate_ptr,
    moments_ptr,
    sums_ptr,
    num_partials,
    partial_row,
    num_outputs,
    num_slopes,
    channel_scale,
    first_scale,
    rest_scale,
    intercept_scale,
    GATED: tl.constexpr,
    REST_SMOOTH: tl.constexpr,
    CENTRED: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of bias and weight, and a program's part of the gate's. Where the first
    segment's slopes are centred, so are their gradients, whose sums are given."""
    outputs = program * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    grad = sum_rows(partial_ptr, num_partials, partial_row, outputs, is_output, OUTPUTS, BLOCK)
    hyper = tl.load(hyper_ptr + outputs, mask=is_output, other=0.0)
    if CENTRED:
        grad = tl.where(outputs < C, grad - _mean(sums_ptr, C, BLOCK), grad)
    if GATED:
        grad *= _scale(outputs, num_slopes, first_scale, rest_scale, intercept_scale, C)
        if REST_SMOOTH:
            grad = tl.where(outputs < C, grad, grad * tl.load(moments_ptr).to(tl.float32))
        tl.store(partial_gate_ptr + program, tl.sum(grad * hyper, axis=0))
        grad *= tl.load(gate_ptr)
    grad *= channel_scale * (1 - hyper * hyper)
    tl.store(grad_bias_ptr + outputs, grad, mask=is_output)
    for chunk in range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        mean = tl.load(mean_ptr + cols, mask=cols < C, other=0.0)
        mask = is_output[:, None] & (cols < C)[None, :]
        at = grad_weight_ptr + outputs[:, None] * C + cols[None, :]
        tl.store(at, grad[:, None] * mean[None, :], mask=mask)


@triton.jit
def input_gradient(
    program,
    weight_ptr,
    grad_bias_ptr,
    partial_gate_ptr,
    grad_sum_ptr,
    grad_gate_ptr,
    num_outputs,
    num_gates,
    inverse_nodes,
    GATED: tl.constexpr,
    C: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
    GATES: tl.constexpr,
):
    """The gradient of the features' sum, `weight.T @ grad / N`, and the whole of the gate's."""
    cols = program * OUTPUTS + tl.arange(0, OUTPUTS)
    sums = tl.zeros([BLOCK, OUTPUTS], dtype=tl.float32)
    for first in range(0, num_outputs, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        is_output = rows < num_outputs
        grad = tl.load(grad_bias_ptr + rows, mask=is_output, other=0.0)
        mask = is_output[:, None] & (cols < C)[None, :]
        weight_at = weight_ptr + rows.to(tl.int64)[:, None] * C + cols[None, :]
        weight = tl.load(weight_at, mask=mask, other=0.0)
        sums += grad[:, None] * weight
    tl.store(grad_sum_ptr + cols, tl.sum(sums, axis=0) * inverse_nodes, mask=cols < C)
    if GATED:
        at = tl.arange(0, GATES)
        parts = tl.load(partial_gate_ptr + at, mask=at < num_gates, other=0.0)
        tl.store(grad_gate_ptr, tl.sum(parts, axis=0), mask=program == 0)
