"""Training, validation and test nodes: pure functions of (labels, seed)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.graph import DataError, Graph

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
    with 60 % of them, the graph's own ``"masks"``, or the one that is ``"published"``."""
    if how == "masks":
        return from_masks(graph, seed)
    if graph.task != "classes":
        return _of_all(graph.strata, seed, how)
    if how == "random":
        return planetoid_like(graph.y, seed)
    if how == "full":
        return full(graph.y, seed)
    if how == "published":
        return published(graph.y)
    raise DataError(f"There is no split {how!r}; known are random, full, masks and published.")


def planetoid_like(y: Tensor, seed: int) -> Split:
    """20 nodes per class for training, 500 for validation and 1,000 for testing, at random.

    Where a class has fewer than 30 nodes, or fewer than 1,500 nodes are left after the training
    nodes: 48 / 32 / 20 % of every class. Nodes with ``y < 0`` are never chosen.
    """
    labels = y.cpu().numpy()
    order = _random_order(labels, seed)
    sizes = np.bincount(labels[order])
    left = len(order) - TRAIN_PER_CLASS * len(sizes)
    if sizes.min() < MIN_CLASS_SIZE or left < NUM_VAL + NUM_TEST:
        note = "48 / 32 / 20 % of every class, as the graph is too small for 20 per class"
        return _stratified(labels, order, SMALL_SHARES, note)
    # The first nodes of every class in one random order, then the next of any class.
    train = np.concatenate([part[:TRAIN_PER_CLASS] for part in _by_class(labels, order)])
    rest = order[~np.isin(order, train)]
    split = _split(
        train,
        rest[:NUM_VAL],
        rest[NUM_VAL : NUM_VAL + NUM_TEST],
        "planetoid",
        f"{TRAIN_PER_CLASS} nodes per class for training, "
        f"{NUM_VAL} for validation, {NUM_TEST:,} for testing, at random",
    )
    assert bool((y[split.train].bincount() == TRAIN_PER_CLASS).all()), "training set unbalanced"
    assert len(split.val) == NUM_VAL
    assert len(split.test) == NUM_TEST
    return split


def full(y: Tensor, seed: int) -> Split:
    """60 / 20 / 20 % of every class, at random. Nodes with ``y < 0`` are never chosen."""
    labels = y.cpu().numpy()
    note = "60 / 20 / 20 % of every class, at random"
    return _stratified(labels, _random_order(labels, seed), FULL_SHARES, note)


def _of_all(strata: Tensor, seed: int, how: str) -> Split:
    """Without classes there is nothing to keep in proportion."""
    shares = {"random": SMALL_SHARES, "full": FULL_SHARES}.get(how)
    if shares is None:
        raise DataError(f"The split {how} is one of classes; choose random, full or masks.")
    train, val = (round(100 * share) for share in shares)
    note = f"{train} / {val} / {100 - train - val} % of the labelled nodes, at random"
    labels = strata.cpu().numpy()
    return _stratified(labels, _random_order(labels, seed), shares, note)


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
    if len(others) < NUM_VAL + NUM_TEST:
        raise DataError(f"The published split takes {NUM_VAL + NUM_TEST:,} nodes beside training.")
    parts = torch.cat(train), others[:NUM_VAL], others[NUM_VAL : NUM_VAL + NUM_TEST]
    note = "the one random split of published scores: 20 nodes per class, 500 and 1,000"
    first, second, third = (part.numpy() for part in parts)
    return _split(first, second, third, "planetoid", note)


def from_masks(graph: Graph, seed: int) -> Split:
    """The graph's own masks; of several, ``[N, R]``, the column ``seed % R``."""
    masks = {"train": graph.train_mask, "val": graph.val_mask, "test": graph.test_mask}
    columns = {mask.size(1) for mask in masks.values() if mask is not None and mask.dim() == 2}
    if len(columns) > 1 or 0 in columns:
        raise DataError(f"{graph.name}: the masks must all have the same number of splits.")
    labelled = (graph.strata >= 0).cpu().numpy()
    chosen = {}
    for name, mask in masks.items():
        if mask is None:
            raise DataError(f"{graph.name} has no {name}_mask, so it has no split of its own.")
        column = mask[:, seed % mask.size(1)] if mask.dim() == 2 else mask
        chosen[name] = np.flatnonzero(column.cpu().numpy() & labelled)
        if len(chosen[name]) == 0:
            raise DataError(f"{graph.name}: the {name}_mask selects no labelled node.")
    together = np.concatenate(list(chosen.values()))
    if len(np.unique(together)) != len(together):
        raise DataError(f"{graph.name}: the masks overlap.")
    note = "the graph's own masks"
    if columns:
        count = columns.pop()
        note += f", split {seed % count + 1} of {count}"
    return _split(chosen["train"], chosen["val"], chosen["test"], "masks", note)


def _stratified(
    labels: np.ndarray, order: np.ndarray, shares: tuple[float, float], note: str
) -> Split:
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label, nodes in enumerate(_by_class(labels, order)):
        cuts = np.cumsum([round(share * len(nodes)) for share in shares])
        for part, chosen in zip(parts, np.split(nodes, cuts), strict=True):
            if len(chosen) == 0:
                raise DataError(f"Class {label} has too few nodes to be split ({len(nodes)}).")
            part.append(chosen)
    train, val, test = (np.concatenate(part) for part in parts)
    return _split(train, val, test, "stratified", note)


def _random_order(labels: np.ndarray, seed: int) -> np.ndarray:
    """The labelled nodes in random order."""
    labelled = np.flatnonzero(labels >= 0)
    if len(labelled) == 0:
        raise DataError("There are no labels to split.")
    return labelled[np.argsort(random_keys(seed, len(labelled)), kind="stable")]


def random_keys(seed: int, count: int) -> np.ndarray:
    """Numbers to sort by, for a random order.

    Raw PCG64 output, not ``Generator.permutation``: numpy guarantees the former's stream across
    versions, so that a seed means the same order everywhere.
    """
    return np.random.PCG64(seed).random_raw(count)


def _by_class(labels: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """The nodes of every class, each in the given order."""
    ordered = labels[order]
    return [order[ordered == label] for label in range(int(ordered.max()) + 1)]


def _split(train: np.ndarray, val: np.ndarray, test: np.ndarray, kind: Kind, note: str) -> Split:
    together = np.concatenate([train, val, test])
    assert len(np.unique(together)) == len(together), "split not disjoint"
    assert min(len(train), len(val), len(test)) > 0, "split with an empty part"
    first, second, third = (torch.from_numpy(np.sort(part)) for part in (train, val, test))
    return Split(first, second, third, kind, note)
