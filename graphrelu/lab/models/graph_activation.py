"""The common part of the rivals that use a node's neighbours, with the propagation of GCN."""

from typing import Any

import torch
from torch import Tensor

from graphrelu.checks import check_count
from graphrelu.functional import values_on_cpu
from graphrelu.graph import (
    DiffusionSettings,
    PreparedGraph,
    check_batch,
    check_features,
    prepare,
)


class GraphActivation(torch.nn.Module):
    r"""The common part of graph-adaptive rivals of :class:`~graphrelu.GReLU`: the call, and the
    operator :math:`\mathbf{S} = \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2}`
    with :math:`\hat{\mathbf{A}} = \mathbf{A} + \mathbf{I}`, prepared once per graph."""

    # GCN's propagation: one step without teleport, over the graph with self-loops.
    propagation = DiffusionSettings(alpha=0.0, steps=1, diffusion="power", add_self_loops=True)

    def __init__(self, channels: int) -> None:
        super().__init__()
        check_count("channels", channels)
        self.channels = channels

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Forward pass; the arguments are those of :meth:`graphrelu.GReLU.forward`."""
        if not isinstance(edge_index, PreparedGraph):
            check_features(x, edge_index, edge_weight, self.channels)
            batch, batch_size = check_batch(x, batch, batch_size)
            rest = (x.size(0), x.dtype, self.propagation, batch, values_on_cpu(x))
            edge_index = prepare(edge_index, edge_weight, *rest)
        return self.activate(x, edge_index, batch, batch_size or 1)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        """The activation, on a prepared graph."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"
