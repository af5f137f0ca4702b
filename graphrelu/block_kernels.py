"""The node block and the channel block of an activation, side by side, in Triton.

Each is a short chain of small steps, and the chains do not depend on each other. A kernel here does
one step of both: its first programs are the channel block's (:mod:`graphrelu.hyper_kernels`), all
others the node block's (:mod:`graphrelu.softmax_kernels`).
"""

import triton
import triton.language as tl

from graphrelu.hyper_kernels import input_gradient, output_gradient, parameters, sum_rows
from graphrelu.softmax_kernels import inner_product, logit_gradient, statistics, weights


@triton.jit
def statistics_kernel(
    partial_ptr,
    mean_ptr,
    z_ptr,
    scale_ptr,
    moments_ptr,
    largest_ptr,
    total_ptr,
    num_partials,
    channel_programs,
    num_nodes,
    inverse_nodes,
    inverse_temperature,
    noise,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    C: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The features' mean from partial sums, and partial results of the softmax."""
    program = tl.program_id(0).to(tl.int64)
    if program < channel_programs:
        cols = program * OUTPUTS + tl.arange(0, OUTPUTS)
        total = sum_rows(partial_ptr, num_partials, C, cols, cols < C, OUTPUTS, ROWS)
        tl.store(mean_ptr + cols, total * inverse_nodes, mask=cols < C)
    else:
        statistics(
            program - channel_programs,
            tl.num_programs(0) - channel_programs,
            z_ptr,
            scale_ptr,
            moments_ptr,
            largest_ptr,
            total_ptr,
            num_nodes,
            inverse_temperature,
            noise,
            SLICED,
            SMOOTH,
            PARTIALS,
            BLOCK,
        )


@triton.jit
def parameters_kernel(
    weight_ptr,
    bias_ptr,
    gate_ptr,
    mean_ptr,
    hyper_ptr,
    slopes_ptr,
    intercepts_ptr,
    z_ptr,
    rank_ptr,
    node_scale_ptr,
    moments_ptr,
    largest_ptr,
    total_ptr,
    u_ptr,
    gamma_ptr,
    num_outputs,
    num_slopes,
    channel_programs,
    num_nodes,
    num_partials,
    channel_scale,
    first_scale,
    rest_scale,
    intercept_scale,
    inverse_temperature,
    scale,
    cap,
    GATED: tl.constexpr,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    REST_SMOOTH: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Slopes and intercepts, and the nodes' weights."""
    program = tl.program_id(0).to(tl.int64)
    if program < channel_programs:
        parameters(
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
            GATED,
            REST_SMOOTH,
            C,
            COLS,
            OUTPUTS,
        )
    else:
        weights(
            program - channel_programs,
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
            SLICED,
            SMOOTH,
            PARTIALS,
            BLOCK,
        )


@triton.jit
def output_gradient_kernel(
    partial_ptr,
    hyper_ptr,
    mean_ptr,
    gate_ptr,
    grad_bias_ptr,
    grad_weight_ptr,
    partial_gate_ptr,
    sums_ptr,
    u_ptr,
    grad_gamma_ptr,
    z_ptr,
    moments_ptr,
    inner_ptr,
    num_partials,
    partial_row,
    num_outputs,
    num_slopes,
    channel_programs,
    num_nodes,
    channel_scale,
    first_scale,
    rest_scale,
    intercept_scale,
    cap,
    GATED: tl.constexpr,
    SMOOTH: tl.constexpr,
    REST_SMOOTH: tl.constexpr,
    CENTRED: tl.constexpr,
    C: tl.constexpr,
    COLS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of the hyperfunction's outputs, and partial results of the softmax's."""
    program = tl.program_id(0).to(tl.int64)
    if program < channel_programs:
        output_gradient(
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
            GATED,
            REST_SMOOTH,
            CENTRED,
            C,
            COLS,
            OUTPUTS,
            ROWS,
        )
    else:
        inner_product(
            program - channel_programs,
            tl.num_programs(0) - channel_programs,
            u_ptr,
            grad_gamma_ptr,
            z_ptr,
            moments_ptr,
            inner_ptr,
            num_nodes,
            cap,
            SMOOTH,
            BLOCK,
        )


@triton.jit
def input_gradient_kernel(
    weight_ptr,
    grad_bias_ptr,
    partial_gate_ptr,
    grad_sum_ptr,
    grad_gate_ptr,
    u_ptr,
    grad_gamma_ptr,
    inner_ptr,
    rank_ptr,
    node_scale_ptr,
    z_ptr,
    unit_ptr,
    moments_ptr,
    grad_z_ptr,
    direct_ptr,
    num_outputs,
    num_gates,
    channel_programs,
    num_nodes,
    num_partials,
    inverse_nodes,
    inverse_temperature,
    inverse_scale,
    cap,
    GATED: tl.constexpr,
    SLICED: tl.constexpr,
    SMOOTH: tl.constexpr,
    C: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    GATES: tl.constexpr,
    PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of the features' sum and of the gate, and those of the node MLP's outputs."""
    program = tl.program_id(0).to(tl.int64)
    if program < channel_programs:
        input_gradient(
            program,
            weight_ptr,
            grad_bias_ptr,
            partial_gate_ptr,
            grad_sum_ptr,
            grad_gate_ptr,
            num_outputs,
            num_gates,
            inverse_nodes,
            GATED,
            C,
            OUTPUTS,
            ROWS,
            GATES,
        )
    else:
        logit_gradient(
            program - channel_programs,
            u_ptr,
            grad_gamma_ptr,
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
            SLICED,
            SMOOTH,
            PARTIALS,
            BLOCK,
        )


@triton.jit
def sum_kernel(
    partial_ptr,
    sum_ptr,
    num_partials,
    partial_row,
    C: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The sum of the first `C` columns of partial sums."""
    cols = tl.program_id(0).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)
    total = sum_rows(partial_ptr, num_partials, partial_row, cols, cols < C, OUTPUTS, ROWS)
    tl.store(sum_ptr + cols, total, mask=cols < C)
