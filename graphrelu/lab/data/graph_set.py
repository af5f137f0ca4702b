"""Sets of labelled graphs, and the checks before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphrelu.lab.data.graph import Sized, checked_edges, checked_features, checked_labels, require


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


def graph_set(x: Any, edge_index: Any, sizes: Tensor, y: Any, name: str) -> GraphSet:
    """Checked graphs of ``sizes [G]`` nodes; without ``x``, each node has the feature 1."""
    num_nodes = int(sizes.sum())
    x = torch.ones(num_nodes, 1) if x is None else checked_features(x, name)
    require(x.layout == torch.strided, f"{name}: the features must be dense.")
    require((sizes > 0).all(), f"{name}: graph {int((sizes < 1).int().argmax())} has no nodes.")
    fits = x.size(0) == num_nodes
    require(fits, f"{name} has features of {x.size(0)} nodes, but graphs of {num_nodes}.")
    y, num_classes = checked_labels(y, len(sizes), name, "graph")
    require(y.dim() == 1, f"{name}: each graph must have one class or one value.")
    unlabelled = (y < 0) & (not y.is_floating_point())
    require(~unlabelled.any(), f"{name}: graph {int(unlabelled.int().argmax())} has no label.")
    edge_index = checked_edges(edge_index, num_nodes, name)
    owner = torch.repeat_interleave(sizes)
    apart = (owner[edge_index[0]] != owner[edge_index[1]]).any()
    require(~apart, f"{name}: an edge joins two graphs.")
    node_ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).long()
    return GraphSet(name, x, edge_index, node_ptr, y, num_classes)
