"""Launches the kernel of :mod:`graphrelu.smooth_kernels`."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from graphrelu.launch import launch
from graphrelu.smooth_kernels import moments_kernel

if TYPE_CHECKING:
    from graphrelu.sliced import Sliced

# Nodes of a program of the node block, and the most partial results of a sum over all nodes.
BLOCK = 1024
_MOST_PARTIALS = 512


def partials_of(num_nodes: int) -> int:
    """How many partial results a sum over all nodes has."""
    return min(-(-num_nodes // BLOCK), _MOST_PARTIALS)


def vectors(num_nodes: int) -> tuple[int, int, int]:
    """The sizes of the vectors of :class:`Smooth` in float32."""
    return num_nodes, num_nodes, 2 * (4 + 4 * partials_of(num_nodes))


class Smooth(NamedTuple):
    """What the smooth form has besides the node MLP's outputs. The vectors may be longer."""

    unit: Tensor  # `[N]`: what sums around nodes are divided by
    local: Tensor  # `[N]`: what the node MLP makes of each node by itself
    z: Tensor  # `[N]`: and of the means around them
    moments: Tensor  # of both, see the kernels; in float64

    @classmethod
    def of(cls, unit: Tensor, local: Tensor, z: Tensor, moments: Tensor) -> "Smooth":
        """In vectors of the right sizes, still empty."""
        return cls(unit, local, z, moments.view(torch.double))

    def fill(self, diffused: Tensor, num_nodes: int, sliced: "Sliced | None") -> None:
        """From the diffused projections, as `sliced` gives them, and those in `local`."""
        rank, node_scale = diffused, diffused
        if sliced is not None:
            rank, node_scale = sliced.rank, sliced.node_scale
        launch(
            moments_kernel,
            (partials_of(num_nodes), 1, 1),
            (diffused, rank, node_scale, *self),
            (num_nodes,),
            SLICED=sliced is not None,
            BLOCK=BLOCK,
        )
