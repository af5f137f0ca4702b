"""Mini-batches of a set of graphs, gathered on the device, where the whole set lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.graph import DiffusionSettings, PreparedGraph, prepare
from graphrelu.lab.data.graph import GraphSet
from graphrelu.lab.models.graph_networks import GraphBatch, random_walks
from graphrelu.ops.diffuse import CSR

PADDING = 32  # graphs: a single large one would keep one program of a kernel busy for long


class Shape(NamedTuple):
    """The nodes and edges of a mini-batch. Its last graphs, as many as ``padding``, only fill it up
    to these sizes."""

    nodes: int
    edges: int
    padding: int = 0


class DeviceGraphs:
    """A set of graphs on the device, to gather mini-batches from.

    The graph of number `G`, behind the last, is empty: it fills a mini-batch.
    """

    def __init__(self, graphs: GraphSet, device: torch.device, walks: int = 0) -> None:
        self.node_count = F.pad(graphs.node_count, (0, 1))
        self.edge_count = F.pad(graphs.edge_count, (0, 1))
        counts = torch.stack([self.node_count, self.edge_count])
        self.counts = counts.to(device)  # [2, G + 1]
        self.first = self.counts.cumsum(dim=1) - self.counts
        shift = self.first[0].cpu().repeat_interleave(self.edge_count)
        # Edges are sorted once, here, and so are those of every mini-batch.
        source, target = graphs.edge_index + shift
        order = torch.argsort(source * len(graphs.nodes.kind) + target, stable=True)
        self.edge_index = graphs.edge_index[:, order].to(device)
        self.edges = graphs.edges.kind[order].to(device)
        self.nodes = graphs.nodes.kind.to(device)
        self.all_edges = (graphs.edge_index + shift)[:, order].to(device)  # of one large graph
        self.walks = random_walks(self.all_edges, graphs.node_count, walks) if walks else None
        self.settings: DiffusionSettings | None = None
        self.mass = self.value = torch.empty(0, device=device)

    def diffuse_by(self, settings: DiffusionSettings | None) -> None:
        """What the diffusion needs of each graph is computed once, for all mini-batches."""
        if settings in (None, self.settings):
            return
        graph = prepare(self.all_edges, None, len(self.nodes), torch.float, settings)
        assert graph.matrices is not None
        self.settings, self.mass, self.value = settings, graph.mass, graph.matrices[0].value

    def gather(
        self, index: Tensor, shape: Shape, settings: DiffusionSettings | None = None
    ) -> GraphBatch:
        """The graphs of these numbers. The shape is known before, so that nothing waits for the
        device."""
        count = self.counts[:, index]
        real = len(index) - shape.padding
        if shape.padding:
            rest = torch.stack([size - own.sum() for size, own in zip(shape, count, strict=False)])
            ends = rest.view(2, 1) * torch.arange(shape.padding + 1, device=index.device)
            count[:, real:] = (ends // shape.padding).diff()
        end = count.cumsum(dim=1)
        start = end - count
        shift = self.first[:, index] - start

        def places(part: int, size: int, last: int) -> tuple[Tensor, Tensor]:
            place = torch.arange(size, device=index.device)
            owner = torch.searchsorted(end[part], place, right=True)
            return owner, (place + shift[part][owner]).clamp(max=last)

        batch, node = places(0, shape.nodes, self.nodes.numel() - 1)
        owner, edge = places(1, shape.edges, self.edges.numel() - 1)
        edge_index = self.edge_index.index_select(1, edge) + start[0][owner]
        value = self.value[edge] if settings else None
        mass = self.mass[node] if settings else None
        shares: tuple[Tensor, ...] = ()
        if shape.padding:
            # Loops of the nodes of padding, a few each.
            padding = torch.arange(shape.edges, device=index.device) - start[1, real]
            loop = start[0, real] + padding * rest[0] // rest[1].clamp(min=1)
            is_padding = owner >= real
            edge_index = torch.where(is_padding, loop, edge_index)
            value = None if value is None else value.masked_fill(is_padding, 0.0)
            graph_share = (index < self.counts.size(1) - 1).float()
            node_share = (batch < real).float()
            mass = None if mass is None else mass * node_share
            shares = node_share / start[0, real], graph_share / graph_share.sum()
        starts = torch.arange(shape.nodes + 1, device=index.device)
        rowptr = torch.searchsorted(edge_index[0].contiguous(), starts, out_int32=True)
        diffusion = None
        if settings is not None and value is not None and mass is not None:
            matrix = CSR(rowptr, edge_index[1].int(), value)
            diffusion = PreparedGraph(settings, mass, (matrix, matrix))
        return GraphBatch(
            self.nodes[node],
            edge_index,
            self.edges[edge],
            batch,
            len(index),
            rowptr,
            None if self.walks is None else self.walks.index_select(0, node),
            diffusion,
            *shares,
        )

    def batches(self, order: Tensor, size: int) -> list[tuple[Tensor, Shape]]:
        """The numbers of graphs, on the device, and the shape of every mini-batch."""
        device = self.counts.device
        return [
            (part, Shape(int(self.node_count[own].sum()), int(self.edge_count[own].sum())))
            for part, own in zip(order.to(device).split(size), order.split(size), strict=True)
        ]

    def common_shape(self, orders: Iterable[Tensor], size: int) -> Shape:
        """The least shape that every mini-batch of these orders can be padded to. A node of padding
        has two edges at most, so that sums over its neighbours stay small."""
        nodes = torch.cat([_sums(self.node_count[order], size) for order in orders])
        edges = torch.cat([_sums(self.edge_count[order], size) for order in orders])
        most = int(edges.max())
        return Shape(int((nodes + (most - edges + 1) // 2).max()) + 1, most, PADDING)

    def padded(self, order: Tensor, size: int) -> Tensor:
        """The numbers of graphs of all mini-batches `[batches, size + PADDING]`, on the device."""
        none, width = len(self.node_count) - 1, size + PADDING
        rows = [F.pad(part, (0, width - len(part)), value=none) for part in order.split(size)]
        return torch.stack(rows).to(self.counts.device)


def _sums(counts: Tensor, size: int) -> Tensor:
    """Over each mini-batch."""
    return torch.stack([part.sum() for part in counts.split(size)])
