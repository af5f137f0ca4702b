"""The common part of the rivals that use a node's neighbours, with the propagation of GCN; and the
one that the paper rejects."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu import functional
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
