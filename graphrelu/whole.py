"""The whole activation as one autograd function, for one large graph on a GPU.

On a GPU the passes are so short that the time between them shows: dozens of autograd nodes take
longer than the kernels that they launch. Here one node holds them all, in the order of
:mod:`graphrelu.functional`, with the gradients written out. It serves the common case, an
unbatched graph and linear MLPs; :class:`~graphrelu.GReLU` falls back to the composition of
:mod:`graphrelu.projection`, :mod:`graphrelu.diffusion` and :mod:`graphrelu.kernels` in all others.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu import functional, fused, kernels, projection
from graphrelu.blocks import Blocks, sum_partials
from graphrelu.calibration import Calibration
from graphrelu.graph import PreparedGraph
from graphrelu.launch import workspace
from graphrelu.sliced import Sliced
from graphrelu.smooth import Smooth, vectors


class Form(NamedTuple):
    """What, besides tensors, determines the function."""

    graph: PreparedGraph | None  # none: without topology
    K: int
    bias: bool
    base: tuple[float, ...]
    calibration: Calibration

    def mass(self, x: Tensor) -> Tensor:
        if self.graph is None:
            return torch.ones(x.size(0), dtype=torch.float, device=x.device)
        return self.graph.mass

    def unit(self, gate: Tensor | None) -> Tensor | None:
        """In the smooth form, what the sum around each node is divided by."""
        if self.graph is None or gate is None or not self.calibration.smooth:
            return None
        return self.graph.row_mass

    def sliced(self, transposed: int) -> Sliced | None:
        """The operator in slices, if it is kept so."""
        if self.graph is None or self.graph.slices is None:
            return None
        return self.graph.slices[transposed]

    def diffuse(self, z: Tensor, num_nodes: int, transposed: bool) -> Tensor:
        """The operator, or its transpose, times the first numbers of `z`, which may go."""
        if self.graph is None:
            return z
        if self.graph.slices is None:
            z = z[:num_nodes]
        return self.graph.apply(z, transposed)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        node_weight: Tensor,
        channel_weight: Tensor,
        channel_bias: Tensor,
        gate: Tensor | None,
        form: Form,
    ) -> Tensor:
        ctx.save_for_backward(x, node_weight, channel_weight, channel_bias, gate)
        x, weight = x.contiguous(), node_weight.contiguous()
        num_nodes, channels = x.shape
        mass, sliced, unit = form.mass(x), form.sliced(0), form.unit(gate)
        size = 1, num_nodes, channels
        programs = fused.cut("project", x.dtype, num_nodes, channels, 1).programs
        more = () if unit is None else vectors(num_nodes)
        z, partial, *kept = workspace(weight, num_nodes, programs * channels, *more)
        smooth = None if unit is None else Smooth.of(unit, *kept)
        local = None if smooth is None else smooth.local
        fused.project(x, weight, mass, z, partial, size, sliced, local)
        z = form.diffuse(z, num_nodes, transposed=False)
        if smooth is not None:
            smooth.fill(z, num_nodes, sliced)
        blocks = Blocks.of(
            z,
            partial,
            programs,
            channel_weight.contiguous(),
            channel_bias.contiguous(),
            gate,
            form.K * channels,
            sliced,
            num_nodes,
            None if gate is None else form.calibration,
            smooth,
        )
        y = torch.empty_like(x)
        fused.apply(
            (x, blocks.gamma, blocks.slopes, blocks.intercepts, x, y),
            (0, channels, 0, channels, 0, 1, 0),
            form.base,
            fused.Size(1, 1, num_nodes, channels, form.K, 1, False),
        )
        ctx.kept = form, mass, blocks
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        form, mass, blocks = ctx.kept
        x, node_weight, channel_weight, channel_bias, gate = inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative may be asked for
            asked = [t is not None and t.requires_grad for t in inputs]
            wanted = [t for t, needed in zip(inputs, asked, strict=True) if needed]
            out = _composed(x, node_weight, channel_weight, channel_bias, gate, form)
            grads = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
            return *(next(grads) if needed else None for needed in asked), None
        x, grad, weight = x.contiguous(), grad.contiguous(), node_weight.contiguous()
        num_nodes, channels = x.shape
        dtype, K = x.dtype, form.K
        programs = fused.cut("backward", dtype, num_nodes, channels, 1).programs
        parts = fused.cut("project_backward", dtype, num_nodes, channels, 1).programs
        grad_gamma, partial, partial_node = workspace(
            weight, num_nodes, programs * 2 * K * channels, parts * channels
        )
        grad_x, parameters = torch.empty_like(x), (blocks.gamma, blocks.slopes, blocks.intercepts)
        fused.apply_backward(
            (grad, x, *parameters, x, grad_x, grad_gamma, partial),
            (0, channels, 0, channels, 0, channels, 0, 1, 0),
            form.base,
            fused.Size(1, 1, num_nodes, channels, K, 1, False),
        )
        sliced = form.sliced(1)
        grad_z, direct, grad_sum, *grads = blocks.backward(
            grad_gamma, partial, programs, channel_weight.contiguous(), gate, sliced
        )
        grad_z = form.diffuse(grad_z, num_nodes, transposed=True)
        fused.project_backward(
            x,
            weight,
            mass,
            grad_z,
            grad_sum,
            grad_x,
            partial_node,
            (1, num_nodes, channels),
            sliced,
            accumulate=True,
            smooth=None if blocks.smooth is None else (blocks.smooth.local, direct),
        )
        grad_node = weight.new_empty(1, channels)
        sum_partials(partial_node, parts, grad_node, channels)
        return grad_x, grad_node, *grads, None


def _composed(
    x: Tensor,
    node_weight: Tensor,
    channel_weight: Tensor,
    channel_bias: Tensor,
    gate: Tensor | None,
    form: Form,
) -> Tensor:
    """The same function by parts that autograd can follow."""
    z, total, x = projection.project_and_sum(x, node_weight, form.mass(x))
    rho = None
    if form.graph is not None and form.unit(gate) is not None:
        local, z = z, form.graph.average(z)
        rho = functional.smoothness(local, z)
        z = functional.smoothed(z, rho, calibration=form.calibration)
    elif form.graph is not None:
        z = form.graph.diffuse(z)
    slopes, intercepts = functional.channel_parameters(
        total / x.size(0),
        lambda mean: F.linear(mean, channel_weight, channel_bias),
        form.K,
        form.bias,
        None if gate is None else form.calibration,
    )
    if gate is None:
        gamma = functional.node_parameters(z)
    else:
        gamma = functional.calibrated_node_parameters(z, calibration=form.calibration)
        slopes, intercepts = functional.calibrated_channel_parameters(
            slopes, intercepts, gate, form.calibration, rho
        )
    return kernels.piecewise_max(x, gamma, slopes, intercepts, form.base)


def grelu(
    x: Tensor,
    node_weight: Tensor,
    channel_weight: Tensor,
    channel_bias: Tensor,
    gate: Tensor | None,
    form: Form,
) -> Tensor:
    """:func:`functional.grelu` of a prepared graph.

    Args:
        x: `[N, C]`, not empty.
        node_weight: `[1, C]`, as everything below in the precision to compute in.
        channel_weight: `[2 K C, C]`, or `[K C, C]` without intercepts.
        channel_bias: `[2 K C]`.
        gate: `[1]`; none in the printed form.
        form: The rest.
    """
    out: Tensor = _Whole.apply(x, node_weight, channel_weight, channel_bias, gate, form)
    return out
