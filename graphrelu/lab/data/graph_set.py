"""Sets of graphs, with a class, labels or values to predict of each graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import is_undirected, remove_self_loops

from graphrelu.lab.data.graph import Task, checked_edges
from graphrelu.lab.errors import as_data_error, require

MOST_CATEGORIES = 100_000
_MOST_NAMED = 5


class Features(NamedTuple):
    """Features that many nodes (or edges) share: row `kind[n]` of the table is node n's.

    A table of whole numbers `[K, F]` holds categories, of which column f has `sizes[f]`; a table
    of real numbers holds values, and no sizes.
    """

    table: Tensor
    kind: Tensor  # [N]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class GraphSet:
    """A set of graphs, one after another, with targets `y [G, T]`, NaN where one is unknown; or
    with one class of each graph, whole numbers `y [G, 1]`. The graphs are undirected, without
    self-loops.

    ``edge_index [2, E]`` counts nodes within each graph. ``split [G]`` is 0, 1 and 2 for training,
    validation and test graphs; ``None`` where the seed of a run draws them. ``unreadable`` are the
    lines of a file that were left out.
    """

    name: str
    nodes: Features
    edges: Features
    edge_index: Tensor
    node_count: Tensor  # [G]
    edge_count: Tensor  # [G]
    y: Tensor
    targets: tuple[str, ...]
    split: Tensor | None = None
    unreadable: tuple[int, ...] = ()

    @classmethod
    def from_data(cls, name: str, graphs: Sequence[Data], split: Tensor | None = None) -> GraphSet:
        """Checked graphs of PyG, such as one of its datasets or any list.

        Whole numbers in ``x`` and ``edge_attr`` are categories, real numbers features. As in PyG,
        a whole number ``y`` of shape ``[1]`` is a class. A ``y`` of shape ``[1, T]`` holds labels,
        where it is 0 and 1, or values.
        """
        require(len(graphs) > 0, f"{name} has no graphs.")
        parts = []
        for i, data in enumerate(graphs):
            which = f"{name}, graph {i},"
            require(data.y is not None, f"{which} has no y.")
            require(data.x is not None or "num_nodes" in data, f"{which} has no x.")
            x, attr = data.x, data.edge_attr
            x = torch.ones(int(data.num_nodes), 1) if x is None else x.to_dense()
            require(len(x) > 0, f"{which} has no nodes.")
            edge_index = checked_edges(data.edge_index, len(x), f"{name}, graph {i}")
            rows = edge_index.size(1)
            attr = torch.zeros(rows, 1).long() if attr is None else attr
            require(len(attr) == rows, f"{which} must have a row of edge_attr for each edge.")
            x, attr = (part.unsqueeze(1) if part.dim() == 1 else part for part in (x, attr))
            parts.append(Data(x, edge_index, attr, data.y.reshape(1, -1)))
        with as_data_error(f"{name}: x, edge_attr and y must have as many columns in each graph"):
            batch = Batch.from_data_list(parts)
        edge_index, attr = remove_self_loops(batch.edge_index, batch.edge_attr)
        undirected = is_undirected(edge_index, num_nodes=batch.num_nodes)
        require(undirected, f"{name}: the graphs must be undirected.")
        graph = batch.batch[edge_index[0]]
        return cls(
            name,
            _features(batch.x, f"{name}: x"),
            _features(attr, f"{name}: edge_attr"),
            edge_index - batch.ptr[graph],
            batch.ptr.diff(),
            graph.bincount(minlength=len(graphs)),
            _targets(batch.y, graphs[0].y.dim() < 2, name),
            tuple(f"y{i}" for i in range(batch.y.size(1))),
            split,
        )

    @property
    def num_graphs(self) -> int:
        return len(self.y)

    @property
    def num_nodes(self) -> int:
        return len(self.nodes.kind)

    @property
    def num_edges(self) -> int:
        return len(self.edges.kind)

    @property
    def num_features(self) -> int:
        return self.nodes.table.size(1)

    @property
    def num_classes(self) -> int:
        """The number of classes, or of labels or values: what a network says of a graph."""
        return int(self.y.max()) + 1 if self.task == "classes" else self.y.size(1)

    @property
    def task(self) -> Task:
        """Labels that hold or do not, a class, or values."""
        if not self.y.is_floating_point():
            return "classes"
        known = self.y[~self.y.isnan()]
        return "labels" if bool(((known == 0) | (known == 1)).all()) else "values"

    @property
    def strata(self) -> Tensor:
        """The classes ``[G]``, or one known label, which folds keep in proportion; else 0."""
        is_class = self.task == "classes"
        if is_class or (self.task == "labels" and self.y.size(1) == 1 and not self.y.isnan().any()):
            return self.y.view(-1).long()
        return torch.zeros(len(self.y), dtype=torch.long)

    @property
    def note(self) -> str:
        """What was left out, in one sentence; empty where nothing was."""
        if not self.unreadable:
            return ""
        number, lines = len(self.unreadable), ", ".join(map(str, self.unreadable[:_MOST_NAMED]))
        more = ", ..." if number > _MOST_NAMED else ""
        where = "line" if number == 1 else "lines"
        counts = f"{number:,} of {number + len(self.y):,} molecules"
        return f"Left out as unreadable: {counts} ({where} {lines}{more})."


def _features(x: Tensor, what: str) -> Features:
    """Each row once; of categories, as many as the largest number says."""
    is_real = x.is_floating_point()
    require(x.dim() == 2, f"{what} must have the shape [number, features].")
    require(is_real or (x >= 0).all(), f"{what} must not be negative.")
    require(x.isfinite().all(), f"{what} contains NaN or infinite values.")
    table, kind = x.unique(dim=0, return_inverse=True)
    if is_real:
        return Features(table.float(), kind)
    sizes = (x.amax(dim=0) + 1).tolist() if len(x) else [1] * x.size(1)
    require(
        max(sizes) <= MOST_CATEGORIES,
        f"{what} holds whole numbers up to {max(sizes) - 1:,}, which would be categories; turn "
        f"measurements into real numbers with .float().",
    )
    return Features(table.long(), kind, tuple(sizes))


def _targets(y: Tensor, is_flat: bool, name: str) -> Tensor:
    """The classes as whole numbers; labels and values in floating point."""
    require(not y.isinf().any(), f"{name}: y contains infinite values.")
    known = y[~y.isnan()]
    varied = len(known) > 0 and bool((known != known[0]).any())
    require(varied, f"{name}: y is the same for all graphs, so there is nothing to learn.")
    if y.is_floating_point() or y.size(1) > 1 or not (is_flat or y.max() > 1):
        return y.float()
    unknown = int(y.argmin())
    require(y.min() >= 0, f"{name}, graph {unknown}, has no class (y is negative).")
    return y.long()
