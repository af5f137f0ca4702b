"""The channel-wise hyperfunction, from partial sums to parameters and back, in Triton.

It is small: a matrix of `2 K C` outputs and `C` inputs. What it would cost as a dozen operators of
torch are their launches.
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
def parameters_kernel(
    partial_ptr,
    weight_ptr,
    bias_ptr,
    gate_ptr,
    mean_ptr,
    hyper_ptr,
    parameters_ptr,
    num_partials,
    num_outputs,
    num_slopes,
    inverse_nodes,
    intercept_scale,
    GATED: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`tanh(weight @ mean + bias)`, and the same times the gate."""
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    total = tl.load(bias_ptr + outputs, mask=is_output, other=0.0)
    for chunk in tl.static_range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        in_cols = cols < C
        sums = tl.zeros([BLOCK, COLS], dtype=tl.float32)
        for first in range(0, num_partials, BLOCK):
            rows = first + tl.arange(0, BLOCK)
            is_there = (rows < num_partials)[:, None] & in_cols[None, :]
            at = partial_ptr + rows[:, None] * C + cols[None, :]
            sums += tl.load(at, mask=is_there, other=0.0)
        mean = tl.sum(sums, axis=0) * inverse_nodes
        if tl.program_id(0) == 0:
            tl.store(mean_ptr + cols, mean, mask=in_cols)
        mask = is_output[:, None] & in_cols[None, :]
        weight_at = weight_ptr + outputs[:, None] * C + cols[None, :]
        weight = tl.load(weight_at, mask=mask, other=0.0)
        total += tl.sum(weight * mean[None, :], axis=1)
    hyper = _tanh(total)
    tl.store(hyper_ptr + outputs, hyper, mask=is_output)
    if GATED:
        scale = tl.where(outputs < num_slopes, 1.0, intercept_scale)
        hyper *= tl.load(gate_ptr) * scale
    tl.store(parameters_ptr + outputs, hyper, mask=is_output)


@triton.jit
def output_gradient_kernel(
    partial_ptr,
    hyper_ptr,
    mean_ptr,
    gate_ptr,
    grad_bias_ptr,
    grad_weight_ptr,
    grad_gate_ptr,
    num_partials,
    partial_row,
    num_outputs,
    num_slopes,
    intercept_scale,
    GATED: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of bias and weight, and a program's part of the gate's."""
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_output = outputs < num_outputs
    sums = tl.zeros([BLOCK, OUTPUTS], dtype=tl.float32)
    for first in range(0, num_partials, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        is_there = (rows < num_partials)[:, None] & is_output[None, :]
        part = partial_ptr + rows[:, None] * partial_row + outputs[None, :]
        sums += tl.load(part, mask=is_there, other=0.0)
    grad = tl.sum(sums, axis=0)
    hyper = tl.load(hyper_ptr + outputs, mask=is_output, other=0.0)
    if GATED:
        grad *= tl.where(outputs < num_slopes, 1.0, intercept_scale)
        tl.store(grad_gate_ptr + tl.program_id(0), tl.sum(grad * hyper, axis=0))
        grad *= tl.load(gate_ptr)
    grad *= 1 - hyper * hyper
    tl.store(grad_bias_ptr + outputs, grad, mask=is_output)
    for chunk in tl.static_range(0, C, COLS):
        cols = chunk + tl.arange(0, COLS)
        mean = tl.load(mean_ptr + cols, mask=cols < C, other=0.0)
        mask = is_output[:, None] & (cols < C)[None, :]
        at = grad_weight_ptr + outputs[:, None] * C + cols[None, :]
        tl.store(at, grad[:, None] * mean[None, :], mask=mask)


@triton.jit
def input_gradient_kernel(
    weight_ptr,
    grad_bias_ptr,
    partial_gate_ptr,
    grad_sum_ptr,
    grad_gate_ptr,
    num_outputs,
    num_partials,
    inverse_nodes,
    GATED: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTIALS: tl.constexpr,
):
    """The gradient of the features' sum, `weight.T @ grad / N`, and the whole of the gate's."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    sums = tl.zeros([BLOCK, COLS], dtype=tl.float32)
    for first in range(0, num_outputs, BLOCK):
        rows = first + tl.arange(0, BLOCK)
        is_output = rows < num_outputs
        grad = tl.load(grad_bias_ptr + rows, mask=is_output, other=0.0)
        mask = is_output[:, None] & (cols < C)[None, :]
        weight = tl.load(weight_ptr + rows[:, None] * C + cols[None, :], mask=mask, other=0.0)
        sums += grad[:, None] * weight
    tl.store(grad_sum_ptr + cols, tl.sum(sums, axis=0) * inverse_nodes, mask=cols < C)
    if GATED:
        at = tl.arange(0, PARTIALS)
        parts = tl.load(partial_gate_ptr + at, mask=at < num_partials, other=0.0)
        tl.store(grad_gate_ptr, tl.sum(parts, axis=0), mask=tl.program_id(0) == 0)
