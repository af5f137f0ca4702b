"""Launches the kernels of :mod:`graphrelu.block_kernels`."""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import triton
from torch import Tensor

from graphrelu.block_kernels import (
    input_gradient_kernel,
    output_gradient_kernel,
    parameters_kernel,
    statistics_kernel,
    sum_kernel,
)
from graphrelu.calibration import Calibration
from graphrelu.functional import SAME
from graphrelu.hyper_kernels import centre_kernel
from graphrelu.launch import launch, workspace
from graphrelu.smooth import BLOCK, Smooth, partials_of

if TYPE_CHECKING:
    from graphrelu.sliced import Sliced

# What a program of the channel block computes, and the rows that it adds at once.
_OUTPUTS = 16
_ROWS = 128


class Sizes(NamedTuple):
    """All numbers that the launches need."""

    num_nodes: int
    channels: int
    num_outputs: int  # of the hyperfunction
    num_slopes: int
    constants: tuple[float, float, float]  # of the softmax: 1 / temperature, scale, cap
    power: int  # of the smoothness
    centred: bool  # the first segment's slopes
    rest_smooth: bool  # all others and intercepts scaled by the smoothness
    # Of the hyperfunction, before the tanh; and after it, of the first segment's slopes, of all
    # others' and of intercepts.
    scales: tuple[float, float, float, float]
    node_programs: int
    partials: int  # results of the softmax that are put together
    channel_programs: int
    output_programs: int
    # Tiles that hold all partial results, and those of the gate; columns of a tile.
    partials_tile: int
    gates_tile: int
    columns: int

    @property
    def inverse_nodes(self) -> float:
        return 1 / self.num_nodes


@lru_cache(maxsize=256)
def sizes(
    num_nodes: int,
    channels: int,
    num_outputs: int,
    num_slopes: int,
    calibration: Calibration | None,
) -> Sizes:
    """Args:
    calibration: None in the printed form.
    """
    constants, scales = (1.0, 1.0, float("inf")), (1.0, 1.0, 1.0, 1.0)
    if calibration is not None:
        c = calibration
        constants = (1 / c.temperature, num_nodes * c.gamma_scale, c.gamma_max)
        gate = c.gate_scale
        scales = (c.channel_scale, gate, gate * c.rest_scale, gate * c.intercept_scale)
    output_programs, partials = triton.cdiv(num_outputs, _OUTPUTS), partials_of(num_nodes)
    return Sizes(
        num_nodes=num_nodes,
        channels=channels,
        num_outputs=num_outputs,
        num_slopes=num_slopes,
        constants=constants,
        power=0 if calibration is None else int(calibration.smooth),
        centred=calibration is not None and calibration.centred,
        rest_smooth=calibration is not None and calibration.rest_smooth,
        scales=scales,
        node_programs=triton.cdiv(num_nodes, BLOCK),
        partials=partials,
        channel_programs=triton.cdiv(channels, _OUTPUTS),
        output_programs=output_programs,
        partials_tile=triton.next_power_of_2(partials),
        gates_tile=triton.next_power_of_2(output_programs),
        columns=min(128, triton.next_power_of_2(channels)),
    )


class Blocks(NamedTuple):
    """What the two blocks give to the activation, and what their gradients need. As their vectors
    come from one allocation, they may be longer than is said here."""

    size: Sizes
    gamma: Tensor  # `[N]`
    slopes: Tensor  # `[K C]`
    intercepts: Tensor  # `[K C]`
    u: Tensor  # `[N]`: gamma, before the largest are capped
    mean: Tensor  # `[C]`
    hyper: Tensor  # `[outputs]`: the hyperfunction's, before the gate
    smooth: Smooth | None

    @classmethod
    def of(
        cls,
        z: Tensor,
        partial: Tensor,
        num_partials: int,
        weight: Tensor,
        bias: Tensor,
        gate: Tensor | None,
        num_slopes: int,
        sliced: "Sliced | None",
        num_nodes: int,
        calibration: Calibration | None,
        smooth: Smooth | None,
    ) -> "Blocks":
        """From the node MLP's outputs `[N]`, as `sliced` gives them, and partial sums `[P, C]` of
        the weighted features. In the smooth form the outputs are those of the means, in the order
        of the nodes."""
        num_outputs, channels = weight.shape
        size = sizes(num_nodes, channels, num_outputs, num_slopes, calibration)
        few = (channels, num_outputs, num_slopes, num_slopes, size.partials, size.partials)
        u, gamma, mean, hyper, slopes, intercepts, largest, total = workspace(
            z, num_nodes, num_nodes, *few
        )
        rank, node_scale, scale, moments = (z, z, z, z)
        if smooth is not None:
            z, moments, sliced = smooth.z, smooth.moments, None
        if sliced is not None:
            rank, node_scale, scale = sliced.rank, sliced.node_scale, sliced.scale
        launch(
            statistics_kernel,
            (size.channel_programs + size.partials, 1, 1),
            (partial, mean, z, scale, moments, largest, total),
            (num_partials, size.channel_programs, num_nodes),
            (size.inverse_nodes, size.constants[0], SAME),
            SLICED=sliced is not None,
            SMOOTH=0 if smooth is None else size.power,
            C=channels,
            OUTPUTS=_OUTPUTS,
            ROWS=_ROWS,
            PARTIALS=size.partials_tile,
            BLOCK=BLOCK,
        )
        hyperfunction = weight, bias, bias if gate is None else gate, mean, hyper
        nodes = z, rank, node_scale, moments
        launch(
            parameters_kernel,
            (size.output_programs + size.node_programs, 1, 1),
            (*hyperfunction, slopes, intercepts, *nodes, largest, total, u, gamma),
            (num_outputs, num_slopes, size.output_programs, num_nodes, size.partials),
            (*size.scales, *size.constants),
            GATED=gate is not None,
            SLICED=sliced is not None,
            SMOOTH=0 if smooth is None else size.power,
            REST_SMOOTH=smooth is not None and size.rest_smooth,
            C=channels,
            COLS=size.columns,
            OUTPUTS=_OUTPUTS,
            PARTIALS=size.partials_tile,
            BLOCK=BLOCK,
        )
        if size.centred and gate is not None:
            launch(
                centre_kernel,
                (triton.cdiv(channels, BLOCK), 1, 1),
                (hyper, gate, slopes),
                (),
                (size.scales[1],),
                C=channels,
                BLOCK=BLOCK,
            )
        return cls(size, gamma, slopes, intercepts, u, mean, hyper, smooth)

    def backward(
        self,
        grad_gamma: Tensor,
        partial: Tensor,
        num_partials: int,
        weight: Tensor,
        gate: Tensor | None,
        sliced: "Sliced | None",
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """The gradients of the node MLP's outputs, as `sliced` wants them; in the smooth form, what
        that of the projections themselves follows from; the gradients of the features' sum, and of
        weight, bias and gate. From that of gamma and partial sums `[P, 2 K C]` of those of slopes
        and intercepts."""
        size, is_gated, is_sliced = self.size, gate is not None, sliced is not None
        num_nodes, channels, num_outputs, num_slopes = size[:4]
        grad_z, direct, grad_sum, partial_gate, inner, sums = workspace(
            grad_gamma, num_nodes, 3, channels, size.output_programs, 3 * size.partials, channels
        )
        if size.centred:
            sum_partials(partial, num_partials, sums[:channels], 2 * num_slopes)
        z, unit, moments = grad_z, grad_z, grad_z
        if self.smooth is not None:
            unit, _, z, moments = self.smooth
        grad_weight = weight.new_empty(num_outputs, channels)
        grad_bias, grad_gate = weight.new_empty(num_outputs), weight.new_empty(1)
        launch(
            output_gradient_kernel,
            (size.output_programs + size.partials, 1, 1),
            (
                partial,
                self.hyper,
                self.mean,
                weight if gate is None else gate,
                grad_bias,
                grad_weight,
                partial_gate,
                sums,
                self.u,
                grad_gamma,
                z,
                moments,
                inner,
            ),
            (
                num_partials,
                2 * num_slopes,
                num_outputs,
                num_slopes,
                size.output_programs,
                num_nodes,
            ),
            (*size.scales, size.constants[2]),
            GATED=is_gated,
            SMOOTH=0 if self.smooth is None else size.power,
            REST_SMOOTH=self.smooth is not None and size.rest_smooth,
            CENTRED=size.centred,
            C=channels,
            COLS=size.columns,
            OUTPUTS=_OUTPUTS,
            ROWS=_ROWS,
            BLOCK=BLOCK,
        )
        rank, node_scale = (inner, inner) if sliced is None else (sliced.rank, sliced.node_scale)
        inverse_temperature, scale, cap = size.constants
        launch(
            input_gradient_kernel,
            (size.channel_programs + size.node_programs, 1, 1),
            (
                weight,
                grad_bias,
                partial_gate,
                grad_sum,
                grad_gate,
                self.u,
                grad_gamma,
                inner,
                rank,
                node_scale,
                z,
                unit,
                moments,
                grad_z,
                direct,
            ),
            (num_outputs, size.output_programs, size.channel_programs, num_nodes, size.partials),
            (size.inverse_nodes, inverse_temperature, 1 / scale, cap),
            GATED=is_gated,
            SLICED=is_sliced,
            SMOOTH=0 if self.smooth is None else size.power,
            C=channels,
            OUTPUTS=_OUTPUTS,
            ROWS=_ROWS,
            GATES=size.gates_tile,
            PARTIALS=size.partials_tile,
            BLOCK=BLOCK,
        )
        return grad_z, direct, grad_sum, grad_weight, grad_bias, grad_gate if is_gated else None


def sum_partials(partial: Tensor, num_partials: int, out: Tensor, row: int) -> None:
    """`out` `[..., C]` from the first columns of partial sums `[P, row]`."""
    channels = out.size(-1)
    grid = (-(-channels // _OUTPUTS), 1, 1)
    sizes = num_partials, row
    launch(sum_kernel, grid, (partial, out), sizes, C=channels, OUTPUTS=_OUTPUTS, ROWS=_ROWS)
