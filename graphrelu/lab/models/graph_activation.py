"""The common part of the rivals that use a node's neighbours, with the propagation of GCN; and the
one that the paper rejects."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.utils import scatter

from graphrelu import functional
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


class Undecomposed(GraphActivation):
    r"""The hyperfunction that the `"Graph-adaptive Rectified Linear Unit for Graph Neural
    Networks" <https://doi.org/10.1145/3485447.3512159>`_ paper rejects: one graph convolution
    that gives every node two slopes and intercepts for each of its :math:`C` channels.

    .. math::
        x^{\prime}_{nc} &= \max \left\{ (1 + p^1_{nc}) x_{nc} + q^1_{nc}, \; p^2_{nc} x_{nc} +
        q^2_{nc} \right\}

        \mathbf{P}, \mathbf{Q} &= \tanh ( s \, ( \mathbf{S} \mathbf{X} \mathbf{W} + \mathbf{b} ) )

    The factor :math:`s` and parameters that start at zero are those of :class:`~graphrelu.GReLU`:
    the two differ in the hyperfunction alone, of which this one has :math:`4C(C + 1)` parameters.

    Args:
        channels (int): Size of each input and output sample.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.conv = GCNConv(channels, 4 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for parameter in self.conv.parameters():
            torch.nn.init.zeros_(parameter)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        # Before the weights: of the two orders, this one propagates C columns and not 4C.
        logits = F.linear(graph.diffuse(x), self.conv.lin.weight, self.conv.bias)
        parameters = functional.channel_parameters(logits, self.channels, functional.Form())
        (first, second), intercepts = (part.unbind(1) for part in parameters.unbind(1))
        return functional.piecewise_max(x, (1 + first, second), intercepts)
