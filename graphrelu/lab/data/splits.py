"""Training, validation and test nodes, or graphs: pure functions of (labels, seed)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.graph import PARTS, Graph, GraphSet
from graphrelu.lab.errors import as_data_error, require

NUM_FOLDS = 10
TRAIN_PER_CLASS = 20
NUM_VAL = 500
NUM_TEST = 1_000
MIN_CLASS_SIZE = 30
SMALL_SHARES = (0.48, 0.32)  # for training and for validation; the rest is for testing
FULL_SHARES = (0.6, 0.2)

SET_SHARES = (0.8, 0.9)  # where the training and the validation part of a set of graphs end

GraphSplit = Literal["random", "full", "masks", "published"]
SetSplit = Literal["random", "scaffold", "column", "folds"]

NOTES = {
    "scaffold": "whole scaffolds, the most frequent for training",
    "column": "the split that comes with the set",
    "folds": "10 stratified folds: one for testing, the next for validation, eight for training",
}


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted indices of nodes or graphs, disjoint, and the rule in words."""

    train: Tensor
    val: Tensor
    test: Tensor
    note: str


def make_split(graph: Graph, seed: int, how: str = "random") -> Split:
    """A split of a graph's nodes: ``"random"`` with few labels (:func:`planetoid_like`), ``"full"``
    with 60 % of them, the graph's own ``"masks"``, or the one that is ``"published"``.

    Without classes, ``"random"`` takes 48 / 32 / 20 % of the labelled nodes.
    """
    has_classes = graph.task == "classes"
    if how == "masks":
        return from_masks(graph, seed)
    if how == "published":
        require(has_classes, "The published split needs classes; choose random, full or masks.")
        return published(graph.y)
    if how == "random" and has_classes:
        return planetoid_like(graph.y, seed)
    require(
        how in ("random", "full"),
        f"There is no split {how!r}; choose from random, full, masks and published.",
    )
    shares = FULL_SHARES if how == "full" else SMALL_SHARES
    of = "every class" if has_classes else "the labelled nodes"
    return stratified(graph.strata, seed, shares, f"{of}, at random")


def split_of(graphs: GraphSet, seed: int, how: SetSplit | None = None) -> Split:
    """A split of a set of graphs: ten ``"folds"``, ``"random"``, or what came with the set, by
    ``"scaffold"`` or by ``"column"``; what came with it, else random, unless told."""
    name, y = graphs.name, graphs.y
    how = how or ("random" if graphs.split is None else "column")
    if how == "folds":
        split = fold_split(graphs.strata, seed)
    elif how == "random":
        split = _random_graphs(graphs, seed)
    else:
        parts = (np.flatnonzero(graphs.split == part) for part in range(3))
        split = _split(parts, NOTES[how])
    for part in PARTS:
        chosen = y[getattr(split, part)]
        require(len(chosen) > 0, f"{name}: the split leaves the {part} part empty.")
        require((~chosen.isnan()).any(), f"{name}: no target is known in the {part} part.")
        if graphs.task == "values":
            continue
        low, high = (chosen.nan_to_num(nan) for nan in (torch.inf, -torch.inf))
        varied = (low.amin(dim=0) < high.amax(dim=0)).any()
        require(varied, f"{name}: the {part} part has one class only, in every target.")
    return split


def _random_graphs(graphs: GraphSet, seed: int) -> Split:
    """80 / 10 / 10 % of a set of graphs, of every class where there are classes."""
    count = len(graphs.y)
    if graphs.task == "classes":
        from sklearn.model_selection import train_test_split

        with as_data_error(f"{graphs.name} cannot be split"):
            y, graph = graphs.y.view(-1).numpy(), np.arange(count)
            train, rest = train_test_split(graph, test_size=0.2, random_state=seed, stratify=y)
            val, test = train_test_split(rest, test_size=0.5, random_state=seed, stratify=y[rest])
        return _split((train, val, test), "80 / 10 / 10 % of every class, at random")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    cuts = [int(share * count) for share in SET_SHARES]
    return _split(order.tensor_split(cuts), "80 / 10 / 10 % of the graphs, at random")


def fold_split(y: Tensor, seed: int) -> Split:
    """One of ten stratified folds for testing, and the next one for validation: a seed is ten times
    the number of a fold assignment plus the number of a fold."""
    from sklearn.model_selection import StratifiedKFold

    sizes = y.bincount()
    require(
        sizes.min() >= NUM_FOLDS,
        f"Class {sizes.argmin()} has fewer than {NUM_FOLDS} graphs ({sizes.min()}), "
        f"too few for {NUM_FOLDS} folds.",
    )
    assignment, fold = divmod(seed, NUM_FOLDS)
    rule = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=assignment)
    folds = [test for _, test in rule.split(y, y.cpu().numpy())]
    test = folds.pop(fold)
    val = folds.pop(fold % len(folds))
    return _split((np.concatenate(folds), val, test), NOTES["folds"])


def planetoid_like(y: Tensor, seed: int) -> Split:
    """20 nodes per class for training, 500 for validation and 1,000 for testing, at random.

    Where a class has fewer than 30 nodes, or fewer than 1,500 nodes are left after the training
    nodes: 48 / 32 / 20 % of every class. Nodes with ``y < 0`` are never chosen.
    """
    order, classes = _random_order(y, seed)
    left = len(order) - TRAIN_PER_CLASS * len(classes)
    if min(map(len, classes)) < MIN_CLASS_SIZE or left < NUM_VAL + NUM_TEST:
        of = "every class, as the graph is too small for 20 per class"
        return stratified(y, seed, SMALL_SHARES, of)
    # The first nodes of every class in one random order, then the next of any class.
    train = np.concatenate([nodes[:TRAIN_PER_CLASS] for nodes in classes])
    val, test, _ = np.split(order[~np.isin(order, train)], [NUM_VAL, NUM_VAL + NUM_TEST])
    note = (
        f"{TRAIN_PER_CLASS} nodes per class for training, "
        f"{NUM_VAL} for validation, {NUM_TEST:,} for testing, at random"
    )
    return _split((train, val, test), note)


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
    return _split(parts, note)


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
    note = "the graph's own masks"
    if columns:
        count = columns.pop()
        note += f", split {seed % count + 1} of {count}"
    return _split(chosen, note)


def stratified(y: Tensor, seed: int, shares: tuple[float, float], of: str = "every class") -> Split:
    """Shares of every class for training and for validation; the rest is for testing. Nodes with
    ``y < 0`` are never chosen."""
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label, nodes in enumerate(_random_order(y, seed)[1]):
        cuts = np.cumsum([round(share * len(nodes)) for share in shares])
        for part, chosen in zip(parts, np.split(nodes, cuts), strict=True):
            sentence = f"Class {label} has too few nodes to be split ({len(nodes)})."
            require(len(chosen) > 0, sentence)
            part.append(chosen)
    named = " / ".join(f"{100 * share:.0f}" for share in (*shares, 1 - sum(shares)))
    return _split(map(np.concatenate, parts), f"{named} % of {of}")


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


def _split(parts: Iterable[Any], note: str) -> Split:
    train, val, test = (torch.as_tensor(part).sort().values for part in parts)
    together = torch.cat([train, val, test])
    require(len(together.unique()) == len(together), "The parts of the split overlap.")
    return Split(train, val, test, note)
