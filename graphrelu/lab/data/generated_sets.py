"""Generated sets of coloured graphs, whose labels need a look at the whole graph, or do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch_geometric.data import Data

from graphrelu.lab.data.generated import Generated, within
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.splits import random_keys
from graphrelu.lab.errors import require

COLOURS = 4
DEGREE = 5.0  # of a node far from the border; about 4 in the mean
SPREAD = 0.3  # the graphs have up to this share of nodes more, or less
ANCHORS = 0.15  # the share of nodes that pass on their colour
Label = Literal["share", "local", "whole", "both"]


@dataclass(frozen=True)
class ColouredGraphs(Generated):
    """Random geometric graphs: points in a square, joined where they are close.

    Each graph has its own shares of four colours. A node takes the colour of the nearest of a few
    nodes with a probability that is the graph's own, too, so that colours cluster more or less. The
    label is whether a number is above the median of all graphs. With `label`

    - `share` it is the share of nodes of the first colour, which the mean of the features tells;
    - `local` it is the share of nodes whose neighbours have exactly two colours;
    - `whole` it is the share of nodes around which no colour is more frequent than the one that is
      the most frequent in their graph: what a node counts for depends on the whole graph;
    - `both` it is the sum of the last two.
    """

    prefix: ClassVar[str] = "sets"
    label: Label = "whole"
    nodes: int = within(40, 5, 500)  # of a graph, in the mean
    graphs: int = within(1_000, 20, 100_000)
    seed: int = within(0, 0, 2**63 - 1)  # of everything random

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(Label)
        require(self.label in known, f"label must be one of {', '.join(known)}, not {self.label}.")

    def generate(self) -> GraphSet:
        """Draw the graphs."""
        width = round((1 + SPREAD) * self.nodes)
        keys = random_keys(self.seed, self.graphs * (2 + COLOURS + 5 * width))
        uniform = ((keys >> np.uint64(11)) * 2.0**-53).reshape(self.graphs, -1)
        drawn = [self._draw(own[: 2 + COLOURS], own[2 + COLOURS :]) for own in uniform]
        values = np.array([self.value(*one) for one in drawn])
        graphs = [
            Data(
                x=torch.from_numpy(colour)[:, None],
                edge_index=torch.from_numpy(np.stack(np.nonzero(joined))),
                y=torch.tensor([int(is_above)]),
            )
            for (colour, joined), is_above in zip(drawn, values > np.median(values), strict=True)
        ]
        return GraphSet.from_data(self.name, graphs)

    def _draw(self, of_graph: np.ndarray, of_nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The colours of the nodes, and which nodes are joined, from uniform numbers."""
        count = round(self.nodes * (1 - SPREAD + 2 * SPREAD * of_graph[0]))
        own_x, own_y, hue, anchoring, following = of_nodes.reshape(5, -1)[:, :count]
        weight = 0.5 + of_graph[2:]
        colour = np.searchsorted(weight.cumsum()[:-1], hue * weight.sum())
        distance = np.square(own_x - own_x[:, None]) + np.square(own_y - own_y[:, None])
        is_anchor = anchoring < ANCHORS
        nearest = np.where(is_anchor, distance, 9.0).argmin(axis=1)
        colour = np.where(following < of_graph[1], colour[nearest], colour)
        joined = distance < DEGREE / (np.pi * count)
        np.fill_diagonal(joined, False)
        return colour, joined

    def value(self, colour: np.ndarray, joined: np.ndarray) -> float:
        """The number that the label is about."""
        is_of = np.eye(COLOURS)[colour]
        around = joined @ is_of  # [nodes, COLOURS]
        is_top = (around == around.max(axis=1, keepdims=True)) & (around > 0)
        values = {
            "share": is_of[:, 0].mean(),
            "local": ((around > 0).sum(axis=1) == 2).mean(),
            "whole": is_top[:, is_of.sum(axis=0).argmax()].mean(),
        }
        values["both"] = values["local"] + values["whole"]
        return float(values[self.label])
