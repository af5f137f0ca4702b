"""Graphs that are made on the spot, the same on every machine: drawn by a model, or of digits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected
from typing_extensions import Self

from graphrelu.lab.data.graph import GraphSet
from graphrelu.lab.data.splits import random_keys
from graphrelu.lab.errors import DataError, require

# Of block models.
REGIONS = 10  # the even ones are of one kind, the odd ones of another
INSIDE = 0.95  # the expected share of a node's neighbours in its region
FEATURES = 16
MARKER = 0.1  # how far the means of the second half are from 0: above in odd regions, else below
# Of coloured graphs.
COLOURS = 4
DEGREE = 5.0  # of a node far from the border; about 4 in the mean
SPREAD = 0.3  # the graphs have up to this share of nodes more, or less
ANCHORS = 0.15  # the share of nodes that pass on their colour
Label = Literal["share", "local", "whole", "both"]
NEIGHBOURS = 10  # of a digit


def within(default: float, low: float, high: float) -> Any:
    """A field with limits."""
    return field(default=default, metadata={"limits": (low, high)})


@dataclass(frozen=True)
class Generated:
    """Parameters with defaults, and the name that says them: ``csbm:homophily=0.2,degree=8``."""

    prefix: ClassVar[str]

    def __post_init__(self) -> None:
        for each in fields(self):
            if "limits" in each.metadata:
                value, (low, high) = getattr(self, each.name), each.metadata["limits"]
                inside = low <= value <= high  # which NaN is not
                require(inside, f"{each.name} must lie in [{low:,}, {high:,}], not {value}.")

    @property
    def name(self) -> str:
        """The name that :meth:`parse` understands, with all values that are not defaults."""
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        changed = ",".join(f"{name}={value}" for name, value, usual in values if value != usual)
        return f"{self.prefix}:{changed}" if changed else self.prefix

    @classmethod
    def is_named(cls, name: str) -> bool:
        """Whether this is one of its names."""
        return name.partition(":")[0] == cls.prefix

    @classmethod
    def parse(cls, name: str) -> Self:
        """The inverse of :attr:`name`; what it does not say has its default."""
        kinds: dict[str, Any] = {each.name: type(each.default) for each in fields(cls)}
        values: dict[str, Any] = {}
        for pair in filter(None, name.partition(":")[2].split(",")):
            key, _, text = pair.partition("=")
            known = f"{cls.prefix} has no parameter {key!r}; it has {', '.join(kinds)}."
            require(key in kinds, known)
            require(key not in values, f"{name} gives {key} twice.")
            try:
                values[key] = kinds[key](text)
            except ValueError:
                what = "a whole number" if kinds[key] is int else "a number"
                raise DataError(f"{key} must be {what}, not {text!r}.") from None
        return cls(**values)


@dataclass(frozen=True)
class BlockModel(Generated):
    """A contextual stochastic block model of two classes in ten regions.

    The number of nodes is the same in every class and region, up to one. The first half of the
    features tells of a node's class, the second of the kind of its region; each feature has normal
    noise of variance 1.
    """

    prefix: ClassVar[str] = "csbm"
    nodes: int = within(1_500, 20, 5_000)
    # Of a node: the expected number of neighbours, and the share of them in its class.
    degree: float = within(4.0, 0, 1_000)
    homophily: float = within(0.8, 0, 1)
    # How far the means of the first half are from 0: above for one class, below for the other.
    signal: float = within(0.5, 0, 1_000)
    # If 1, the classes trade their means in odd regions: what speaks for a class in an even region
    # speaks against it in an odd one.
    shift: int = within(0, 0, 1)
    # Of edges and noise.
    seed: int = within(0, 0, 2**63 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.edge_probabilities().max() <= 1,
            f"degree must be below {self.degree}: there are too few nodes of one "
            f"class in one region.",
        )

    def edge_probabilities(self) -> np.ndarray:
        """The probability of an edge, by whether its nodes are of one region and of one class."""
        region = np.array([[(1 - INSIDE) / (REGIONS - 1)], [INSIDE]])
        return (
            self.degree
            / (self.nodes / (2 * REGIONS))
            * region
            * [1 - self.homophily, self.homophily]
        )

    def generate(self) -> Data:
        """Draw the graph."""
        node = np.arange(self.nodes)
        y, region = node % 2, node // 2 % REGIONS
        odd = region % 2
        first, second = np.triu_indices(self.nodes, k=1)
        keys = random_keys(self.seed, len(first) + 6 * self.nodes * FEATURES)
        chance = (keys[: len(first)] >> np.uint64(11)) * 2.0**-53
        is_near = (region[first] == region[second]).astype(np.int64)
        is_alike = (y[first] == y[second]).astype(np.int64)
        is_edge = chance < self.edge_probabilities()[is_near, is_alike]
        edges = torch.from_numpy(np.stack([first[is_edge], second[is_edge]]))

        # Twelve uniform numbers less six: as good as normal, and no machine rounds it otherwise.
        halves = keys[len(first) :].view(np.uint32).reshape(self.nodes, FEATURES, 12)
        x = halves.sum(axis=2, dtype=np.int64) * 2.0**-32 - 6
        half = FEATURES // 2
        seen = (y + self.shift * odd) % 2
        x[:, :half] += self.signal * np.where(seen[:, None] == np.arange(half) % 2, 1, -1)
        x[:, half:] += MARKER * (2 * odd - 1)[:, None]
        return Data(
            x=torch.from_numpy(x.astype(np.float32)),
            edge_index=to_undirected(edges, num_nodes=self.nodes),
            y=torch.from_numpy(y),
        )


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


def read_digits() -> Data:
    """Each digit is joined with its nearest neighbours, either way."""
    from sklearn.datasets import load_digits
    from sklearn.metrics.pairwise import euclidean_distances

    pixels, y = load_digits(return_X_y=True)
    # Pixels are whole numbers up to 16: exact distances and a stable sort, which takes the lower
    # index first among ties, give the same graph on every machine.
    distances = euclidean_distances(pixels, squared=True)
    np.fill_diagonal(distances, np.inf)
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    row = torch.arange(len(y)).repeat_interleave(NEIGHBOURS)
    edge_index = torch.stack([row, torch.from_numpy(neighbours).reshape(-1)])
    return Data(
        x=torch.from_numpy(pixels / 16).float(),
        edge_index=to_undirected(edge_index, num_nodes=len(y)),
        y=torch.from_numpy(y).long(),
    )
