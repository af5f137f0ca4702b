"""Activations that use the neighbours of a node, with the propagation of GCN."""

import math
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
    prepared,
)
from graphrelu.ops.diffuse import CSR, index_dtype


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
        dtype, graph = torch.promote_types(x.dtype, torch.float32), edge_index
        with torch.autocast(x.device.type, enabled=False):
            if not isinstance(graph, PreparedGraph):
                rest = (x.size(0), dtype, self.propagation, batch, values_on_cpu(x))
                graph = prepared(edge_index, edge_weight, *rest)
            return self.activate(x.to(dtype), graph, batch, batch_size or 1).to(x.dtype)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        """The activation, of features in single precision at least."""
        raise NotImplementedError


class GraphAdaptive(GraphActivation):
    r"""A graph-adaptive activation of the `"Graph-Adaptive Activation Functions for Graph Neural
    Networks" <https://arxiv.org/abs/2009.06723>`_ paper.

    .. math::
        \mathbf{X}^{\prime} = w_0 \max(\mathbf{X}, 0) + \sum_{k = 1}^K w_k \,
        g(\mathbf{S}^k \mathbf{X})

    Here :math:`g` takes, for each node and channel, one value of the node and its neighbours:
    the largest, or the median (of an even number the lower one). The shift :math:`\mathbf{S}` is
    the propagation of GCN; an edge counts as a neighbour whatever its weight, and several edges
    count once. The :math:`K + 1` parameters start at random, as in the authors' code.

    Args:
        channels (int): Size of each input and output sample.
        K (int, optional): The largest number of shifts. (default: :obj:`1`)
        device (torch.device, optional): The device of the parameters. (default: :obj:`None`)
    """

    def __init__(self, channels: int, K: int = 1, device: torch.device | str | None = None) -> None:
        super().__init__(channels)
        check_count("K", K)
        self.K = K
        self.weight = torch.nn.Parameter(torch.empty(K + 1, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        bound = 1 / math.sqrt(self.K)
        torch.nn.init.uniform_(self.weight, -bound, bound)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        if graph.matrices is None:
            raise ValueError(f"edge_weight must not be learned with {type(self).__name__}.")
        weight, shifted = self.weight.to(x.dtype), x
        out = weight[0] * x.relu()
        for k in range(1, self.K + 1):
            shifted = graph.diffuse(shifted)
            # Only which neighbour it is takes all edges; its value is then read by node.
            # Channels come first, as sorts and reads are of what lies side by side.
            order = shifted.detach().t().contiguous().argsort(dim=1, stable=True)
            place = torch.arange(x.size(0), device=x.device).expand_as(order)
            rank = torch.zeros_like(order).scatter(1, order, place)
            chosen = order.gather(1, self.choose(rank, graph.matrices[0]))
            out = out + weight[k] * shifted.gather(0, chosen.t())
        return out

    def choose(self, rank: Tensor, adjacency: CSR) -> Tensor:
        """Of each channel `[C, N]` and neighbourhood, the rank of the value that is taken."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, K={self.K})"


class GraphMax(GraphAdaptive):
    """:class:`GraphAdaptive` with the largest value of each neighbourhood."""

    def choose(self, rank: Tensor, adjacency: CSR) -> Tensor:
        of_edge = rank.index_select(1, adjacency.col.long())
        return rank.scatter_reduce(1, _rows(adjacency).expand_as(of_edge), of_edge, "amax")


class GraphMedian(GraphAdaptive):
    """:class:`GraphAdaptive` with the median of each neighbourhood."""

    def choose(self, rank: Tensor, adjacency: CSR) -> Tensor:
        num_nodes, row, col = rank.size(1), _rows(adjacency), adjacency.col.long()
        # Entries are sorted, so that a repeated one follows its like; it goes behind all others.
        entry = row * num_nodes + col
        again = torch.cat([entry.new_full((1,), -1), entry[:-1]]) == entry
        count = rank.new_zeros(num_nodes).scatter_add(0, row, (~again).long())
        # One sort for all rows: by row, then by rank.
        key = torch.where(again, num_nodes, rank.index_select(1, col)) + (num_nodes + 1) * row
        key = key.to(index_dtype((num_nodes + 1) ** 2)).sort(dim=1).values
        # A row of padding may be empty, and anything be read for it.
        middle = (adjacency.rowptr[:-1] + (count - 1).clamp(min=0) // 2).clamp(max=row.numel() - 1)
        value = key.index_select(1, middle.long()).long() % (num_nodes + 1)
        return value.clamp(max=num_nodes - 1)


def _rows(adjacency: CSR) -> Tensor:
    """The row of each entry; under vmap, each model may have its own graph."""
    rowptr, size = adjacency.rowptr.long(), adjacency.col.size(0)
    begins = rowptr.new_zeros(size + 1).scatter_add(0, rowptr[1:-1], torch.ones_like(rowptr[1:-1]))
    return begins[:size].cumsum(0)
