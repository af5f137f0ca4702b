"""The common part of the rivals that use a node's neighbours, with the propagation of GCN."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from graphrelu.checks import check_count
from graphrelu.functional import Edges
from graphrelu.graph import (
    DiffusionSettings,
    PreparedGraph,
    as_edges,
    check_batch,
    check_features,
    check_values,
    remembered,
)
from graphrelu.ops import values_on_cpu


class GraphActivation(torch.nn.Module):
    r"""The common part of graph-adaptive rivals of :class:`~graphrelu.GReLU`: the call, and the
    operator :math:`\mathbf{S} = \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2}`
    with :math:`\hat{\mathbf{A}} = \mathbf{A} + \mathbf{I}`, prepared once per graph."""

    # GCN's propagation: one step without teleport.
    propagation = DiffusionSettings(alpha=0.0, steps=1)
    self_loops = True

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
            edge_index = self._prepared(x, edge_index, edge_weight, batch)
        return self.activate(x, edge_index, batch, batch_size or 1)

    def _prepared(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None, batch: Tensor | None
    ) -> PreparedGraph:
        def read() -> Edges:
            edges = as_edges(edge_index, edge_weight, x.size(0), x.dtype)
            if values_on_cpu(x):
                check_values(edges, batch)
            return with_self_loops(edges) if self.self_loops else edges

        tensors = [part for part in (edge_index, edge_weight, batch) if part is not None]
        return remembered(tensors, (self.self_loops, x.size(0), x.dtype), self.propagation, read)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        """The activation, on a prepared graph."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"


def with_self_loops(edges: Edges) -> Edges:
    """As PyG's `add_remaining_self_loops`: a node that has a loop gets no other. Every shape is
    known beforehand, so that nothing waits for a GPU."""
    source, target, weight, num_nodes = edges
    loops = scatter((source == target).long(), source, dim=0, dim_size=num_nodes, reduce="sum")
    nodes = torch.arange(num_nodes, device=source.device)
    missing = (loops == 0).to(weight.dtype)
    source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
    return Edges(source, target, torch.cat([weight, missing]), num_nodes)
