"""The settings that each activation of a cell chooses from the same grid: validation parts choose,
test parts do not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.data.splits import NUM_FOLDS
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.results import Result

Runs: TypeAlias = Mapping[int, Result]  # by seed
FoldCell: TypeAlias = tuple[str, str, str]  # dataset, backbone, protocol


class Choice(NamedTuple):
    """The points of the grid that all activations chose from, the point that each chose, and the
    seeds that the points share."""

    points: tuple[Any, ...]
    chosen: dict[str, Any]
    seeds: tuple[int, ...]


def choose(
    runs: Mapping[str, Mapping[Any, Runs]], seeds: Collection[int] | None = None
) -> Choice | None:
    """The highest mean validation score over the seeds; of equal ones the lowest mean validation
    loss, then the first point.

    ``runs`` are those of a cell, by activation and point. Points count that all activations have:
    with all of ``seeds``, or with the seeds that all of them share.
    """
    known = [
        {point for point, own in points.items() if seeds is None or own.keys() >= set(seeds)}
        for points in runs.values()
    ]
    shared = sorted(set.intersection(*known)) if known else []
    if seeds is None:
        parts = [set(points[point]) for points in runs.values() for point in shared]
        seeds = set.intersection(*parts) if parts else set()
    if not shared or not seeds:
        return None

    def rank(own: Sequence[Result]) -> tuple[float, float]:
        loss = fmean(run.val_loss for run in own)
        # Accuracies are whole counts: without rounding, equal means would not tie.
        score = round(fmean(run.val_score for run in own), 12)
        return -score, loss if math.isfinite(loss) else math.inf

    chosen = {
        name: min(shared, key=lambda point: rank([points[point][seed] for seed in sorted(seeds)]))
        for name, points in runs.items()
    }
    return Choice(tuple(shared), chosen, tuple(sorted(seeds)))


def fold_point(config: Config) -> tuple[int, int, float]:
    """The place of a network for sets of graphs in its grid: hidden units, layers, dropout."""
    return config.hidden, int(dict(config.backbone_options)["layers"] or 0), config.dropout


def fold_choices(results: Iterable[Result]) -> dict[FoldCell, tuple[Choice, dict[str, Config]]]:
    """The choice of each cell with sets of graphs, on the first ten folds, and the configurations
    that were chosen."""
    runs: dict[FoldCell, dict[str, dict[Any, dict[int, Result]]]] = {}
    for result in results:
        config = result.config
        if config.split in FOLD_SPLITS:
            cell: FoldCell = (config.dataset, config.backbone, config.split)
            own = runs.setdefault(cell, {}).setdefault(config.activation, {})
            own.setdefault(fold_point(config), {})[result.seed] = result
    found: dict[FoldCell, tuple[Choice, dict[str, Config]]] = {}
    for cell, by_name in runs.items():
        _check_settings(cell, by_name)
        if choice := choose(by_name, range(NUM_FOLDS)):
            configs = {
                name: next(iter(by_name[name][point].values())).config
                for name, point in choice.chosen.items()
            }
            found[cell] = choice, configs
    return found


def _check_settings(cell: FoldCell, by_name: Mapping[str, Mapping[Any, Runs]]) -> None:
    """Beside the axes of the grid, all runs of a cell have the same settings."""
    axes = dict.fromkeys(("hidden", "backbone_options", "dropout"))
    settings = [
        run.config.shared_settings | axes
        for points in by_name.values()
        for own in points.values()
        for run in own.values()
    ]
    if any(other != settings[0] for other in settings):
        raise ValueError(f"The runs of {' with '.join(cell[:2])} have different settings.")
