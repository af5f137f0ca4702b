"""What an interval decides, by numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from graphrelu.lab.record.recipes import graph_cell, recipe
from graphrelu.lab.stats import (
    ONE,
    Decision,
    Splits,
    compared,
    decide,
    looks_until,
    over_relu,
    splits_of,
)

FOLDS = Splits(share=0.8, ratio=0.125)


def alone(values: Sequence[float], **options: Any) -> Decision:
    return decide({"": dict(enumerate(values))}, **options)[""]


def test_the_interval_by_hand() -> None:
    # Differences 1.0, ..., 1.5: mean 1.25, standard deviation 0.187083; t(0.975; 5) = 2.570582.
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    found = alone(values)
    assert (found.difference, found.n, found.outcome) == (pytest.approx(1.25), 6, "better")
    assert found.std == pytest.approx(0.187083, abs=1e-6)
    assert found.low == pytest.approx(1.25 - 0.196331, abs=1e-6)
    assert found.high == pytest.approx(1.25 + 0.196331, abs=1e-6)
    assert found.p == pytest.approx(scipy_stats.ttest_1samp(values, 0).pvalue)
    assert (found.runs, found.error, found.look) == (None, 0.05, None)
    # Look k spends 0.05 / (k (k + 1)): at the fourth, t(0.99875; 5) = 5.604.
    fourth = alone(values, look=4)
    assert fourth.error == pytest.approx(0.05 / 20)
    assert fourth.low == pytest.approx(1.25 - 5.604 * 0.187083 / 6**0.5, abs=1e-3)
    assert fourth.p == pytest.approx(20 * found.p)


def test_splits_that_share_data_widen_the_interval() -> None:
    # Nadeau and Bengio: the variance factor is 1/10 + 1/8 for ten folds, instead of 1/10.
    values = [2.0, -1.0] * 5
    plain, folds = alone(values), alone(values, splits=FOLDS)
    wider = (1 + 10 / 8) ** 0.5
    assert folds.high - folds.difference == pytest.approx(wider * (plain.high - plain.difference))
    assert "corrected for the training data that the splits share" in folds.about


def test_runs_of_one_split_count_once_where_splits_share_data() -> None:
    """Twenty seeds of ten splits are ten means; their number is no evidence about other splits."""
    rng = np.random.default_rng(0)
    values = np.tile(rng.normal(1, 1, 10), 2)
    masks = Splits(share=0.5, ratio=0.5, count=10)
    ten, twenty = alone(values[:10], splits=masks), alone(values, splits=masks)
    assert (twenty.low, twenty.high) == pytest.approx((ten.low, ten.high))
    assert (ten.n, twenty.n) == (10, 20)
    assert twenty.runs is None  # there are no other splits
    assert alone(values, splits=ONE).about.startswith("over seeds of one split; nothing is said")
    few = Splits(share=0.05, ratio=7.0, count=3)
    assert alone(values, splits=few).about.startswith("over seeds of 3 splits; nothing is said")
    assert alone(values, splits=few).low == pytest.approx(alone(values).low)


def test_which_splits_share_most_of_their_training_data() -> None:
    node, graphs = recipe("cora", "gcn", "relu"), graph_cell("mutag", "gin", "relu")
    found = {
        "few labels": splits_of(node, "20 nodes per class for training"),
        "small": splits_of(node, "48 / 32 / 20 % of every class, as the graph is too small"),
        "folds": splits_of(graphs),
    }
    assert not found["few labels"].overlap
    assert found["few labels"].about(10) == "over random splits of this data"
    assert (found["small"].overlap, found["small"].shared) == (True, pytest.approx(20 / 48))
    assert (found["folds"].overlap, found["folds"].shared) == (True, pytest.approx(1 / 8))
    for split, note, ratio, count in (
        ("full", "60 / 20 / 20 %", 1 / 3, None),
        ("masks", "the graph's own masks, split 3 of 10", 0.5, 10),
        ("masks", "the graph's own masks", 0.0, 1),
        ("masks", "the graph's own masks, split 1 of 3", 0.0, 3),
        ("published", "", 0.0, 1),
    ):
        own = splits_of(recipe("cora", "gcn", "relu", split=split), note)
        assert (own.shared, own.count) == (pytest.approx(ratio), count)


def eight(mean: float, std: float) -> list[float]:
    """Eight differences; their interval reaches 0.836 standard deviations to each side."""
    values = np.array([-1.0, 1.0] * 4) * std * (7 / 8) ** 0.5
    return list(mean + values)


@pytest.mark.parametrize(
    ("mean", "std", "outcome"),
    [
        (1.0, 1.0, "better"),  # [0.16, 1.84]: it may be as little as 0.16, but it is more than 0
        (-1.0, 1.0, "worse"),
        (0.0, 0.5, "no difference"),  # [-0.42, 0.42]
        (0.3, 0.1, "no difference"),  # [0.22, 0.38]: more than 0, and too little to matter
        (-0.3, 0.1, "no difference"),
        (0.3, 0.3, "better"),  # [0.05, 0.55]: it may matter
        (0.3, 0.5, "undecided"),  # [-0.12, 0.72]
        (0.0, 0.7, "undecided"),  # [-0.59, 0.59]
        (0.0, 0.0, "no difference"),
        (2.0, 0.0, "better"),
    ],
)
def test_four_outcomes(mean: float, std: float, outcome: str) -> None:
    found = alone(eight(mean, std))
    assert found.outcome == outcome
    assert found.differs == (outcome in ("better", "worse"))
    assert (found.runs is None) == (outcome != "undecided")


def test_a_wider_margin_and_none() -> None:
    assert alone(eight(0.0, 0.7), margin=1.0).outcome == "no difference"
    assert alone(eight(0.3, 0.1), margin=0.0).outcome == "better"
    nothing = alone(eight(0.0, 0.0), margin=0.0)
    assert (nothing.outcome, nothing.runs) == ("undecided", None)


def test_fewer_than_five_runs_have_no_interval() -> None:
    for n in (1, 4):
        found = alone([2.0] * n)
        assert (found.difference, found.low, found.p, found.runs) == (2.0, None, None, 10)
        assert found.outcome == "undecided"
    assert alone([2.0] * 5).outcome == "better"


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.5), (0.0, 0.7), (0.25, 2.0)])
@pytest.mark.parametrize("splits", [Splits(), Splits(share=0.8, ratio=0.001)])
def test_so_many_runs_should_settle_it(mean: float, std: float, splits: Splits) -> None:
    """At the next look, with the same mean and standard deviation; a fifth fewer do not."""
    runs = alone(eight(mean, std), look=1, splits=splits).runs
    assert runs is not None
    assert runs % 10 == 0

    def outcome(n: int) -> str:
        values = np.resize([-1.0, 1.0], n)
        return alone(mean + values * std / values.std(ddof=1), look=2, splits=splits).outcome

    assert outcome(runs) != "undecided"
    if runs > 10:
        assert outcome(min(runs - 10, int(0.8 * runs))) == "undecided"


def test_more_folds_do_not_settle_what_the_data_leave_open() -> None:
    """The interval never falls below that of n_test / n_train."""
    assert alone(eight(0.3, 2.0), look=1).runs is not None
    assert alone(eight(0.3, 2.0), look=1, splits=FOLDS).runs is None


def test_a_family_is_corrected_by_holm_and_its_intervals_agree() -> None:
    spread = np.array([-1.0, 1.0] * 5)
    means = {"a": 3.0, "b": 0.95, "c": 0.85, "d": 0.1}
    family = {name: dict(enumerate(mean + spread)) for name, mean in means.items()}
    found = decide(family, margin=0.0)
    raw = {
        name: scipy_stats.ttest_1samp(list(own.values()), 0).pvalue for name, own in family.items()
    }
    # 0.0180 x 3 is more than 0.05: b is not significant, and nothing after it.
    assert raw["b"] == pytest.approx(0.0188, abs=1e-3)
    assert [one.outcome for one in found.values()] == ["better", *["undecided"] * 3]
    assert [one.error for one in found.values()] == pytest.approx([0.05 / 4, *[0.05 / 3] * 3])
    for name, factor in (("a", 4), ("b", 3), ("c", 2)):
        assert found[name].p == pytest.approx(factor * raw[name]) or name == "c"
    assert found["c"].p >= found["b"].p
    # Alone, each of them would be.
    assert decide({"b": family["b"]}, margin=0.0)["b"].outcome == "better"


def test_no_row_contradicts_its_word() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        means, n = rng.normal(0, 0.6, 6), int(rng.integers(2, 30))
        family = {i: dict(enumerate(rng.normal(mean, 1, n))) for i, mean in enumerate(means)}
        for one in decide(family, margin=0.3, look=int(rng.integers(1, 4))).values():
            if one.low is None:
                assert one.outcome == "undecided"
                continue
            leaves = one.low > 0 or one.high < 0
            within = -one.margin < one.low and one.high < one.margin
            assert (one.outcome == "undecided") == (not leaves and not within)
            assert leaves == (one.p <= 0.05)


def test_grelu_does_not_pay_for_the_others() -> None:
    rng = np.random.default_rng(1)
    relu = dict(enumerate(0.8 + 0.01 * rng.normal(size=12)))
    scores = {"relu": relu, "grelu": {s: v + 0.01 for s, v in relu.items()}}
    scores["grelu"][0] += 0.02
    pair = over_relu(scores)["grelu"]
    assert pair.error == pytest.approx(0.025)  # the first look, all of it
    rivals = {f"r{i}": {s: v + 0.01 * rng.normal() for s, v in relu.items()} for i in range(5)}
    found = over_relu(scores | rivals, looks=(1, 3))
    assert found["grelu"] == pair
    assert {one.look for name, one in found.items() if name != "grelu"} == {3}
    assert max(one.error for name, one in found.items() if name != "grelu") <= 0.05 / 12


def test_pairs_are_of_the_same_seed() -> None:
    relu = {seed: 0.8 + 0.01 * seed for seed in range(8)}
    scores = {
        "relu": relu,
        "elu": {seed: score + 0.001 for seed, score in relu.items()},
        "grelu": {seed: score + 0.02 for seed, score in relu.items() if seed != 3},
        "gelu": {8: 0.9},
    }
    found = over_relu(scores)
    assert {name: (one.n, round(one.difference, 6)) for name, one in found.items()} == {
        "elu": (8, 0.1),
        "grelu": (7, 2.0),
    }
    assert over_relu({"elu": relu, "grelu": relu}) == {}
    assert compared({"": ({0: 1.0}, {1: 1.0})}) == {}


def test_looks() -> None:
    assert looks_until(80) == [10, 20, 40, 80]
    assert looks_until(100) == [10, 20, 40, 80, 100]
    assert looks_until(10) == [10]
    assert looks_until(3) == [3]
