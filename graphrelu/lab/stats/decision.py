"""Whether a difference to ReLU matters: better, worse, no difference that matters, or undecided.

One interval decides. All intervals of a comparison, at all looks, hold together with a probability
of 95 % (Bonferroni's correction), so no number of activations or looks makes luck a finding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from graphrelu.lab import stats
from graphrelu.lab.stats.comparison import SIGNIFICANCE, Scores, fewest_seeds, relative_to

MARGIN = 0.5  # percent points, or percent of an error
FIRST_LOOK = 10  # with fewer seeds hardly a comparison is decided
Outcome = Literal["better", "worse", "no difference", "undecided"]


@dataclass(frozen=True)
class Decision:
    """How far an activation is ahead of ReLU, in percent points, over the seeds of both; where the
    score is an error, in percent of ReLU's mean error.

    ``low`` and ``high`` bound the t-interval of the mean of the paired differences, ``std`` is
    their standard deviation; one seed has neither. ``tests`` is the number of intervals that hold
    together. ``seeds`` is about how many seeds a decision takes where there is none: mean and
    standard deviation are taken to stay as they are.
    """

    difference: float
    low: float | None
    high: float | None
    std: float | None
    n: int
    margin: float
    tests: int
    outcome: Outcome
    seeds: int | None
    unit: str = "points"


def check_margin(margin: float) -> float:
    """The margin; a ``ValueError`` unless it is a finite number from 0."""
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(f"margin must be a number, got {margin!r}.")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a finite number from 0, not {margin}.")
    return float(margin)


def decide(differences: Sequence[float], margin: float = MARGIN, tests: int = 1) -> Decision:
    """The decision from paired differences in percent points, as one of several tests.

    - *no difference*: the interval lies within the margin, whichever side of 0 it lies on;
    - *better*, *worse*: the interval lies above, or below, 0;
    - *undecided*: anything else, and any interval of too few seeds.
    """
    # Accuracies are whole counts over N: without rounding, equal differences would differ.
    values = np.round(np.asarray(differences, dtype=np.float64), 10)
    n, mean, fewest = len(values), float(values.mean()), fewest_seeds(tests)
    if n == 1:
        return Decision(mean, None, None, None, n, margin, tests, "undecided", fewest)
    std, error = float(values.std(ddof=1)), SIGNIFICANCE / tests
    reach = stats.half_width(std, n, error)
    low, high = mean - reach, mean + reach
    outcome: Outcome = "undecided"
    if n >= fewest:
        if -margin < low and high < margin:
            outcome = "no difference"
        elif low > 0 or high < 0:
            outcome = "better" if low > 0 else "worse"
    seeds = None if outcome != "undecided" else _seeds(mean, std, margin, error, fewest)
    return Decision(mean, low, high, std, n, margin, tests, outcome, seeds)


def _seeds(mean: float, std: float, margin: float, error: float, fewest: int) -> int | None:
    """The number of seeds, to a tenth, with which the interval leaves 0 or lies in the margin."""
    reach = max(abs(mean), margin - abs(mean))
    if reach == 0:
        return None
    n = fewest
    while stats.half_width(std, n, error) >= reach:
        n += max(1, n // 10)
    return n


def decisions(
    scores: Mapping[str, Scores],
    margin: float = MARGIN,
    looks: int = 1,
    is_error: bool = False,
) -> dict[str, Decision]:
    """Each activation against ReLU, paired by seed; one that shares no seed with ReLU is left out.

    ``looks`` is how often, at most, the scores are looked at while seeds are added.
    """
    unit = "points"
    if is_error:
        scores, unit = relative_to("relu", scores), "% of ReLU's error"
    relu = scores.get("relu", {})
    shared = {
        name: [100 * (own[seed] - relu[seed]) for seed in sorted(own.keys() & relu.keys())]
        for name, own in scores.items()
        if name != "relu" and own.keys() & relu.keys()
    }
    return {
        name: replace(decide(own, margin, looks * len(shared)), unit=unit)
        for name, own in shared.items()
    }


def looks_until(runs: int) -> list[int]:
    """After how many seeds to look, if seeds are added until a comparison is decided: 10, 20, 40
    and so on, each time twice as many, and at last at all of them."""
    doubled = (FIRST_LOOK * 2**i for i in range(runs.bit_length()))
    return [*(look for look in doubled if look < runs), runs]
