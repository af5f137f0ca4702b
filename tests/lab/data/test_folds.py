"""Folds: scikit-learn's deal, and each graph tested once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphrelu.lab.data.graph import DataError
from graphrelu.lab.data.splits import NUM_FOLDS, fold_split


def labels(*sizes: int) -> torch.Tensor:
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return y[torch.randperm(len(y))]


def test_the_same_deal_as_scikit_learn() -> None:
    y = labels(63, 125)
    for assignment in range(2):
        expected = StratifiedKFold(NUM_FOLDS, shuffle=True, random_state=assignment)
        for fold, (_, test) in enumerate(expected.split(np.zeros(len(y)), y.numpy())):
            split = fold_split(y, 10 * assignment + fold, "folds")
            assert split.test.tolist() == test.tolist()


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


def test_too_few_graphs() -> None:
    with pytest.raises(DataError, match=r"Class 1 has fewer than 10 graphs \(9\), too few for 10"):
        fold_split(labels(30, 9), 0, "folds")
