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
from graphrelu.calibration import Calibration
from graphrelu.graph import PreparedGraph
from graphrelu.hyper import ChannelParameters
from graphrelu.node_softmax import node_parameters
from graphrelu.sliced import Sliced


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

    def sliced(self, transposed: int) -> Sliced | None:
        """The operator in slices, if it is kept so."""
        if self.graph is None or self.graph.slices is None:
            return None
        return self.graph.slices[transposed]

    def parameters(self, block: ChannelParameters) -> tuple[Tensor, Tensor]:
        """Slopes and intercepts, `[1, 1, K, C]` each."""
        both = block.parameters.view(-1, 1, 1, self.K, block.mean.numel())
        return both[0], both[1] if self.bias else torch.zeros_like(both[0])


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
        mass, features = form.mass(x), x.unsqueeze(0)
        sliced = form.sliced(0)
        z, partial = fused.project(features, node_weight.unsqueeze(0), mass, sliced)
        z = z.view(-1) if form.graph is None else form.graph.apply(z.view(-1))
        gamma, softmax = node_parameters(z, sliced, None if gate is None else form.calibration)
        gamma = gamma.view(1, -1, 1)
        block = ChannelParameters.of(
            partial[0],
            channel_weight,
            channel_bias,
            gate,
            form.K * x.size(1),
            x.size(0),
            form.calibration.intercept_scale,
        )
        slopes, intercepts = form.parameters(block)
        y = fused.piecewise_max(features, gamma, slopes, intercepts, form.base, None)
        ctx.save_for_backward(x, node_weight, channel_weight, channel_bias, gate)
        ctx.kept = form, mass, softmax, gamma, block
        return y.squeeze(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        form, mass, softmax, gamma, block = ctx.kept
        x, node_weight, channel_weight, channel_bias, gate = inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative may be asked for
            asked = [t is not None and t.requires_grad for t in inputs]
            wanted = [t for t, needed in zip(inputs, asked, strict=True) if needed]
            out = _composed(x, node_weight, channel_weight, channel_bias, gate, form)
            grads = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))
            return *(next(grads) if needed else None for needed in asked), None
        features = x.unsqueeze(0)
        slopes, intercepts = form.parameters(block)
        grad_x, grad_gamma, partial = fused.piecewise_max_partials(
            grad.unsqueeze(0), features, gamma, slopes, intercepts, form.base, None
        )
        grad_sum, *grads = block.backward(partial.view(partial.size(2), -1))
        sliced = form.sliced(1)
        grad_z = softmax.backward(grad_gamma.view(-1), sliced)
        if form.graph is not None:
            grad_z = form.graph.apply(grad_z, transposed=True)
        grad_x, grad_node = fused.project_and_sum_backward(
            features,
            node_weight.unsqueeze(0),
            mass,
            grad_z.unsqueeze(0),
            grad_sum.unsqueeze(0),
            grad_x,
            sliced,
        )
        return grad_x.squeeze(0), grad_node.squeeze(0), *grads, None


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
    z = z if form.graph is None else form.graph.diffuse(z)
    slopes, intercepts = functional.channel_parameters(
        total / x.size(0),
        lambda mean: F.linear(mean, channel_weight, channel_bias),
        form.K,
        form.bias,
    )
    if gate is None:
        gamma = functional.node_parameters(z)
    else:
        gamma = functional.calibrated_node_parameters(z, calibration=form.calibration)
        slopes, intercepts = functional.calibrated_channel_parameters(
            slopes, intercepts, gate, form.calibration
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
