"""The one rule for a difference: better, worse, no difference that matters, or undecided.

A t-interval of the paired differences decides, alone. Two things keep luck from becoming a finding:

- **Looks.** Whoever looks at the k-th set of runs of a comparison spends alpha / (k (k + 1)). These
  shares add up to alpha over all k, so anybody may look and go on, however often.
- **Families.** Comparisons that are made together are corrected together, by Holm. An interval has
  the level at which Holm's procedure tested it, and so agrees with the word beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from scipy import stats as scipy_stats

from graphrelu.lab import stats
from graphrelu.lab.stats.splits import FEWEST, Splits

SIGNIFICANCE = 0.05
MARGIN = 0.5  # percentage points, or percent of an error
FIRST_LOOK = 10  # with fewer runs hardly a comparison is decided
MOST_RUNS = 10_000  # beyond, a number of runs is no advice
Outcome = Literal["better", "worse", "no difference", "undecided"]
Key = TypeVar("Key")


@dataclass(frozen=True)
class Decision:
    """How far one activation is ahead of another, in percentage points, over the seeds of both;
    where the score is an error, in percent of the other's mean error.

    ``low`` and ``high`` bound the interval that decides; it misses the truth with the probability
    ``error``. ``p`` is corrected for the family and for all looks, and is 0.05 or less where the
    interval leaves 0. Fewer than five runs have none of these. ``runs`` is about how many runs
    should settle what is undecided, at the next look, if mean and standard deviation stay as they
    are; none where no number would. ``look`` is ``None`` where the number of runs was fixed
    beforehand. ``num_test`` is the size of the smallest test part, where it is known; ``shared`` is
    what splits that share data add to the variance factor 1/n.
    """

    difference: float
    low: float | None
    high: float | None
    std: float | None
    p: float | None
    n: int
    margin: float
    outcome: Outcome
    runs: int | None
    error: float
    look: int | None
    about: str
    num_test: int | None = None
    shared: float = 0.0
    unit: str = "points"

    @property
    def differs(self) -> bool:
        """Whether a difference is found: better or worse."""
        return self.outcome in ("better", "worse")


@dataclass(frozen=True)
class _Sample:
    """Paired differences; where several runs have the same split of several that share data, the
    mean of each split."""

    values: np.ndarray
    n: int
    splits: Splits

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def std(self) -> float:
        return float(self.values.std(ddof=1))

    @property
    def p(self) -> float | None:
        """Of the t-test, uncorrected; none of too few."""
        count = len(self.values)
        if count < FEWEST:
            return None
        error = self.std * (1 / count + self.splits.shared) ** 0.5
        if error == 0:
            return float(self.mean == 0)
        return float(2 * scipy_stats.t.sf(abs(self.mean) / error, count - 1))


def decide(
    family: Mapping[Key, Mapping[int, float]],
    margin: float = MARGIN,
    look: int | None = None,
    splits: Splits | Mapping[Key, Splits] = Splits(),  # noqa: B008, as it is frozen
) -> dict[Key, Decision]:
    """The decisions of a family of comparisons, which are corrected together; one that is asked for
    its own sake is a family of one.

    Args:
        family (dict): The paired differences of each comparison by seed, in percentage points.
        margin (float): The largest difference that does not matter.
        look (int, optional): Which look at these comparisons this is, from 1; ``None`` where the
            number of runs was fixed beforehand and nobody goes on.
        splits (Splits or dict): What the splits share, of all comparisons or of each.
    """
    of = splits if isinstance(splits, Mapping) else dict.fromkeys(family, splits)
    samples = {key: _sample(own, of[key]) for key, own in family.items()}
    known = {key: p for key, one in samples.items() if (p := one.p) is not None}
    spent = SIGNIFICANCE / _price(look)
    errors = dict.fromkeys(family, spent / max(1, len(known)))
    corrected: dict[Key, float | None] = dict.fromkeys(family)
    largest, goes_on, level = 0.0, True, spent
    for rank, key in enumerate(sorted(known, key=lambda key: known[key])):
        left = len(known) - rank
        largest = max(largest, min(1.0, known[key] * left * _price(look)))
        corrected[key] = largest
        if goes_on:  # all that come after the first that is not significant have its level
            level = spent / left
            goes_on = known[key] <= level
        errors[key] = level
    return {
        key: _decision(sample, margin, errors[key], corrected[key], look)
        for key, sample in samples.items()
    }


def check_margin(margin: float) -> float:
    """The margin; a ``ValueError`` unless it is a finite number from 0."""
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(f"margin must be a number, got {margin!r}.")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a finite number from 0, not {margin}.")
    return float(margin)


def looks_until(runs: int) -> list[int]:
    """After how many runs to look, if runs are added until a comparison is decided: 10, 20, 40 and
    so on, each time twice as many, and at last at all of them."""
    doubled = (FIRST_LOOK * 2**i for i in range(runs.bit_length()))
    return [*(look for look in doubled if look < runs), runs]


def decided(decisions: Mapping[str, Decision]) -> bool:
    """Whether no further runs are needed: GReLU's difference to ReLU is decided."""
    return "grelu" in decisions and decisions["grelu"].outcome != "undecided"


def _price(look: int | None) -> int:
    """What alpha is divided by."""
    return 1 if look is None else look * (look + 1)


def _sample(differences: Mapping[int, float], splits: Splits) -> _Sample:
    # Accuracies are whole counts over N: without rounding, equal differences would differ.
    values = np.round(np.array(list(differences.values()), dtype=np.float64), 10)
    if splits.overlap and splits.count is not None:
        split = np.array(list(differences)) % splits.count
        values = np.array([values[split == one].mean() for one in np.unique(split)])
    return _Sample(values, len(differences), splits)


def _decision(
    sample: _Sample, margin: float, error: float, p: float | None, look: int | None
) -> Decision:
    n, mean, splits = sample.n, sample.mean, sample.splits
    low = high = std = None
    outcome: Outcome = "undecided"
    if p is not None:
        std = sample.std
        reach = stats.half_width(std, len(sample.values), error, splits.shared)
        low, high = mean - reach, mean + reach
        if -margin < low and high < margin:
            outcome = "no difference"
        elif low > 0 or high < 0:
            outcome = "better" if low > 0 else "worse"
    runs = None
    if outcome == "undecided":
        then = error if look is None else error * look / (look + 2)  # at the next look
        runs = _runs(sample, margin, then)
    return Decision(
        mean,
        low,
        high,
        std,
        p,
        n,
        margin,
        outcome,
        runs,
        error,
        look,
        splits.about(n),
        splits.num_test,
        splits.shared,
    )


def _runs(sample: _Sample, margin: float, error: float) -> int | None:
    """The number of runs, in tens, with which the interval leaves 0 or lies within the margin."""
    n = 10 * (max(sample.n, FEWEST - 1) // 10 + 1)
    splits = sample.splits
    if len(sample.values) < FEWEST:
        return n
    most = splits.count if splits.overlap and splits.count is not None else MOST_RUNS
    reach = max(abs(sample.mean), margin - abs(sample.mean))
    while n <= most:
        if stats.half_width(sample.std, n, error, splits.shared) < reach:
            return n
        n += 10 * max(1, n // 100)
    return None
