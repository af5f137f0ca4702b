"""Splits are disjoint, balanced, and the same everywhere for the same seed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphrelu.lab.data.graph import Graph, from_data
from graphrelu.lab.data.splits import (
    FULL_SHARES,
    Split,
    make_split,
    planetoid_like,
    published,
    stratified,
)
from graphrelu.lab.errors import DataError

SEEDS = [0, 12_345, 2**40]
full = partial(stratified, shares=FULL_SHARES)
NODE = torch.arange(12)
MASKS = {"train_mask": NODE < 4, "val_mask": NODE == 5, "test_mask": NODE > 8}


def labels(*sizes: int) -> Tensor:
    """Labels with the given class sizes, mixed up, and every seventh unknown."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    y = torch.from_numpy(np.random.default_rng(0).permutation(y))
    return torch.cat([y, torch.full((len(y) // 6,), -1)])


def parts_of(split: Split) -> tuple[Tensor, Tensor, Tensor]:
    """The sorted, disjoint parts."""
    parts = (split.train, split.val, split.test)
    for first, second in combinations(parts, 2):
        assert not set(first.tolist()) & set(second.tolist())
    for part in parts:
        assert part.dtype == torch.int64
        assert torch.equal(part, part.sort().values)
    return parts


@pytest.fixture
def graph(ring: Data) -> Graph:
    return from_data(ring, "ring")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sizes", [(30, 700, 2_000), (770, 770), (30, 2_000)])
def test_planetoid_like(seed: int, sizes: tuple[int, ...]) -> None:
    y = labels(*sizes)
    split = planetoid_like(y, seed)
    assert "20 nodes per class" in split.note
    train, val, test = parts_of(split)
    assert y[train].bincount().tolist() == [20] * len(sizes)
    assert (len(val), len(test)) == (500, 1_000)
    assert (y[torch.cat([val, test])] >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rule", "shares", "sizes"),
    [
        # Of a graph that is too small for 20 per class, and under full supervision.
        *((planetoid_like, (48, 32, 20), sizes) for sizes in ((29, 5_000), (770, 769), (5, 6, 7))),
        *((full, (60, 20, 20), sizes) for sizes in ((5, 6, 7), (3_000, 2_000))),
    ],
)
def test_shares_of_every_class(
    rule: Any, shares: tuple[int, ...], sizes: tuple[int, ...], seed: int
) -> None:
    y = labels(*sizes)
    split = rule(y, seed)
    assert split.note.startswith("{} / {} / {} % of every class".format(*shares))
    parts = parts_of(split)
    assert sum(map(len, parts)) == sum(sizes)
    for share, part in zip(shares, parts, strict=True):
        for size, found in zip(sizes, y[part].bincount(minlength=len(sizes)), strict=True):
            assert abs(int(found) - share * size / 100) <= 1
            assert int(found) >= 1


def test_labels_that_cannot_be_split() -> None:
    with pytest.raises(DataError, match=r"Class 1 has too few nodes to be split \(2\)"):
        planetoid_like(labels(50, 2), 0)
    with pytest.raises(DataError, match="no labels to split"):
        full(torch.full((10,), -1), 0)
    with pytest.raises(DataError, match="takes 1,500 nodes beside training"):
        published(torch.arange(3).repeat(500))


@pytest.mark.parametrize(
    ("rule", "begins"),
    [
        (planetoid_like, ([11, 92, 150, 196, 269], [2, 3, 13, 15, 20], [0, 1, 6, 7, 8])),
        (full, ([1, 2, 3, 8, 11], [0, 4, 6, 7, 14], [5, 9, 10, 12, 16])),
        (
            lambda y, seed: published(y),
            ([23, 33, 62, 84, 222], [0, 4, 5, 13, 14], [1, 2, 3, 6, 7]),
        ),
    ],
)
def test_a_seed_is_a_split_on_every_machine(rule: Any, begins: tuple[list[int], ...]) -> None:
    """Numbers written down once: a change would make results incomparable."""
    y, state = torch.arange(2_000) % 2, torch.get_rng_state()
    split = rule(y, 0)
    assert torch.equal(state, torch.get_rng_state())
    assert [part[:5].tolist() for part in parts_of(split)] == [*begins]


def test_own_masks(graph: Graph) -> None:
    """Of several columns, the seed selects one."""
    graph = replace(graph, **MASKS)
    split = make_split(graph, 3, "masks")
    assert split.note == "the graph's own masks"
    assert [part.tolist() for part in parts_of(split)] == [[0, 1, 2, 3], [5], [9, 10, 11]]
    graph.y[9] = -1
    node, columns = NODE.view(-1, 1), torch.arange(3)
    graph = replace(graph, train_mask=node == columns, val_mask=node == columns + 3)
    for seed in (1, 5):
        split = make_split(graph, seed, "masks")
        expected = [[seed % 3], [seed % 3 + 3], [10, 11]]
        assert [part.tolist() for part in parts_of(split)] == expected
        assert split.note == f"the graph's own masks, split {seed % 3 + 1} of 3"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_mask": None}, "ring has no train_mask"),
        ({"test_mask": NODE > 20}, "the test_mask selects no labelled node"),
        ({"test_mask": NODE > 4}, "The parts of the split overlap"),
        (
            {"train_mask": torch.ones(12, 2).bool(), "val_mask": torch.ones(12, 3).bool()},
            "the same number of splits",
        ),
        ({name: mask.view(-1, 1)[:, :0] for name, mask in MASKS.items()}, "the same number of"),
    ],
)
def test_faulty_masks(graph: Graph, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        make_split(replace(graph, **MASKS | changes), 0, "masks")


def test_rules_by_name(graph: Graph) -> None:
    assert torch.equal(make_split(graph, 1).train, planetoid_like(graph.y, 1).train)
    assert not torch.equal(make_split(graph, 1).train, make_split(graph, 2).train)
    split = make_split(graph, 1, "full")
    assert torch.equal(split.train, full(graph.y, 1).train)
    assert split.note == "60 / 20 / 20 % of every class, at random"
    values = replace(graph, y=torch.rand(12))
    assert make_split(values, 1).note == "48 / 32 / 20 % of the labelled nodes, at random"
    for known, how, sentence in (
        (graph, "public", "no split 'public'; choose from random, full, masks and published"),
        (values, "published", "The published split needs classes; choose random, full or masks"),
    ):
        with pytest.raises(DataError, match=sentence):
            make_split(known, 0, how)
