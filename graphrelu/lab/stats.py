"""The one rule for a difference: better, worse, no difference that matters, or undecided.

A t-interval of the differences, paired by seed, decides alone. Two things keep luck from becoming a
finding:

- **Looks.** Whoever looks at the k-th set of runs of a comparison spends alpha / (k (k + 1)). These
  shares add up to alpha over all k, so you may look and continue as often as you like.
- **Families.** Comparisons that are made together are corrected together, by Holm. An interval has
  the level at which Holm's procedure tested it, and so agrees with the word beside it.

Where splits share most of their training data, the interval is that of Nadeau and Bengio.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from scipy import stats
from scipy.special import stdtrit

from graphrelu.lab.data.splits import FULL_SHARES, SMALL_SHARES, Split
from graphrelu.lab.record.config import ERRORS, GIN_SPLITS, Config
from graphrelu.lab.record.results import FEWEST, Record, Result, look_numbers
from graphrelu.lab.record.results import Splits as Splits

SIGNIFICANCE = 0.05
MARGIN = 0.5  # percentage points, or percent of an error
FIRST_LOOK = 10  # with fewer runs hardly a comparison is decided
MOST_RUNS = 10_000  # beyond, a number of runs is no advice

Outcome = Literal["better", "worse", "no difference", "undecided"]
Scores: TypeAlias = Mapping[int, float]  # seed -> share
Looks: TypeAlias = tuple[int | None, int | None]  # at GReLU against ReLU, at the others
Key = TypeVar("Key")


RANDOM, ONE = Splits(), Splits(count=1)


def splits_of(config: Config, note: str = "") -> Splits:
    """What a record says of the splits of a cell: their shares, but no sizes."""
    how = config.split
    if how in ("masks", "published", "scaffold", "column"):
        several = re.search(r"split \d+ of (\d+)", note) if how == "masks" else None
        count = int(several[1]) if several else 1
        # Their sizes are not on record: the widest interval of the usual ones, 50 / 25 / 25 %.
        return ONE if count == 1 else Splits(0.5, 0.5, count=count)
    if how == "random" and not note.startswith(("48 / 32 / 20 %", "80 / 10 / 10 %")):
        return RANDOM  # few labels
    if how in ("random", "full") and not note.startswith("80"):
        shares = SMALL_SHARES if how == "random" else FULL_SHARES
        train, test = shares[0], 1 - sum(shares)
    else:
        train, test = (0.9 if how in GIN_SPLITS else 0.8), 0.1
    return Splits(train, test / train)


def measured(
    split: Callable[[int], Split], seeds: Collection[int], total: int, known: Splits
) -> Splits:
    """The same with the real sizes of the splits of some seeds, of ``total`` labelled items."""
    sizes = [(len(one.train), len(one.test)) for one in map(split, seeds)]
    return Splits(
        share=fmean(train for train, _ in sizes) / total,
        ratio=fmean(test / train for train, test in sizes),
        num_test=min(test for _, test in sizes),
        count=known.count,
    )


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


def half_width(std: float, n: int, error: float = 0.05, shared: float = 0.0) -> float:
    """How far the t-interval of a mean of ``n`` values, two or more, reaches to each side.

    The interval misses the mean with the probability ``error``. ``shared`` is added to the variance
    factor 1/n where the values share data; see :class:`Splits`.
    """
    return float(stdtrit(n - 1, 1 - error / 2)) * std * (1 / n + shared) ** 0.5


def decide(
    family: Mapping[Key, Mapping[int, float]],
    margin: float = MARGIN,
    look: int | None = None,
    splits: Splits | Mapping[Key, Splits] = RANDOM,
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
    values = {key: _values(own, of[key]) for key, own in family.items()}
    raw = {key: _p(own, of[key]) for key, own in values.items() if len(own) >= FEWEST}
    looks = 1 if look is None else look * (look + 1)  # what alpha is divided by
    level = SIGNIFICANCE / looks
    errors = dict.fromkeys(family, level / max(1, len(raw)))
    corrected: dict[Key, float] = {}
    largest, goes_on = 0.0, True
    for rank, key in enumerate(sorted(raw, key=lambda key: raw[key])):
        left = len(raw) - rank
        largest = corrected[key] = max(largest, min(1.0, raw[key] * left * looks))
        if goes_on:  # all that come after the first that is not significant have its level
            level = SIGNIFICANCE / looks / left
            goes_on = raw[key] <= level
        errors[key] = level
    return {
        key: _decision(
            own, len(family[key]), of[key], margin, errors[key], corrected.get(key), look
        )
        for key, own in values.items()
    }


def _values(differences: Mapping[int, float], splits: Splits) -> np.ndarray:
    """The differences; where several runs have the same split of several that share data, the mean
    of each split."""
    # Accuracies are whole counts over N: without rounding, equal differences would differ.
    values = np.round(np.array(list(differences.values()), dtype=np.float64), 10)
    if splits.overlap and splits.count is not None:
        split = np.array(list(differences)) % splits.count
        values = np.array([values[split == one].mean() for one in np.unique(split)])
    return values


def _p(values: np.ndarray, splits: Splits) -> float:
    """Of the t-test, uncorrected."""
    n, mean = len(values), float(values.mean())
    error = float(values.std(ddof=1)) * (1 / n + splits.shared) ** 0.5
    return float(2 * stats.t.sf(abs(mean) / error, n - 1)) if error else float(mean == 0)


def _decision(
    values: np.ndarray,
    n: int,
    splits: Splits,
    margin: float,
    error: float,
    p: float | None,
    look: int | None,
) -> Decision:
    mean = float(values.mean())
    low = high = std = runs = None
    outcome: Outcome = "undecided"
    if p is not None:
        std = float(values.std(ddof=1))
        reach = half_width(std, len(values), error, splits.shared)
        low, high = mean - reach, mean + reach
        if -margin < low and high < margin:
            outcome = "no difference"
        elif low > 0 or high < 0:
            outcome = "better" if low > 0 else "worse"
    if outcome == "undecided":
        at_next_look = error if look is None else error * look / (look + 2)
        runs = _runs(mean, std, n, splits, margin, at_next_look)
    about, size, shared = splits.about(n), splits.num_test, splits.shared
    return Decision(
        mean, low, high, std, p, n, margin, outcome, runs, error, look, about, size, shared
    )


def _runs(
    mean: float, std: float | None, n: int, splits: Splits, margin: float, error: float
) -> int | None:
    """The number of runs, in tens, with which the interval leaves 0 or lies within the margin."""
    runs = 10 * (max(n, FEWEST - 1) // 10 + 1)
    if std is None:
        return runs
    most = splits.count if splits.overlap and splits.count is not None else MOST_RUNS
    reach = max(abs(mean), margin - abs(mean))
    while runs <= most:
        if half_width(std, runs, error, splits.shared) < reach:
            return runs
        runs += 10 * max(1, runs // 100)
    return None


def check_margin(margin: float) -> float:
    """The margin; an error unless it is a finite number from 0."""
    if isinstance(margin, bool) or not isinstance(margin, (int, float)):
        raise TypeError(f"margin must be a number, got {margin!r}.")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be a finite number of at least 0, not {margin}.")
    return float(margin)


def looks_until(runs: int) -> list[int]:
    """After how many runs to look, if runs are added until a comparison is decided: 10, 20, 40 and
    so on, each time twice as many, and at last at all of them."""
    doubled = (FIRST_LOOK * 2**i for i in range(runs.bit_length()))
    return [*(look for look in doubled if look < runs), runs]


def decided(decisions: Mapping[str, Decision]) -> bool:
    """Whether no further runs are needed: GReLU's difference to ReLU is decided."""
    return "grelu" in decisions and decisions["grelu"].outcome != "undecided"


def compared(
    pairs: Mapping[Key, tuple[Scores, Scores]],
    splits: Splits | Mapping[Key, Splits] = RANDOM,
    margin: float = MARGIN,
    look: int | None = None,
) -> dict[Key, Decision]:
    """The lead of the first over the second of each pair that shares seeds, as one family; see
    :func:`decide`."""
    family = {
        key: {seed: 100 * (first[seed] - second[seed]) for seed in sorted(shared)}
        for key, (first, second) in pairs.items()
        if (shared := first.keys() & second.keys())
    }
    return decide(family, margin, look, splits)


def over_relu(
    scores: Mapping[str, Scores],
    splits: Splits = RANDOM,
    margin: float = MARGIN,
    looks: Looks = (1, 1),
    is_error: bool = False,
) -> dict[str, Decision]:
    """Each activation against ReLU; one that shares no seed with ReLU is left out.

    GReLU against ReLU is the question that is asked: it is a family of its own. The others are a
    second one. ``looks`` says which look this is at the first family, and at the second.
    """
    if is_error:
        scores = relative_to_relu(scores)
    pairs = {name: (own, scores.get("relu", {})) for name, own in scores.items() if name != "relu"}
    others = {name: pair for name, pair in pairs.items() if name != "grelu"}
    first = {name: pair for name, pair in pairs.items() if name == "grelu"}
    found = compared(first, splits, margin, looks[0]) | compared(others, splits, margin, looks[1])
    if is_error:
        found = {name: replace(one, unit="% of ReLU's error") for name, one in found.items()}
    return {name: found[name] for name in pairs if name in found}


def relative_to_relu(errors: Mapping[str, Scores]) -> dict[str, Scores]:
    """Errors as shares of ReLU's mean error: differences are then in percent of that error."""
    whole = abs(fmean(errors["relu"].values())) if errors.get("relu") else 0.0
    return {
        name: {seed: error / (whole or 1.0) for seed, error in own.items()}
        for name, own in errors.items()
    }


@dataclass(frozen=True)
class Decided:
    """The decisions on a comparison by activation, and the command that continues with it, but for
    the number of runs and the record."""

    decisions: dict[str, Decision]
    command: str


def decide_at_look(record: Record, results: Sequence[Result]) -> Decided:
    """The decisions on the runs of a comparison that was announced, which is a look at them: it is
    on record before anything is returned."""
    config = results[0].config
    scores: dict[str, dict[int, float]] = {}
    for result in results:
        scores.setdefault(result.config.variant, {})[result.seed] = result.score
    before = record.looks(config.cell_key())
    look = before[-1].at({name: own.keys() for name, own in scores.items()})
    before = record.add_look(look) if look.pairs else before
    which = look_numbers(before, look.pairs)
    found = over_relu(scores, look.splits, look.margin, which, config.metric in ERRORS)
    return Decided(found, look.command)
