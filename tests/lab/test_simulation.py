"""How often luck is called a finding, by simulation: at most in one of twenty cases.

The small versions run with the tests; `python -m tests.lab.test_simulation` prints the
figures of larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pytest

from graphrelu.lab.render import CompareRow, Price, verdict
from graphrelu.lab.stats import Splits, decide, looks_until, over_relu

Array: TypeAlias = np.ndarray
Draw: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], Array]
WRONG = ("better", "worse")
MOST_RUNS = 2_000  # drawn beforehand; nobody is sent so far


def allowed(times: int) -> int:
    """How many wrong decisions are within 5 % of the cases and two standard errors."""
    return int(0.05 * times + 2 * (0.05 * 0.95 * times) ** 0.5)


# 1. Equal activations, and somebody who goes on as the verdict says.

DRAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    # Differences of small test sets are whole counts.
    "whole": lambda rng, shape: rng.choice([-1.0, 0.0, 0.0, 1.0], shape),
}


def advised(draw: Draw, rivals: int, times: int, looks: int = 6, seed: int = 0) -> tuple[int, int]:
    """How often the last verdict of up to six looks is wrong: on GReLU, and on any of its rivals.

    The runs of each look are those that the verdict before it named.
    """
    rng, names = np.random.default_rng(seed), ["grelu", *(f"rival {i}" for i in range(rivals))]
    wrong, wrong_rivals = 0, 0
    for _ in range(times):
        # Scores in shares; half of the noise is common to all activations, as ReLU's is.
        values = 0.5 + 0.01 * draw(rng, (len(names) + 1, MOST_RUNS))
        runs: int | None = 10
        for look in range(1, looks + 1):
            scores = {
                name: dict(enumerate(own[:runs]))
                for name, own in zip(["relu", *names], values, strict=True)
            }
            leads = over_relu(scores, looks=(look, look))
            rows = [
                CompareRow(name, 0.0, 0.0, 0.0, 10, leads.get(name), Price()) for name in scores
            ]
            runs = verdict(rows).runs
            if runs is None or runs > MOST_RUNS:
                break
        wrong += leads["grelu"].outcome in WRONG
        wrong_rivals += any(leads[name].outcome in WRONG for name in names[1:])
    return wrong, wrong_rivals


@pytest.mark.parametrize("rivals", [1, 5])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_following_the_printed_advice_makes_no_findings(draw: Draw, rivals: int) -> None:
    assert max(advised(draw, rivals, times=300)) <= allowed(300)


def until_decided(mean: float, std: float, margin: float, runs: int, times: int) -> list[str]:
    """What is found where runs are added until it is decided."""
    rng, found = np.random.default_rng(0), []
    for _ in range(times):
        values = rng.normal(mean, std, runs)
        for look, number in enumerate(looks_until(runs), start=1):
            one = decide({0: dict(enumerate(values[:number]))}, margin=margin, look=look)[0]
            if one.outcome != "undecided":
                break
        found.append(one.outcome)
    return found


def test_until_decided_makes_no_findings() -> None:
    found = until_decided(0, 1, margin=0.01, runs=80, times=400)
    assert sum(map(found.count, WRONG)) <= allowed(400)


def test_what_matters_is_seldom_called_nothing() -> None:
    """A difference as large as the margin in one of twenty cases, no difference in most."""
    for mean, std, low, high in ((0.5, 1.0, 0, 0.05), (0.0, 0.6, 0.8, 1)):
        found = until_decided(mean, std, margin=0.5, runs=40, times=300)
        assert 300 * low <= found.count("no difference") <= 300 * high


# 4. Equal activations whose runs share their data: a nearest-centroid classifier on two sets of
# features that tell equally much. Each toy is drawn anew.

Parts: TypeAlias = Sequence[tuple[Array, Array]]


def toy(rng: np.random.Generator, size: int) -> tuple[Array, tuple[Array, Array]]:
    """Classes, and two sets of features: half of each is common to both."""
    y = np.arange(size) % 2
    common, first, second = (rng.normal(size=(size, 4)) for _ in range(3))
    for part in (common, first, second):
        part[:, 0] += 0.7 * y
    return y, (np.hstack([common, first]), np.hstack([common, second]))


def accuracy(x: Array, y: Array, train: Array, test: Array) -> float:
    low, high = (x[train][y[train] == label].mean(axis=0) for label in (0, 1))
    return float((((x[test] - (low + high) / 2) @ (high - low) > 0) == y[test]).mean())


def folds(rng: np.random.Generator, size: int, count: int) -> Parts:
    """Ten folds, dealt again for every ten runs: one to test, the next to validate."""
    found = []
    for _ in range(-(-count // 10)):
        dealt = rng.permutation(size) % 10
        for k in range(10):
            rest = (dealt != k) & (dealt != (k + 1) % 10)
            found.append((np.flatnonzero(rest), np.flatnonzero(dealt == k)))
    return found[:count]


def at_random(train: int, test: int) -> Callable[[np.random.Generator, int, int], Parts]:
    def draw(rng: np.random.Generator, size: int, count: int) -> Parts:
        orders = (rng.permutation(size) for _ in range(count))
        return [(order[:train], order[-test:]) for order in orders]

    return draw


# Name -> number of graphs or nodes, splits, their sizes, numbers of runs.
KINDS = {
    "folds": (188, folds, Splits(0.8, 1 / 8), (10, 40, 80)),
    "60/20/20": (188, at_random(112, 38), Splits(0.6, 38 / 112), (10, 40, 80)),
    "80/10/10": (188, at_random(150, 19), Splits(0.8, 19 / 150), (10, 40, 80)),
    "48/32/20, published": (500, at_random(240, 100), Splits(0.48, 100 / 240, count=10), (10, 40)),
    "50/25/25, published": (500, at_random(250, 125), Splits(0.5, 0.5, count=10), (10, 40)),
}


def shared(kind: str, times: int, splits: Splits | None = None) -> dict[int, int]:
    """How often a number of runs is decided wrongly, by its splits or by others."""
    size, parts, known, numbers = KINDS[kind]
    rng, wrong = np.random.default_rng(0), dict.fromkeys(numbers, 0)
    for _ in range(times):
        y, features = toy(rng, size)
        cut = parts(rng, size, known.count or max(numbers))
        first, second = ([accuracy(x, y, *part) for part in cut] for x in features)
        leads = 100 * np.subtract(first, second)
        for runs in numbers:
            # Of published splits the same ones come again; these toys have no other luck.
            own = {seed: leads[seed % len(leads)] for seed in range(runs)}
            found = decide({0: own}, margin=0.0, splits=splits or known)[0]
            wrong[runs] += found.outcome in WRONG
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_folds_and_splits_that_share_data_make_no_findings(kind: str) -> None:
    assert max(shared(kind, times=60).values()) <= allowed(60)


def test_the_plain_interval_would_make_many() -> None:
    """So the test above can fail."""
    wrong = shared("folds", times=60, splits=Splits())
    assert wrong[80] > 0.3 * 60


def few_labels(times: int, runs: Sequence[int], here: bool = True) -> Mapping[int, int]:
    """The plain interval, with 20 nodes per class for training and 1,000 of 2,700 for testing.

    It is about this graph: so the activations are equal ``here``. What differs is drawn for each
    run, as initial weights are. Else they are equal only over all graphs like this.
    """
    rng, wrong = np.random.default_rng(0), dict.fromkeys(runs, 0)
    for _ in range(times):
        y, features = toy(rng, 2_700)
        leads = []
        for part in at_random(40, 1_000)(rng, len(y), max(runs)):
            weights = rng.normal(size=(2, 8, 8))
            pair = [np.maximum(features[0] @ own, 0) for own in weights] if here else features
            first, second = (accuracy(x, y, *part) for x in pair)
            leads.append(100 * (first - second))
        for n in runs:
            own = {0: dict(enumerate(leads[:n]))}
            found = decide(own, margin=0.0, splits=Splits(0.015, 25.0))[0]
            wrong[n] += found.outcome in WRONG
    return wrong


def test_few_labels_make_no_findings_on_this_graph() -> None:
    assert max(few_labels(60, (10, 40)).values()) <= allowed(60)


if __name__ == "__main__":
    for name, draw in DRAWS.items():
        for rivals in (1, 5):
            first, others = advised(draw, rivals, times=4_000)
            print(
                f"advice, {name}, {rivals} rivals: {first / 40:.1f} %, rivals {others / 40:.1f} %"
            )
    for kind in KINDS:
        for told, splits in (("corrected", None), ("plain", Splits())):
            rates = {runs: f"{n / 10:.1f} %" for runs, n in shared(kind, 1_000, splits).items()}
            print(f"{kind}, {told}: {rates}")
    for here in (True, False):
        found = few_labels(1_000, (10, 40, 80), here)
        rates = {runs: f"{n / 10:.1f} %" for runs, n in found.items()}
        print(f"few labels, equal {'here' if here else 'on graphs like this'}: {rates}")
