"""Launches the kernels of :mod:`graphrelu.softmax_kernels`."""

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
from torch import Tensor

from graphrelu.calibration import Calibration
from graphrelu.softmax_kernels import (
    inner_product_kernel,
    logit_gradient_kernel,
    statistics_kernel,
    weight_kernel,
)

if TYPE_CHECKING:
    from graphrelu.sliced import Sliced

_BLOCK = 1024
_MOST_PARTIALS = 512


class NodeSoftmax(NamedTuple):
    """The softmax over all nodes, as far as its gradient needs it."""

    u: Tensor  # `[N]`: the weights, before the largest of them are capped
    constants: tuple[float, float, float]  # 1 / temperature, scale, cap

    def backward(self, grad: Tensor, sliced: "Sliced | None") -> Tensor:
        """The gradient of the logits from that of the weights, `[N]`; as `sliced` wants it."""
        inverse_temperature, scale, cap = self.constants
        num_nodes = self.u.numel()
        inner, grad_z = grad.new_empty(_programs(num_nodes)), torch.empty_like(self.u)
        inner_product_kernel[(inner.numel(),)](self.u, grad, inner, num_nodes, cap, BLOCK=_BLOCK)
        rank, scales = (grad, grad) if sliced is None else (sliced.rank, sliced.scale)
        logit_gradient_kernel[(triton.cdiv(num_nodes, _BLOCK),)](
            self.u,
            grad,
            inner,
            rank,
            scales,
            grad_z,
            num_nodes,
            inner.numel(),
            inverse_temperature,
            1 / scale,
            cap,
            SLICED=sliced is not None,
            PARTIALS=triton.next_power_of_2(inner.numel()),
            BLOCK=_BLOCK,
        )
        return grad_z


def node_parameters(
    z: Tensor, sliced: "Sliced | None", calibration: Calibration | None
) -> tuple[Tensor, NodeSoftmax]:
    """:func:`functional.calibrated_node_parameters`, or the printed form's, `[N]`.

    Args:
        z: `[N]`, the node MLP's outputs, as `sliced` gives them.
        sliced: The operator that diffused them, if it has an order of its own.
        calibration: How the weights are scaled and capped; none for the printed form.
    """
    num_nodes = z.numel()
    constants = (1.0, 1.0, float("inf"))
    if calibration is not None:
        scale = num_nodes * calibration.gamma_scale
        constants = (1 / calibration.temperature, scale, calibration.gamma_max)
    programs = _programs(num_nodes)
    largest, total = z.new_empty(2, programs).unbind()
    unscale, order = (z, z) if sliced is None else (sliced.unscale, sliced.order)
    statistics_kernel[(programs,)](
        z,
        unscale,
        largest,
        total,
        num_nodes,
        constants[0],
        SLICED=sliced is not None,
        BLOCK=_BLOCK,
    )
    u, gamma = z.new_empty(2, num_nodes).unbind()
    weight_kernel[(triton.cdiv(num_nodes, _BLOCK),)](
        z,
        unscale,
        largest,
        total,
        order,
        u,
        gamma,
        num_nodes,
        programs,
        *constants,
        SLICED=sliced is not None,
        PARTIALS=triton.next_power_of_2(programs),
        BLOCK=_BLOCK,
    )
    return gamma, NodeSoftmax(u, constants)


def _programs(num_nodes: int) -> int:
    return min(triton.cdiv(num_nodes, _BLOCK), _MOST_PARTIALS)
