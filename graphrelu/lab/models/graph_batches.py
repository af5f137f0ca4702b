"""Mini-batches of small graphs, gathered on the device in shapes that do not depend on the draw.

Every product with a graph is sparse, and one of all models that train at once: each of them has
graphs of its own in its batch. The shapes are padded, so that a step can be captured once and
replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.graph import DiffusionSettings, PreparedGraph, prepare
from graphrelu.lab.models.sparse import GatheredMatrix, SparseMatrix
from graphrelu.ops.diffuse import CSR, index_dtype


class GraphBatch(NamedTuple):
    """One mini-batch of `B` graphs, or several with a leading dimension to :func:`vmap` over.

    The nodes of a graph are consecutive. The padding behind them belongs to one more graph, of
    number `B`, without any effect on the others.
    """

    x: Tensor  # [N, F]
    batch: Tensor  # [N]
    is_node: Tensor  # [N], false for padding
    graph: GatheredMatrix  # by which the convolution propagates
    # For GReLU: the masses of columns and rows, matrix and transpose.
    diffusion: tuple[Tensor, CSR, CSR] | tuple[()]


class Capacity(NamedTuple):
    """The padded sizes of a mini-batch: nodes, and nonzeros of each matrix."""

    nodes: int
    nonzeros: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Blocks:
    """A matrix with a block for each graph, in compressed rows; places count within the graph.

    An empty graph, and a nonzero of value 0, follow the last: what padding is gathered from.
    """

    start: Tensor  # [G + 1], the graphs' first nonzeros
    count: Tensor  # [G + 1]
    rowptr: Tensor  # [N + 1]
    col: Tensor  # [E + 1]
    value: Tensor  # [E + 1]

    @classmethod
    def from_csr(cls, matrix: CSR, node_ptr: Tensor) -> _Blocks:
        rowptr, col = matrix.rowptr.long(), matrix.col.long()
        start = rowptr[node_ptr]
        nodes, nonzeros = node_ptr.diff(), start.diff()
        return cls(
            start,
            _with(nonzeros, 0),
            _with(rowptr[:-1] - start[:-1].repeat_interleave(nodes), 0),
            _with(col - node_ptr[:-1].repeat_interleave(nonzeros), 0),
            _with(matrix.value, 0.0),
        )

    def gather(self, slots: _Slots, num_nonzeros: int) -> CSR:
        end = self.count[slots.graphs].cumsum(dim=1)
        first, total = end - self.count[slots.graphs], end[:, -1:]
        position, slot = _positions(end, num_nonzeros)
        index = self.start[slots.graphs].gather(1, slot) + position - first.gather(1, slot)
        index = index.clamp(max=self.value.numel() - 1)
        # What is left over goes to the rows of padding, evenly: no row is then a long one.
        padding = slots.position - slots.total
        share = (num_nonzeros - total) * padding // (slots.position.numel() - slots.total)
        begin = first.gather(1, slots.slot) + self.rowptr[slots.node]
        begin = torch.where(padding < 0, begin, total + share)
        rowptr = torch.cat([begin, torch.full_like(total, num_nonzeros)], dim=1)
        col = self.col[index] + slots.first.gather(1, slot)
        dtype = index_dtype(slots.position.numel(), num_nonzeros)
        return CSR(rowptr.to(dtype), col.to(dtype), self.value[index])


class _Slots(NamedTuple):
    """The graphs of each batch in their order, and where their nodes come to lie."""

    graphs: Tensor  # [F, B + 1], the last one for padding
    first: Tensor  # [F, B + 1], the places of their first nodes
    total: Tensor  # [F, 1], the nodes that are not padding
    position: Tensor  # [N]
    slot: Tensor  # [F, N], which of the graphs a node belongs to
    node: Tensor  # [F, N], and which node of all it is


@dataclass(frozen=True, eq=False)
class GraphCollection:
    """Constant graphs to draw mini-batches from; see :meth:`GraphGNN.collect`."""

    x: Tensor  # [N + 1, F]
    node_start: Tensor  # [G + 1]
    node_count: Tensor  # [G + 1]
    matrices: tuple[_Blocks, ...]  # each once, though used as several
    uses: tuple[int, ...]  # which are the convolution's, GReLU's, and their transposes
    mass: Tensor | None

    @classmethod
    def from_graphs(
        cls,
        x: Tensor,
        edge_index: Tensor,
        node_ptr: Tensor,
        propagation: SparseMatrix,
        settings: DiffusionSettings | None,
    ) -> GraphCollection:
        """Graphs with their nodes one after another, the first ones being `node_ptr [G + 1]`."""
        used = list(propagation.csr)
        mass: Tensor | None = None
        if settings is not None:
            if settings.diffusion == "exact":
                raise ValueError("diffusion must be 'power' or 'chebyshev' in mini-batches.")
            batch = torch.repeat_interleave(node_ptr.diff())
            graph = prepare(edge_index, None, x.size(0), x.dtype, settings, batch, True)
            assert graph.matrices is not None
            used += graph.matrices
            mass = _with(graph.mass, 0.0)
        distinct: list[CSR] = []
        uses = []
        for matrix in used:
            same = (all(map(torch.equal, matrix, other)) for other in distinct)
            uses.append(next((i for i, equal in enumerate(same) if equal), len(distinct)))
            if uses[-1] == len(distinct):
                distinct.append(matrix)
        return cls(
            torch.cat([x, x.new_zeros(1, x.size(1))]),
            node_ptr,
            _with(node_ptr.diff(), 0),
            tuple(_Blocks.from_csr(matrix, node_ptr) for matrix in distinct),
            tuple(uses),
            mass,
        )

    @property
    def num_graphs(self) -> int:
        return self.node_count.numel() - 1

    def to(self, device: torch.device) -> GraphCollection:
        matrices = tuple(_moved(blocks, device) for blocks in self.matrices)
        moved: GraphCollection = _moved(self, device)
        return replace(moved, matrices=matrices)

    def capacity(self, graphs: Tensor) -> Capacity:
        """The least padded sizes that hold each of these batches `[..., B]`."""
        largest = [
            int(count[graphs].sum(dim=-1).max())
            for count in (self.node_count, *(blocks.count for blocks in self.matrices))
        ]
        return Capacity(largest[0] + 1, tuple(largest[1:]))

    def gather(self, graphs: Tensor, capacity: Capacity) -> GraphBatch:
        """The batches of these graphs `[F, B]`; one that does not exist, of number
        :obj:`num_graphs`, leaves its place empty."""
        graphs = torch.cat([graphs, torch.full_like(graphs[:, :1], self.num_graphs)], dim=1)
        end = self.node_count[graphs].cumsum(dim=1)
        first = end - self.node_count[graphs]
        position, slot = _positions(end, capacity.nodes)
        node = self.node_start[graphs].gather(1, slot) + position - first.gather(1, slot)
        node = node.clamp(max=self.x.size(0) - 1)
        slots = _Slots(graphs, first, end[:, -1:], position, slot, node)
        gathered = [
            blocks.gather(slots, nonzeros)
            for blocks, nonzeros in zip(self.matrices, capacity.nonzeros, strict=True)
        ]
        matrix, transposed, *rest = (gathered[use] for use in self.uses)
        diffusion: tuple[Tensor, CSR, CSR] | tuple[()] = ()
        if self.mass is not None:
            diffusion = self.mass[node], rest[0], rest[1]
        is_node = position < slots.total
        return GraphBatch(
            self.x[node], slot, is_node, GatheredMatrix(matrix, transposed), diffusion
        )


def prepared_graph(settings: DiffusionSettings | None, batch: GraphBatch) -> PreparedGraph | None:
    """The prepared graph for GReLU; ``None`` for activations that need no graph."""
    if settings is None or not batch.diffusion:
        return None
    mass, matrix, transposed = batch.diffusion
    return PreparedGraph(settings, mass, matrices=(matrix, transposed))


def _positions(end: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The positions `0, ..., size - 1` and the slot of each; the slots end at `[F, B + 1]`."""
    position = torch.arange(size, device=end.device)
    inside = position.expand(end.size(0), size).contiguous()
    return position, torch.searchsorted(end[:, :-1].contiguous(), inside, right=True)


def _with(tensor: Tensor, last: float) -> Tensor:
    return torch.cat([tensor, tensor.new_full((1,), last)])


def _moved(parts: Any, device: torch.device) -> Any:
    values = {field.name: getattr(parts, field.name) for field in fields(parts)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    return replace(parts, **{name: value.to(device) for name, value in tensors.items()})
