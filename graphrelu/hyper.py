"""Launches the kernels of :mod:`graphrelu.hyper_kernels`."""

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from graphrelu.hyper_kernels import (
    input_gradient_kernel,
    output_gradient_kernel,
    parameters_kernel,
)

_OUTPUTS = 16  # of a program
_BLOCK = 128  # rows that are added at once
_WARPS = 8  # as there are few programs


class ChannelParameters(NamedTuple):
    """The channel block's output, and what its gradients need."""

    weight: Tensor  # `[outputs, C]`, as the hyperfunction's
    gate: Tensor | None
    mean: Tensor  # `[C]`
    hyper: Tensor  # `[outputs]`
    parameters: Tensor  # `[outputs]`: slopes, then intercepts, `[K, C]` each
    num_slopes: int
    num_nodes: int
    intercept_scale: float

    @classmethod
    def of(
        cls,
        partial: Tensor,
        weight: Tensor,
        bias: Tensor,
        gate: Tensor | None,
        num_slopes: int,
        num_nodes: int,
        intercept_scale: float,
    ) -> "ChannelParameters":
        """From partial sums `[P, C]` of the weighted features."""
        num_outputs, channels = weight.shape
        mean = partial.new_empty(channels)
        hyper, parameters = partial.new_empty(2, num_outputs).unbind()
        parameters_kernel[(triton.cdiv(num_outputs, _OUTPUTS),)](
            partial,
            weight,
            bias,
            bias if gate is None else gate,
            mean,
            hyper,
            parameters,
            partial.size(0),
            num_outputs,
            num_slopes,
            1 / num_nodes,
            intercept_scale,
            GATED=gate is not None,
            OUTPUTS=_OUTPUTS,
            BLOCK=_BLOCK,
            num_warps=_WARPS,
            **_columns(channels),
        )
        return cls(weight, gate, mean, hyper, parameters, num_slopes, num_nodes, intercept_scale)

    def backward(self, partial: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The gradients of the features' sum, weight, bias and gate, from partial sums `[P, ...]`
        of the gradients of slopes and intercepts."""
        num_outputs, channels = self.weight.shape
        gated = self.gate is not None
        programs = triton.cdiv(num_outputs, _OUTPUTS)
        grad_bias, grad_weight = torch.empty_like(self.hyper), torch.empty_like(self.weight)
        partial_gate = partial.new_empty(programs + 1)
        grad_sum, grad_gate = torch.empty_like(self.mean), partial_gate[programs:]
        columns = _columns(channels)
        output_gradient_kernel[(programs,)](
            partial,
            self.hyper,
            self.mean,
            self.hyper if self.gate is None else self.gate,
            grad_bias,
            grad_weight,
            partial_gate,
            partial.size(0),
            partial.stride(0),
            num_outputs,
            self.num_slopes,
            self.intercept_scale,
            GATED=gated,
            OUTPUTS=_OUTPUTS,
            BLOCK=_BLOCK,
            num_warps=_WARPS,
            **columns,
        )
        input_gradient_kernel[(triton.cdiv(channels, columns["COLS"]),)](
            self.weight,
            grad_bias,
            partial_gate,
            grad_sum,
            grad_gate,
            num_outputs,
            programs,
            1 / self.num_nodes,
            GATED=gated,
            BLOCK=_BLOCK,
            PARTIALS=triton.next_power_of_2(programs),
            **columns,
        )
        return grad_sum, grad_weight, grad_bias, grad_gate if gated else None


def _columns(channels: int) -> dict[str, int]:
    return {"C": channels, "COLS": min(128, triton.next_power_of_2(channels))}
