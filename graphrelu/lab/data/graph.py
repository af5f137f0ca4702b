"""One graph with labelled nodes, or a set of graphs, and the checks before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import is_undirected, remove_self_loops, to_undirected

from graphrelu.lab.errors import as_data_error, require

# A class for each node, or graph; any number of labels, each 0 or 1; or a number to predict.
Task = Literal["classes", "labels", "values"]

PARTS = ("train", "val", "test")
FEW_VALUES = 20  # whole numbers that may be meant as classes
MOST_CATEGORIES = 100_000
_MOST_NAMED = 5  # of the lines that were left out


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph whose nodes are learned, with its features as they were stored.

    ``x`` is dense ``[N, F]`` or a sparse CSR tensor, where the source is sparse. ``y`` are classes
    ``[N]``, labels ``[N, L]`` of 0 and 1 in floating point, or values ``[N]`` in floating point. A
    node without a label has -1. The masks, if any, are ``[N]`` or ``[N, R]`` for ``R`` splits.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    y: Tensor
    train_mask: Tensor | None = None
    val_mask: Tensor | None = None
    test_mask: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @property
    def num_features(self) -> int:
        return self.x.size(1)

    @property
    def num_classes(self) -> int:
        """The number of classes or of labels; 1 for values."""
        return int(self.y.max()) + 1 if self.task == "classes" else self.y[0].numel()

    @property
    def task(self) -> Task:
        """What is learned, as the labels show."""
        if self.y.dim() == 2:
            return "labels"
        return "values" if self.y.is_floating_point() else "classes"

    @property
    def strata(self) -> Tensor:
        """The classes, which a split keeps in proportion; 0 without classes, -1 without a label."""
        if self.task == "classes":
            return self.y
        if self.task == "values":
            return torch.zeros_like(self.y, dtype=torch.long)
        return self.y[:, 0].long().clamp(max=0)

    @property
    def num_unlabelled(self) -> int:
        """The nodes that are neither learned from nor tested on."""
        return int((self.strata < 0).sum())

    @property
    def note(self) -> str:
        """That values look like classes; empty where they do not."""
        if self.task != "values" or (self.y % 1 != 0).any() or len(self.y.unique()) > FEW_VALUES:
            return ""
        return (
            f"The {len(self.y.unique())} values of y are whole numbers in floating point; if they "
            "are classes, write them as integers (1, not 1.0; y.long())."
        )


def from_data(data: Any, name: str) -> Graph:
    """Turn a PyG :class:`~torch_geometric.data.Data` object into a checked :class:`Graph`."""
    require(isinstance(data, Data), f"{name} is a {type(data).__name__}, not a PyG Data object.")
    x = _checked_features(data.x, name)
    y = _checked_labels(data.y, x.size(0), name)
    edge_index = checked_edges(data.edge_index, x.size(0), name)
    weight = _edge_weight(getattr(data, "edge_weight", None), edge_index.size(1), name)
    masks = {f"{part}_mask": _mask(data, f"{part}_mask", x.size(0), name) for part in PARTS}
    return Graph(name, x, edge_index, weight, y, **masks)


def undirected(graph: Graph) -> Graph:
    """The graph with both directions of every edge and without self-loops.

    An edge that is there several times, or in both directions, has the mean of its weights.
    """
    index, weight = remove_self_loops(graph.edge_index, graph.edge_weight)
    if weight is None:
        index = to_undirected(index, num_nodes=graph.num_nodes)
    else:
        index, weight = to_undirected(index, weight, graph.num_nodes, reduce="mean")
    return replace(graph, edge_index=index, edge_weight=weight)


def _checked_features(x: Any, name: str) -> Tensor:
    """Finite numbers ``[nodes, features]`` in single precision, dense or sparse CSR."""
    require(x is not None, f"{name} has no node features (x is missing).")
    fits = isinstance(x, Tensor) and x.dim() == 2 and x.numel() > 0 and not x.is_complex()
    require(fits, f"{name}: the features must be a real matrix [nodes, features], not empty.")
    is_dense = x.layout == torch.strided
    features: Tensor = x.as_subclass(Tensor).contiguous() if is_dense else x.to_sparse_csr()
    features = features.float()
    values = features if is_dense else features.values()
    require(values.isfinite().all(), f"{name}: the features contain NaN or infinite values.")
    return features


def checked_edges(edge_index: Any, num_nodes: int, name: str) -> Tensor:
    """Edges ``[2, edges]`` between nodes that exist."""
    require(edge_index is not None, f"{name} has no edges (edge_index is missing).")
    with as_data_error(f"{name} has faulty edges"):
        Data(edge_index=edge_index, num_nodes=num_nodes).validate()
    kind = edge_index.dtype
    whole = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    require(whole, f"{name}: edge_index must hold integers, not {kind}.")
    # PyG may hand over its own subclass of Tensor; plain tensors behave the same everywhere.
    plain: Tensor = edge_index.as_subclass(Tensor)
    return plain.long().contiguous()


def _edge_weight(weight: Any, num_edges: int, name: str) -> Tensor | None:
    if weight is None:
        return None
    fits = isinstance(weight, Tensor) and weight.numel() == num_edges
    require(fits, f"{name}: edge_weight must hold one number for each of {num_edges} edges.")
    flat: Tensor = weight.reshape(-1).float()
    usable = (flat.isfinite() & (flat >= 0)).all()
    require(usable, f"{name}: the edge weights must be finite and not negative.")
    return flat


def _checked_labels(y: Any, num_nodes: int, name: str) -> Tensor:
    """The classes, labels or values of all nodes."""
    require(y is not None, f"{name} has no labels (y is missing).")
    if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
        y = y.view(-1)
    fits = isinstance(y, Tensor) and y.dim() in (1, 2) and 0 not in y.shape[1:]
    require(
        fits and not y.is_complex(),
        f"{name}: y must hold a class or a value of each node [nodes], or 0 and 1 for each of its "
        f"labels [nodes, labels].",
    )
    require(y.size(0) == num_nodes, f"{name} has {y.size(0)} labels for {num_nodes} nodes.")
    if y.dim() == 1 and not y.is_floating_point():
        return _checked_classes(y.long(), name)
    labelled = y = y.float() if y.dim() == 2 else y.double()
    if y.dim() == 2:
        labelled = y[(y != -1).any(dim=1)]
        require(
            ((labelled == 0) | (labelled == 1)).all(),
            f"{name}: a y of several columns must hold only 0 and 1, or -1 in the whole row of a "
            f"node without labels.",
        )
    remedy = "masks can leave a node without a value out"
    finite = f"{name}: y must hold finite values, not NaN or infinite ones; {remedy}."
    require(y.isfinite().all(), finite)
    varied = (labelled != labelled[:1]).any()
    require(varied, f"{name}: y is the same for all nodes, so there is nothing to learn.")
    return y


def _checked_classes(y: Tensor, name: str) -> Tensor:
    classes = y[y >= 0].unique()
    count = len(classes)
    require(count > 0, f"{name} has no labels (every y is negative).")
    one = f"{name}: all labelled nodes have one class, so there is nothing to learn."
    require(count > 1, one)
    require(
        classes[-1] == count - 1,
        f"{name}: the labels of {count} classes must run from 0 to {count - 1} without gaps, but "
        f"the largest is {int(classes[-1])}.",
    )
    return y


def _mask(data: Data, key: str, num_nodes: int, name: str) -> Tensor | None:
    mask = getattr(data, key, None)
    if mask is None:
        return None
    fits = isinstance(mask, Tensor) and mask.dim() in (1, 2) and mask.size(0) == num_nodes
    require(fits, f"{name}: {key} must have the shape [{num_nodes}] or [{num_nodes}, splits].")
    binary = mask.dtype == torch.bool or ((mask == 0) | (mask == 1)).all()
    require(binary, f"{name}: {key} must hold only true and false.")
    return mask.bool()


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
