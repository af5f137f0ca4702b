"""Statistics over runs: summaries, and the numbers of tables. What a difference says is decided in
:mod:`graphrelu.lab.stats.decision`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import stats
from scipy.special import stdtrit

Values: TypeAlias = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation (0 for a single value), largest value and count."""

    mean: float
    std: float
    best: float
    n: int


def summary(values: Values) -> Summary:
    """Summarise the results of several runs."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("Statistics need a list of one or more finite numbers.")
    std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Summary(mean=float(array.mean()), std=std, best=float(array.max()), n=len(array))


def half_width(std: float, n: int, error: float = 0.05, shared: float = 0.0) -> float:
    """How far the t-interval of a mean of ``n`` values, two or more, reaches to each side.

    The interval misses the mean with the probability ``error``. ``shared`` is added to the variance
    factor 1/n where the values share data; see :class:`graphrelu.lab.stats.splits.Splits`.
    """
    return float(stdtrit(n - 1, 1 - error / 2)) * std * (1 / n + shared) ** 0.5


def power_law(sizes: Values, times: Values) -> tuple[float, float | None, float | None]:
    """The exponent of a power law, by least squares on logarithms, with its 95 % interval."""
    line = stats.linregress(np.log(sizes), np.log(times))
    exponent = float(line.slope)
    if len(sizes) < 3:
        return exponent, None, None
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return exponent, exponent - half, exponent + half
