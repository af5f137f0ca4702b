"""One activation ahead of another: differences paired by seed, corrected over a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np

from graphrelu.lab import stats
from graphrelu.lab.record.config import LATER, Config
from graphrelu.lab.record.results import Result

SIGNIFICANCE = 0.05
# With five pairs, all on one side, Wilcoxon's two-sided p-value is still 2 / 2^5 = 0.0625.
FEWEST_PAIRS = 6

Scores: TypeAlias = dict[int, float]  # seed -> share
Cells: TypeAlias = dict[tuple[str, str], dict[str, Scores]]  # (dataset, backbone) -> activation
Outcome = Literal["better", "worse", "undecided"]
Test = Literal["wilcoxon", "ttest", "none"]
Key = TypeVar("Key")
Name = TypeVar("Name")


@dataclass(frozen=True)
class Comparison:
    """How far one activation is ahead of another, in percent points, over the seeds of both.

    ``low`` and ``high`` bound the 95 % t-interval, ``p`` is the Wilcoxon test's, or the paired
    t-test's in tables that say so, ``p_holm`` the same after Holm's correction over a table;
    ``std`` is the standard deviation of the differences. One seed gives a difference only.
    """

    unit: ClassVar[str] = "points"

    difference: float
    low: float | None
    high: float | None
    std: float | None
    p: float | None
    p_holm: float | None
    n: int

    @property
    def outcome(self) -> Outcome:
        """Decided only where the corrected test and the interval agree."""
        if self.p_holm is None or self.p_holm > SIGNIFICANCE or self.n < FEWEST_PAIRS:
            return "undecided"
        if self.low is not None and self.low > 0:
            return "better"
        return "worse" if self.high is not None and self.high < 0 else "undecided"


def fewest_seeds(comparisons: int) -> int:
    """The smallest number of pairs with which the corrected Wilcoxon test can be significant."""
    n = 1
    while comparisons * 2 / 2**n > SIGNIFICANCE:
        n += 1
    return n


def compared(
    pairs: Mapping[Key, tuple[Scores, Scores]], test: Test = "wilcoxon"
) -> dict[Key, Comparison]:
    """The lead of the first over the second of each pair that shares seeds, corrected together.

    Of ten pairs Wilcoxon's p-value is at least 2 / 2^10, which no correction over a long table
    leaves significant: the paired t-test is for those. Without a test there are differences only,
    and scipy is not needed.
    """
    leads = {}
    for key, (first, second) in pairs.items():
        if seeds := sorted(first.keys() & second.keys()):
            own = [first[seed] for seed in seeds]
            leads[key] = _lead(own, [second[seed] for seed in seeds], test)
    corrected = stats.holm([lead.p for lead in leads.values()])
    return {
        key: replace(lead, p_holm=p)
        for (key, lead), p in zip(leads.items(), corrected, strict=True)
    }


def leads_over(
    cells: Mapping[Key, Mapping[Name, Scores]], first: Name, rival: Name, test: Test = "wilcoxon"
) -> dict[Key, Comparison]:
    """How far one activation is ahead of another in every cell that has both."""
    pairs = {cell: (own.get(first, {}), own.get(rival, {})) for cell, own in cells.items()}
    return compared(pairs, test)


def scores_by_cell(
    results: Iterable[Result],
    name_of: Callable[[Config], str] = attrgetter("activation"),
    score_of: Callable[[Result], float] = attrgetter("score"),
) -> Cells:
    """The scores of every cell; all activations of a cell must have the same settings.

    ``name_of`` names the activation of a run, ``score_of`` gives the score; higher is better.
    """
    cells: Cells = {}
    configs: dict[tuple[str, ...], Config] = {}
    for result in results:
        config, name = result.config, name_of(result.config)
        cell = (config.dataset, config.backbone)
        first = configs.setdefault(cell, config)
        first_of_its_kind = configs.setdefault((*cell, name), config)
        if config != first_of_its_kind or shared_settings(config) != shared_settings(first):
            raise ValueError(f"The runs of {' with '.join(cell)} have different settings.")
        cells.setdefault(cell, {}).setdefault(name, {})[result.seed] = score_of(result)
    return cells


def mean_validation(results: Iterable[Result]) -> float:
    """The mean validation score, for choosing between settings."""
    # Accuracies are whole counts: without rounding, equal means would not tie.
    return round(fmean(result.val_score for result in results), 12)


def _lead(first: list[float], second: list[float], test: Test) -> Comparison:
    if test == "none":
        mean = 100 * float(np.subtract(first, second).mean())
        return Comparison(mean, None, None, None, None, None, len(first))
    found = stats.paired_difference(first, second, test)
    if found.low is None or found.high is None:
        return Comparison(100 * found.mean, None, None, None, None, None, found.n)
    std = float(np.subtract(first, second).std(ddof=1))
    low, high = 100 * found.low, 100 * found.high
    return Comparison(100 * found.mean, low, high, 100 * std, found.p, None, found.n)


def relative_to(relu: str, errors: Mapping[str, Scores]) -> dict[str, Scores]:
    """Errors as shares of ReLU's mean error: differences are then in percent of that error."""
    whole = abs(fmean(errors[relu].values())) if errors.get(relu) else 0.0
    return {
        name: {seed: error / (whole or 1.0) for seed, error in own.items()}
        for name, own in errors.items()
    }


def shared_settings(config: Config) -> dict[str, Any]:
    """The settings that must be the same for every activation."""
    settings = LATER | config.to_dict()
    return {name: settings[name] for name in settings if not name.startswith("activation")}
