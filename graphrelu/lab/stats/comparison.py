"""From runs to decisions: scores by cell, and differences paired by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from statistics import fmean
from typing import TypeAlias, TypeVar

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result
from graphrelu.lab.stats.decision import MARGIN, Decision, decide
from graphrelu.lab.stats.splits import Splits, splits_of

Scores: TypeAlias = dict[int, float]  # seed -> share
Cell: TypeAlias = tuple[str, str]  # dataset, backbone
Cells: TypeAlias = dict[Cell, dict[str, Scores]]  # -> activation -> scores
Looks: TypeAlias = tuple[int | None, int | None]  # at GReLU against ReLU, at the others
Key = TypeVar("Key")
Name = TypeVar("Name")
RANDOM = Splits()


def compared(
    pairs: Mapping[Key, tuple[Scores, Scores]],
    splits: Splits | Mapping[Key, Splits] = RANDOM,
    margin: float = MARGIN,
    look: int | None = None,
) -> dict[Key, Decision]:
    """The lead of the first over the second of each pair that shares seeds, as one family; see
    :func:`~graphrelu.lab.stats.decision.decide`."""
    family = {
        key: {seed: 100 * (first[seed] - second[seed]) for seed in sorted(shared)}
        for key, (first, second) in pairs.items()
        if (shared := first.keys() & second.keys())
    }
    return decide(family, margin, look, splits)


def leads_over(
    cells: Mapping[Key, Mapping[Name, Scores]],
    first: Name,
    rival: Name,
    splits: Splits | Mapping[Key, Splits] = RANDOM,
) -> dict[Key, Decision]:
    """How far one activation is ahead of another in every cell that has both, as one family."""
    pairs = {cell: (own.get(first, {}), own.get(rival, {})) for cell, own in cells.items()}
    return compared(pairs, splits)


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
        scores = relative_to("relu", scores)
    relu = scores.get("relu", {})
    pairs = {name: (own, relu) for name, own in scores.items() if name != "relu"}
    others = {name: pair for name, pair in pairs.items() if name != "grelu"}
    first = {name: pair for name, pair in pairs.items() if name == "grelu"}
    found = compared(first, splits, margin, looks[0]) | compared(others, splits, margin, looks[1])
    if is_error:
        found = {name: replace(one, unit="% of ReLU's error") for name, one in found.items()}
    return {name: found[name] for name in pairs if name in found}


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
        if config != first_of_its_kind or config.shared_settings != first.shared_settings:
            raise ValueError(f"The runs of {' with '.join(cell)} have different settings.")
        cells.setdefault(cell, {}).setdefault(name, {})[result.seed] = score_of(result)
    return cells


def splits_by_cell(results: Iterable[Result]) -> dict[Cell, Splits]:
    """What the splits of every cell share, as far as the record says."""
    found: dict[Cell, Splits] = {}
    for result in results:
        cell = (result.config.dataset, result.config.backbone)
        if cell not in found:
            found[cell] = splits_of(result.config, result.note)
    return found


def mean_validation(results: Iterable[Result]) -> float:
    """The mean validation score, for choosing between settings."""
    # Accuracies are whole counts: without rounding, equal means would not tie.
    return round(fmean(result.val_score for result in results), 12)


def relative_to(relu: str, errors: Mapping[str, Scores]) -> dict[str, Scores]:
    """Errors as shares of ReLU's mean error: differences are then in percent of that error."""
    whole = abs(fmean(errors[relu].values())) if errors.get(relu) else 0.0
    return {
        name: {seed: error / (whole or 1.0) for seed, error in own.items()}
        for name, own in errors.items()
    }
