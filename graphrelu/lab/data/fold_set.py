"""A set of graphs as the training by folds takes it, with the nodes of all graphs numbered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphrelu.lab.data import load_graphs
from graphrelu.lab.data.graph import Task, require


@dataclass(frozen=True, eq=False)
class FoldSet:
    """Graphs to classify, or to predict a value of, one after another in the same tensors.

    ``node_ptr [G + 1]`` holds the first node of each graph, and the number of all nodes;
    ``edge_index`` counts nodes over all graphs; ``y [G]`` are the graphs' classes or, in
    floating point, their values.
    """

    name: str
    x: Tensor
    edge_index: Tensor
    node_ptr: Tensor
    y: Tensor
    num_classes: int

    @property
    def num_graphs(self) -> int:
        return self.y.size(0)

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


def fold_set(x: Tensor, edge_index: Tensor, sizes: Tensor, y: Tensor, name: str) -> FoldSet:
    """Graphs of ``sizes [G]`` nodes."""
    node_ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).long()
    num_classes = 1 if y.is_floating_point() else int(y.max()) + 1
    return FoldSet(name, x, edge_index, node_ptr, y, num_classes)


def load_fold_set(name: str, root: str | Path | None = None) -> FoldSet:
    """What :func:`~graphrelu.lab.data.load_graphs` reads, where each graph has one class or one
    value."""
    graphs = load_graphs(name, root)
    one = graphs.task != "labels" and graphs.y.size(1) == 1 and not graphs.y.isnan().any()
    require(one, f"{name}: each graph must have one class or one value.")
    table, kind, sizes = graphs.nodes
    if sizes:
        columns = zip(table.t(), sizes, strict=True)
        table = torch.cat([torch.nn.functional.one_hot(*one) for one in columns], dim=1).float()
    shift = (graphs.node_count.cumsum(0) - graphs.node_count).repeat_interleave(graphs.edge_count)
    y = graphs.y.view(-1)
    y = y.double() if graphs.task == "values" else y
    return fold_set(table[kind], graphs.edge_index + shift, graphs.node_count, y, graphs.name)
