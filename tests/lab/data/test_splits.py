"""Splits are disjoint, balanced, and the same everywhere for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphrelu.lab.data.graph import DataError, Graph, from_data
from graphrelu.lab.data.splits import (
    Split,
    _split,
    from_masks,
    make_split,
    planetoid_like,
    published,
)
from graphrelu.lab.data.splits import full as full_split

SEEDS = [0, 1, 7, 12_345, 2**40]
Rule = Callable[..., Split]


def labels(*sizes: int) -> Tensor:
    """Labels with the given class sizes, mixed up."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    return torch.from_numpy(np.random.default_rng(0).permutation(y))


def assert_disjoint(split: Split) -> None:
    for first, second in combinations((split.train, split.val, split.test), 2):
        assert not set(first.tolist()) & set(second.tolist())


@pytest.fixture
def graph(ring: Data) -> Graph:
    return from_data(ring, "ring")


@pytest.mark.parametrize("seed", SEEDS)
def test_planetoid_like(seed: int) -> None:
    y = labels(30, 700, 2_000)
    split = planetoid_like(y, seed)
    assert split.kind == "planetoid"
    assert "20 nodes per class" in split.note
    assert y[split.train].bincount().tolist() == [20, 20, 20]
    assert (len(split.val), len(split.test)) == (500, 1_000)
    assert_disjoint(split)
    for part in (split.train, split.val, split.test):
        assert part.dtype == torch.int64
        assert torch.equal(part, part.sort().values)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rule", "sizes"),
    [
        *((planetoid_like, s) for s in ((29, 5_000), (760, 779), (5, 6, 7, 8, 9), (100, 50, 25))),
        *((full_split, sizes) for sizes in ((5, 6, 7), (100, 50, 25), (3_000, 2_000))),
    ],
)
def test_shares_of_every_class(rule: Rule, seed: int, sizes: tuple[int, ...]) -> None:
    """Of a graph that is too small for 20 per class, and under full supervision."""
    y, shares = labels(*sizes), (0.6, 0.2, 0.2) if rule is full_split else (0.48, 0.32, 0.2)
    split = rule(y, seed)
    assert split.kind == "stratified"
    named = " / ".join(f"{100 * share:.0f}" for share in shares)
    assert split.note.startswith(f"{named} % of every class")
    assert_disjoint(split)
    parts = (split.train, split.val, split.test)
    assert sum(map(len, parts)) == len(y)
    for share, part in zip(shares, parts, strict=True):
        for size, found in zip(sizes, y[part].bincount(minlength=len(sizes)), strict=True):
            assert abs(int(found) - share * size) <= 1
            assert int(found) >= 1


def test_the_limits_of_the_rule() -> None:
    assert planetoid_like(labels(770, 770), 0).kind == "planetoid"  # 1,500 left
    assert planetoid_like(labels(770, 769), 0).kind == "stratified"  # 1,499 left
    assert planetoid_like(labels(30, 2_000), 0).kind == "planetoid"
    assert planetoid_like(labels(29, 2_000), 0).kind == "stratified"


@pytest.mark.parametrize("rule", [planetoid_like, full_split])
def test_a_seed_is_a_split(rule: Rule) -> None:
    y = labels(800, 800, 800)
    state = torch.get_rng_state()
    first, again, other = rule(y, 3), rule(y, 3), rule(y, 4)
    assert torch.equal(state, torch.get_rng_state())
    for name in ("train", "val", "test"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize(
    ("rule", "begins"),
    [
        (planetoid_like, ([11, 92, 150, 196, 269], [2, 3, 13, 15, 20], [0, 1, 6, 7, 8])),
        (full_split, ([1, 2, 3, 8, 11], [0, 4, 6, 7, 14], [5, 9, 10, 12, 16])),
    ],
)
def test_the_same_split_on_every_machine(rule: Rule, begins: tuple[list[int], ...]) -> None:
    """Numbers written down once: a change would make results incomparable."""
    split = rule(torch.arange(2_000) % 2, seed=0)
    assert tuple(part[:5].tolist() for part in (split.train, split.val, split.test)) == begins


def test_every_node_can_be_chosen() -> None:
    y = labels(1_000, 1_000)
    times = torch.zeros(2_000)
    for seed in range(200):
        times[planetoid_like(y, seed).train] += 1
    # 200 x 20 of 1,000 nodes per class: four times each on average.
    assert float(times.mean()) == 4.0
    assert int(times.max()) < 20
    assert 3.0 < float(times.var()) < 5.0


@pytest.mark.parametrize("rule", [planetoid_like, full_split])
@pytest.mark.parametrize("sizes", [(1_000, 1_000), (40, 40)])
def test_unlabelled_nodes_are_never_chosen(rule: Rule, sizes: tuple[int, ...]) -> None:
    y = labels(*sizes)
    y[::7] = -1
    split = rule(y, 0)
    assert int(y[torch.cat([split.train, split.val, split.test])].min()) == 0
    with pytest.raises(DataError, match="no labels to split"):
        rule(torch.full((10,), -1), 0)


def test_a_class_too_small_to_split() -> None:
    with pytest.raises(DataError, match=r"Class 1 has too few nodes to be split \(2\)"):
        planetoid_like(labels(50, 2), 0)


def test_own_masks(graph: Graph) -> None:
    node = torch.arange(12)
    graph = replace(graph, train_mask=node < 4, val_mask=node == 5, test_mask=node > 8)
    split = from_masks(graph, seed=3)
    assert split.kind == "masks"
    assert split.train.tolist() == [0, 1, 2, 3]
    assert split.val.tolist() == [5]
    assert split.test.tolist() == [9, 10, 11]
    graph.y[9] = -1
    assert from_masks(graph, 0).test.tolist() == [10, 11]


def test_the_seed_selects_the_column(graph: Graph) -> None:
    node, columns = torch.arange(12).view(-1, 1), torch.arange(3)
    graph = replace(
        graph, train_mask=node == columns, val_mask=node == columns + 3, test_mask=node[:, 0] > 8
    )
    for seed in range(7):
        split = make_split(graph, seed, "masks")
        assert split.train.tolist() == [seed % 3]
        assert split.val.tolist() == [seed % 3 + 3]
        assert split.test.tolist() == [9, 10, 11]
        assert split.note == f"the graph's own masks, split {seed % 3 + 1} of 3"


def test_faulty_masks(graph: Graph) -> None:
    node = torch.arange(12)
    sound = replace(graph, train_mask=node < 4, val_mask=node == 5, test_mask=node > 8)
    with pytest.raises(DataError, match="ring has no train_mask"):
        from_masks(graph, 0)
    with pytest.raises(DataError, match="ring has no val_mask"):
        from_masks(replace(sound, val_mask=None), 0)
    with pytest.raises(DataError, match="the test_mask selects no labelled node"):
        from_masks(replace(sound, test_mask=node > 20), 0)
    with pytest.raises(DataError, match="the masks overlap"):
        from_masks(replace(sound, test_mask=node > 4), 0)
    two, three = node.view(-1, 1) == torch.arange(2), node.view(-1, 1) == torch.arange(3)
    with pytest.raises(DataError, match="the same number of splits"):
        from_masks(replace(sound, train_mask=two, val_mask=three), 0)
    one, none = (node.unsqueeze(1).expand(-1, columns) for columns in (1, 0))
    with pytest.raises(DataError, match="the same number of splits"):
        from_masks(replace(sound, train_mask=none > 0, val_mask=none > 0, test_mask=none > 0), 0)
    masks = {f"{part}_mask": one % 3 == i for i, part in enumerate(("train", "val", "test"))}
    assert from_masks(replace(sound, **masks), 5).note == "the graph's own masks, split 1 of 1"


def test_make_split(graph: Graph) -> None:
    assert torch.equal(make_split(graph, 1).train, planetoid_like(graph.y, 1).train)
    assert torch.equal(make_split(graph, 1, "full").train, full_split(graph.y, 1).train)
    with pytest.raises(DataError, match="no split 'public'; known are random, full, masks and pub"):
        make_split(graph, 0, "public")


def test_a_split_checks_itself() -> None:
    some, other, nothing = np.array([0]), np.array([1]), np.array([], dtype=np.int64)
    for parts in permutations((some, other, nothing)):
        with pytest.raises(AssertionError, match="empty part"):
            _split(parts, "masks", "")
    for parts in permutations((some, some, other)):
        with pytest.raises(AssertionError, match="not disjoint"):
            _split(parts, "masks", "")


def test_published_split() -> None:
    y = torch.arange(3).repeat(600)
    split = published(y)
    assert split.train.tolist()[:3] == [51, 88, 106]
    assert (len(split.train), len(split.val), len(split.test)) == (60, 500, 1_000)
    with pytest.raises(DataError, match="takes 1,500 nodes beside training"):
        published(y[:1_500])
