"""Training, validation and test nodes: pure functions of (labels, seed)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.graph import PARTS, DataError, Graph, require

TRAIN_PER_CLASS = 20
NUM_VAL = 500
NUM_TEST = 1_000
MIN_CLASS_SIZE = 30
SMALL_SHARES = (0.48, 0.32)  # for training and for validation; the rest is for testing
FULL_SHARES = (0.6, 0.2)

Kind = Literal["planetoid", "stratified", "masks", "folds"]


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted indices of nodes or graphs, and the rule of the split. The sets are disjoint, except
    that the GIN paper's protocol validates and tests on the same fold."""

    train: Tensor
    val: Tensor
    test: Tensor
    kind: Kind
    note: str


def make_split(graph: Graph, seed: int, how: str = "random") -> Split:
    """A split of a graph's nodes: ``"random"`` with few labels (:func:`planetoid_like`), ``"full"``
    with 60 % of them, the graph's own ``"masks"``, or the one that is ``"published"``.

    Without classes, ``"random"`` takes 48 / 32 / 20 % of the labelled nodes.
    """
    has_classes = graph.task == "classes"
    if how == "masks":
        return from_masks(graph, seed)
    if how == "full":
        return full(graph.strata, seed, "every class" if has_classes else "the labelled nodes")
    if how == "random" and has_classes:
        return planetoid_like(graph.y, seed)
    if how == "random":
        note = "48 / 32 / 20 % of the labelled nodes, at random"
        return _stratified(graph.strata, seed, SMALL_SHARES, note)
    require(has_classes, f"The split {how} is one of classes; choose random, full or masks.")
    if how == "published":
        return published(graph.y)
    raise DataError(f"There is no split {how!r}; known are random, full, masks and published.")


def planetoid_like(y: Tensor, seed: int) -> Split:
    """20 nodes per class for training, 500 for validation and 1,000 for testing, at random.

    Where a class has fewer than 30 nodes, or fewer than 1,500 nodes are left after the training
    nodes: 48 / 32 / 20 % of every class. Nodes with ``y < 0`` are never chosen.
    """
    order, classes = _random_order(y, seed)
    left = len(order) - TRAIN_PER_CLASS * len(classes)
    if min(map(len, classes)) < MIN_CLASS_SIZE or left < NUM_VAL + NUM_TEST:
        note = "48 / 32 / 20 % of every class, as the graph is too small for 20 per class"
        return _stratified(y, seed, SMALL_SHARES, note)
    # The first nodes of every class in one random order, then the next of any class.
    train = np.concatenate([nodes[:TRAIN_PER_CLASS] for nodes in classes])
    val, test, _ = np.split(order[~np.isin(order, train)], [NUM_VAL, NUM_VAL + NUM_TEST])
    note = (
        f"{TRAIN_PER_CLASS} nodes per class for training, "
        f"{NUM_VAL} for validation, {NUM_TEST:,} for testing, at random"
    )
    return _split((train, val, test), "planetoid", note)


def full(y: Tensor, seed: int, of: str = "every class") -> Split:
    """60 / 20 / 20 % of every class, at random. Nodes with ``y < 0`` are never chosen."""
    return _stratified(y, seed, FULL_SHARES, f"60 / 20 / 20 % of {of}, at random")


def published(y: Tensor) -> Split:
    """The one random split for which `"Classic GNNs are Strong Baselines"
    <https://arxiv.org/abs/2406.08993>`_ gives its scores on Cora, CiteSeer and PubMed: the draws of
    torch's generator, seed 123, class by class."""
    generator = torch.Generator().manual_seed(123)
    train, rest = [], []
    for label in range(int(y.max()) + 1):
        nodes = (y.cpu() == label).nonzero().view(-1)
        nodes = nodes[torch.randperm(len(nodes), generator=generator)]
        train.append(nodes[:TRAIN_PER_CLASS])
        rest.append(nodes[TRAIN_PER_CLASS:])
    others = torch.cat(rest)
    others = others[torch.randperm(len(others), generator=generator)]
    size = NUM_VAL + NUM_TEST
    require(len(others) >= size, f"The published split takes {size:,} nodes beside training.")
    note = "the one random split of published scores: 20 nodes per class, 500 and 1,000"
    parts = torch.cat(train), others[:NUM_VAL], others[NUM_VAL:size]
    return _split((part.numpy() for part in parts), "planetoid", note)


def from_masks(graph: Graph, seed: int) -> Split:
    """The graph's own masks; of several, ``[N, R]``, the column ``seed % R``."""
    masks = {part: getattr(graph, f"{part}_mask") for part in PARTS}
    columns = {mask.size(1) for mask in masks.values() if mask is not None and mask.dim() == 2}
    alike = len(columns) <= 1 and 0 not in columns
    require(alike, f"{graph.name}: the masks must all have the same number of splits.")
    chosen = []
    for part, mask in masks.items():
        sentence = f"{graph.name} has no {part}_mask, so it has no split of its own."
        require(mask is not None, sentence)
        column = mask[:, seed % mask.size(1)] if mask.dim() == 2 else mask
        nodes = np.flatnonzero((column & (graph.strata >= 0)).cpu().numpy())
        require(len(nodes) > 0, f"{graph.name}: the {part}_mask selects no labelled node.")
        chosen.append(nodes)
    together = np.concatenate(chosen)
    require(len(np.unique(together)) == len(together), f"{graph.name}: the masks overlap.")
    note = "the graph's own masks"
    if columns:
        count = columns.pop()
        note += f", split {seed % count + 1} of {count}"
    return _split(chosen, "masks", note)


def _stratified(y: Tensor, seed: int, shares: tuple[float, float], note: str) -> Split:
    """Shares of every class for training and for validation; the rest is for testing."""
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label, nodes in enumerate(_random_order(y, seed)[1]):
        cuts = np.cumsum([round(share * len(nodes)) for share in shares])
        for part, chosen in zip(parts, np.split(nodes, cuts), strict=True):
            sentence = f"Class {label} has too few nodes to be split ({len(nodes)})."
            require(len(chosen) > 0, sentence)
            part.append(chosen)
    return _split(map(np.concatenate, parts), "stratified", note)


def _random_order(y: Tensor, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The labelled nodes in random order, and those of every class in the same order."""
    labels = y.cpu().numpy()
    labelled = np.flatnonzero(labels >= 0)
    require(len(labelled) > 0, "There are no labels to split.")
    order = labelled[np.argsort(random_keys(seed, len(labelled)), kind="stable")]
    ordered = labels[order]
    return order, [order[ordered == label] for label in range(ordered.max() + 1)]


def random_keys(seed: int, count: int) -> np.ndarray:
    """Numbers to sort by, for a random order.

    Raw PCG64 output, not ``Generator.permutation``: numpy guarantees the former's stream across
    versions, so that a seed means the same order everywhere.
    """
    return np.random.PCG64(seed).random_raw(count)


def _split(parts: Iterable[np.ndarray], kind: Kind, note: str) -> Split:
    train, val, test = (torch.from_numpy(np.sort(part)) for part in parts)
    together = torch.cat([train, val, test])
    assert len(together.unique()) == len(together), "split not disjoint"
    assert min(len(train), len(val), len(test)) > 0, "split with an empty part"
    return Split(train, val, test, kind, note)
