"""Folds: scikit-learn's deal, each graph tested once, and an order of its own for every run."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphrelu.lab.data.folds import (
    BATCH_SIZE,
    NUM_FOLDS,
    deal,
    fold_split,
    steps_per_epoch,
    training_order,
)
from graphrelu.lab.data.graph import DataError


def labels(*sizes: int) -> torch.Tensor:
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return y[torch.randperm(len(y))]


@pytest.mark.parametrize("sizes", [(63, 125), (450, 663), (30, 10, 57, 24)])
def test_the_same_deal_as_scikit_learn(sizes: tuple[int, ...]) -> None:
    y = labels(*sizes)
    for assignment in range(4):
        expected = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=assignment)
        folds = deal(y, assignment)
        for fold, (_, test) in enumerate(expected.split(np.zeros(len(y)), y.numpy())):
            assert np.flatnonzero(folds == fold).tolist() == test.tolist()


def test_parts() -> None:
    y = labels(63, 125)
    tested = []
    for seed in range(10, 20):
        split = fold_split(y, seed, "folds")
        parts = torch.cat([split.train, split.val, split.test])
        assert sorted(parts.tolist()) == list(range(188))
        after = 10 + (seed + 1) % 10
        assert torch.equal(split.val, fold_split(y, after, "folds").test)
        tested.append(split.test)
        gin = fold_split(y, seed, "gin_folds")
        assert torch.equal(gin.test, split.test)
        assert torch.equal(gin.val, gin.test)
        assert len(gin.train) + len(gin.test) == 188
        assert "GIN paper" in gin.note
        assert "GIN paper" not in split.note
    assert sorted(torch.cat(tested).tolist()) == list(range(188))
    assert not torch.equal(fold_split(y, 0, "folds").test, fold_split(y, 10, "folds").test)


def test_order() -> None:
    y = labels(63, 125)
    split = fold_split(y, 3, "folds")
    assert steps_per_epoch(y, "folds") == 2
    order = training_order(split, 3, epochs=3, steps=2, padding=188)
    assert order.shape == (3, 2, BATCH_SIZE)
    for epoch in order:
        assert sorted(epoch[epoch < 188].tolist()) == split.train.tolist()
    assert (order[:, 0] < 188).all()  # only the last batch is not full
    assert not torch.equal(order[0], order[1])
    assert torch.equal(order[:2], training_order(split, 3, 2, 2, 188))
    assert not torch.equal(order, training_order(split, 4, 3, 2, 188))


def test_mini_batches_that_are_drawn_anew() -> None:
    """As by GIN's code: no graph twice in a mini-batch, but many in the next one, too."""
    split = fold_split(labels(63, 125), 3, "gin_paper")
    order = training_order(split, 3, epochs=50, steps=1, padding=188, batch_size=32).flatten(1)
    drawn = [set(batch.tolist()) for batch in order]
    assert all(len(batch) == 32 and batch <= set(split.train.tolist()) for batch in drawn)
    assert set.union(*drawn) == set(split.train.tolist())
    assert sum(len(first & second) for first, second in pairwise(drawn)) > 49


def test_every_fold_fills_every_step() -> None:
    """Of 161 graphs some folds leave 128 for training, and others 129."""
    y = labels(80, 81)
    sizes = {len(fold_split(y, seed, "folds").train) for seed in range(10)}
    assert sizes == {128, 129}
    assert steps_per_epoch(y, "folds") == 1
    for seed in range(10):
        assert (training_order(fold_split(y, seed, "folds"), seed, 2, 1, 161) < 161).all()


def test_too_few_graphs() -> None:
    with pytest.raises(DataError, match=r"Class 1 has fewer than 10 graphs \(9\), too few for 10"):
        deal(labels(30, 9), 0)
