"""Sets of labelled graphs, and the checks before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphrelu.lab.data.graph import (
    DataError,
    Sized,
    checked_edges,
    checked_features,
    checked_labels,
)


@dataclass(frozen=True, eq=False)
class GraphSet(Sized):
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


def graph_set(x: Any, edge_index: Any, node_ptr: Tensor, y: Any, name: str) -> GraphSet:
    """Checked graphs; ``x`` may be missing, each node then has the feature 1."""
    num_nodes = int(node_ptr[-1])
    x = torch.ones(num_nodes, 1) if x is None else checked_features(x, name)
    if x.layout != torch.strided:
        raise DataError(f"{name}: the features must be dense.")
    if bool((node_ptr.diff() < 1).any()):
        raise DataError(f"{name}: graph {int((node_ptr.diff() < 1).int().argmax())} has no nodes.")
    if x.size(0) != num_nodes:
        raise DataError(f"{name} has features of {x.size(0)} nodes, but graphs of {num_nodes}.")
    y, num_classes = checked_labels(y, node_ptr.numel() - 1, name, "graph")
    if y.dim() != 1:
        raise DataError(f"{name}: each graph must have one class or one value.")
    if not y.is_floating_point() and bool((y < 0).any()):
        raise DataError(f"{name}: graph {int((y < 0).int().argmax())} has no label.")
    edge_index = checked_edges(edge_index, num_nodes, name)
    owner = torch.repeat_interleave(node_ptr.diff())
    if not torch.equal(owner[edge_index[0]], owner[edge_index[1]]):
        raise DataError(f"{name}: an edge joins two graphs.")
    return GraphSet(name, x, edge_index, node_ptr.long(), y, num_classes)
