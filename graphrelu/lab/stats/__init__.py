"""Statistics over runs: summaries, paired differences, corrections for many of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Values: TypeAlias = Sequence[float] | np.ndarray
Test = Literal["wilcoxon", "ttest"]
FEW = 13  # up to so many differences, p-values are exact in spite of ties
MANY = 50  # beyond so many, no p-value is exact


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation (0 for a single value), largest value and count."""

    mean: float
    std: float
    best: float
    n: int


@dataclass(frozen=True)
class PairedDifference:
    """The mean of ``a - b``, its 95 % t-interval and its p-value; one pair has neither."""

    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int


def summary(values: Values) -> Summary:
    """Summarise the results of several runs."""
    array = _finite(values)
    std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Summary(mean=float(array.mean()), std=std, best=float(array.max()), n=len(array))


def paired_difference(a: Values, b: Values, test: Test = "wilcoxon") -> PairedDifference:
    """How much larger ``a`` is than ``b``, paired by position (the same seed in both).

    The test is two-sided: Wilcoxon's signed-rank test, or the paired t-test.
    """
    first, second = _finite(a), _finite(b)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}.")
    # Accuracies are whole counts over N: without rounding, equal differences would not tie.
    difference = np.round(first - second, 12)
    n, mean = len(difference), float(difference.mean())
    if n == 1:
        return PairedDifference(mean, None, None, None, n)
    if not difference.any():
        return PairedDifference(0.0, 0.0, 0.0, 1.0, n)

    from scipy import stats

    std = float(difference.std(ddof=1))
    error, reach = std / n**0.5, half_width(std, n)
    if test == "ttest":
        p = 2 * stats.t.sf(abs(mean) / error if error > 0 else np.inf, n - 1)
    else:
        p = _wilcoxon(difference)
    return PairedDifference(mean, mean - reach, mean + reach, float(p), n)


def _wilcoxon(difference: np.ndarray) -> float:
    """The p-value that recent versions of scipy choose; older versions choose other ones."""
    from scipy import stats

    n, changed = len(difference), difference[difference != 0]
    if n <= FEW:
        return _exact_wilcoxon(changed)
    is_exact = n <= MANY and len(np.unique(abs(changed))) == n  # without zeros and ties
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older versions warn where few differences are not 0
        return float(stats.wilcoxon(changed, method="exact" if is_exact else "approx").pvalue)


def _exact_wilcoxon(difference: np.ndarray) -> float:
    """The p-value from all signs that the ranks can have; scipy does the same where there are ties,
    a thousand times slower, and older versions do not."""
    from scipy.stats import rankdata

    ranks = rankdata(abs(difference))  # multiples of a half: their sums are exact
    signs = np.arange(2 ** len(ranks))[:, None] >> np.arange(len(ranks)) & 1
    sums, found = signs @ ranks, ranks[difference > 0].sum()
    return min(1.0, 2 * min(float((sums <= found).mean()), float((sums >= found).mean())))


def half_width(std: float, n: int, error: float = 0.05) -> float:
    """How far the t-interval of a mean of ``n`` values, two or more, reaches to each side.

    The interval misses the mean with the probability ``error``.
    """
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 1 - error / 2)) * std / n**0.5


def holm(pvalues: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order given; ``None`` and NaN are left out as ``None``.

    The i-th smallest of m p-values is multiplied by m - i + 1, and never falls below the one
    before it.
    """
    adjusted: list[float | None] = [None] * len(pvalues)
    known = sorted((p, i) for i, p in enumerate(pvalues) if p is not None and not np.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, float(p) * (len(known) - rank)))
        adjusted[i] = largest
    return adjusted


def power_law(sizes: Values, times: Values) -> tuple[float, float | None, float | None]:
    """The exponent of a power law, by least squares on logarithms, with its 95 % interval."""
    from scipy import stats

    line = stats.linregress(np.log(sizes), np.log(times))
    exponent = float(line.slope)
    if len(sizes) < 3:
        return exponent, None, None
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return exponent, exponent - half, exponent + half


def rank_correlation(a: Values, b: Values) -> float | None:
    """Spearman's rank correlation; none where one side is constant."""
    from scipy import stats

    if len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return float(stats.spearmanr(a, b).statistic)


def _finite(values: Values) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("Statistics need a list of one or more finite numbers.")
    return array
