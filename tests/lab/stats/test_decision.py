"""What an interval decides, by numbers worked out by hand and by simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphrelu.lab.stats.decision import check_margin, decide, decisions, looks_until


def test_the_interval_by_hand() -> None:
    # Differences 1.0, ..., 1.5: mean 1.25, standard deviation 0.187083; t(0.975; 5) = 2.570582.
    found = decide([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert (found.difference, found.n, found.outcome) == (pytest.approx(1.25), 6, "better")
    assert found.std == pytest.approx(0.187083, abs=1e-6)
    assert found.low == pytest.approx(1.25 - 0.196331, abs=1e-6)
    assert found.high == pytest.approx(1.25 + 0.196331, abs=1e-6)
    assert found.seeds is None
    # Of five comparisons each misses with a probability of 1 %: t(0.995; 5) = 4.032143.
    assert decide([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], tests=5).low == pytest.approx(
        1.25 - 4.032143 * 0.187083 / 6**0.5, abs=1e-5
    )


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
    found = decide(eight(mean, std))
    assert found.outcome == outcome
    assert (found.seeds is None) == (outcome != "undecided")


def test_a_wider_margin_and_none() -> None:
    assert decide(eight(0.0, 0.7), margin=1.0).outcome == "no difference"
    assert decide(eight(0.3, 0.1), margin=0.0).outcome == "better"
    nothing = decide(eight(0.0, 0.0), margin=0.0)
    assert (nothing.outcome, nothing.seeds) == ("undecided", None)


def test_few_seeds_decide_nothing() -> None:
    """Equal differences make an interval of no width, but as few signs may be luck."""
    assert [decide([2.0] * n).outcome for n in (2, 5, 6)] == ["undecided", "undecided", "better"]
    assert [decide([2.0] * n, tests=20).outcome for n in (9, 10)] == ["undecided", "better"]
    assert decide([2.0] * 5).seeds == 6
    one = decide([2.0], tests=5)
    found = (one.difference, one.low, one.std, one.outcome, one.seeds)
    assert found == (2.0, None, None, "undecided", 8)


@pytest.mark.parametrize(("mean", "std"), [(0.3, 0.5), (0.0, 0.7), (0.25, 2.0)])
def test_so_many_seeds_decide(mean: float, std: float) -> None:
    """With these seeds, and the same mean and standard deviation, the interval decides; with a
    fifth less it does not."""
    seeds = decide(eight(mean, std)).seeds
    assert seeds is not None

    def outcome(n: int) -> str:
        values = np.resize([-1.0, 1.0], n - n % 2)
        return decide(mean + values * std / values.std(ddof=1)).outcome

    assert outcome(seeds + 1) != "undecided"
    assert outcome(int(0.8 * seeds)) == "undecided"


def test_decisions_are_paired_and_corrected_together() -> None:
    relu = {seed: 0.8 + 0.01 * seed for seed in range(8)}
    scores = {
        "relu": relu,
        "elu": {seed: score + 0.001 for seed, score in relu.items()},
        "grelu": {seed: score + 0.02 for seed, score in relu.items() if seed != 3},
        "gelu": {8: 0.9},
    }
    found = decisions(scores, looks=3)
    assert list(found) == ["elu", "grelu"]
    assert {lead.tests for lead in found.values()} == {2 * 3}
    assert [(lead.n, round(lead.difference, 6)) for lead in found.values()] == [(8, 0.1), (7, 2.0)]
    assert decisions({"elu": relu, "grelu": relu}) == {}


def test_looks() -> None:
    assert looks_until(80) == [10, 20, 40, 80]
    assert looks_until(100) == [10, 20, 40, 80, 100]
    assert looks_until(10) == [10]
    assert looks_until(3) == [3]


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def at_the_end(draw: Draw, comparisons: int, margin: float, times: int = 400) -> list[list[str]]:
    """The outcomes of so many comparisons, as --until-decided ends them: by the first one's."""
    rng, looks, found = np.random.default_rng(0), looks_until(40), []
    for _ in range(times):
        differences = draw(rng, (comparisons, looks[-1]))
        for look in looks:
            tests = comparisons * len(looks)
            own = [decide(one[:look], margin, tests).outcome for one in differences]
            if own[0] != "undecided":
                break
        found.append(own)
    return found


@pytest.mark.parametrize("comparisons", [1, 5])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, shape: rng.normal(size=shape),
        lambda rng, shape: rng.choice([-1.0, 0.0, 0.0, 0.0, 1.0], shape),  # of small test sets
    ],
    ids=["normal", "whole"],
)
def test_luck_is_a_finding_in_one_of_twenty_comparisons(draw: Draw, comparisons: int) -> None:
    """Looks and activations included. Of 400 comparisons up to 5 % and two standard errors."""
    found = at_the_end(draw, comparisons, margin=0.01)
    wrong = sum(bool({"better", "worse"} & set(own)) for own in found) / len(found)
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / len(found)) ** 0.5


def test_what_matters_is_seldom_called_nothing() -> None:
    found = at_the_end(lambda rng, shape: rng.normal(0.5, 1, shape), 1, margin=0.5)
    assert sum(own == ["no difference"] for own in found) / len(found) <= 0.05
    found = at_the_end(lambda rng, shape: rng.normal(0.0, 0.7, shape), 1, margin=0.5)
    assert sum(own == ["no difference"] for own in found) / len(found) > 0.8


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf"), "0.5", None, True])
def test_bad_margins(margin: Any) -> None:
    sentence = rf"^margin must be a (finite number from 0, not|number, got) {margin!r}\.$"
    with pytest.raises((TypeError, ValueError), match=sentence):
        check_margin(margin)
