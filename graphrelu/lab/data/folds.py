"""Ten stratified folds of labelled graphs: pure functions of (labels, seed).

A seed is ten times the number of a fold assignment plus the number of a fold: seeds 0 to 9 are the
folds of the first assignment, 10 to 19 those of the second.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.graph import require
from graphrelu.lab.data.splits import Split, random_keys

NUM_FOLDS = 10
BATCH_SIZE = 128
GIN_STEPS, GIN_BATCH_SIZE = 50, 32  # of an epoch, where mini-batches are drawn as by GIN's code

NOTES = {
    "folds": "10 stratified folds: one for testing, the next for validation, eight for training",
    "gin_folds": "10 stratified folds by the GIN paper's protocol: nine for training, the epoch "
    "chosen by the mean accuracy on the held-out folds themselves",
}
NOTES["gin_paper"] = NOTES["gin_folds"]


def deal(y: Tensor, assignment: int) -> np.ndarray:
    """The fold of each graph."""
    from sklearn.model_selection import StratifiedKFold

    labels = y.cpu().numpy()
    sizes = np.bincount(labels)
    require(
        sizes.min() >= NUM_FOLDS,
        f"Class {sizes.argmin()} has fewer than {NUM_FOLDS} graphs ({sizes.min()}), "
        f"too few for {NUM_FOLDS} folds.",
    )
    folds = np.empty(len(labels), dtype=np.int64)
    split = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=assignment).split
    for fold, (_, held_out) in enumerate(split(labels, labels)):
        folds[held_out] = fold
    return folds


def fold_split(y: Tensor, seed: int, how: str) -> Split:
    """The graphs of a run by the paper's protocol, ``"folds"``, or by one of the GIN paper's,
    ``"gin_folds"`` and ``"gin_paper"``, whose validation graphs are the test graphs."""
    assignment, fold = divmod(seed, NUM_FOLDS)
    folds = deal(y, assignment)
    is_test = folds == fold
    is_val = folds == (fold + 1) % NUM_FOLDS if how == "folds" else is_test
    parts = (~(is_test | is_val), is_val, is_test)
    train, val, test = (torch.from_numpy(np.flatnonzero(part)) for part in parts)
    return Split(train, val, test, "folds", NOTES[how])


def training_order(
    split: Split, seed: int, epochs: int, steps: int, padding: int, batch_size: int = BATCH_SIZE
) -> Tensor:
    """The training graphs of each step ``[epochs, steps, batch_size]``, in a new order in every
    epoch.

    A place that is left over holds the number ``padding``.
    """
    graphs, places = split.train.numpy(), steps * batch_size
    keys = random_keys(seed, epochs * len(graphs)).reshape(epochs, -1)
    order = np.full((epochs, places), padding)
    shuffled = graphs[np.argsort(keys, axis=1, kind="stable")[:, :places]]
    order[:, : shuffled.shape[1]] = shuffled
    return torch.from_numpy(order.reshape(epochs, steps, batch_size))


def steps_per_epoch(y: Tensor, how: str) -> int:
    """The number of steps that every fold fills. The number of graphs of a class in a fold does
    not depend on chance. A larger fold leaves a few random graphs out in each epoch."""
    sizes = [len(fold_split(y, seed, how).train) for seed in range(NUM_FOLDS)]
    return -(-min(sizes) // BATCH_SIZE)
