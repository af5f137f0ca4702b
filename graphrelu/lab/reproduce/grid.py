"""Tables in which each activation chooses its settings from the same grid: validation parts choose,
test parts do not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.cli.options import standing
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.table import Found, Request, Row, Runs, Table, train_missing

BySeed: TypeAlias = Mapping[int, Result]


class Choice(NamedTuple):
    """The points of the grid that all activations chose from, and the point that each chose."""

    points: tuple[Any, ...]
    chosen: dict[Any, Any]


def choose(
    runs: Mapping[Any, Mapping[Any, BySeed]], seeds: Collection[int] | None = None
) -> Choice | None:
    """The highest mean validation score over the seeds; of equal ones the lowest mean validation
    loss, then the first point.

    ``runs`` are those of a cell, by activation and point. Points count that all activations have:
    with all of ``seeds``, or with the seeds that all of them share.
    """
    known = [
        [point for point, own in points.items() if seeds is None or own.keys() >= set(seeds)]
        for points in runs.values()
    ]
    shared = sorted(set.intersection(*map(set, known))) if known else []
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
    return Choice(tuple(shared), chosen)


def by_name(own: Mapping[Any, BySeed]) -> dict[Any, dict[Any, BySeed]]:
    """The runs of a cell by activation and point."""
    found: dict[Any, dict[Any, BySeed]] = {}
    for (name, point), runs in own.items():
        found.setdefault(name, {})[point] = runs
    return found


@dataclass(frozen=True)
class GridTable(Table):
    """A table whose names are those of an activation and of a point of the grid. The rows are those
    of the points that the activations chose.

    Attributes:
        tuning: The seeds that choose. Only what was chosen is run with the others; without these,
            every point has all seeds.
    """

    tuning: tuple[int, ...] | None = None

    def choices(self, found: Found) -> dict[Any, Choice]:
        """What the activations of each cell chose; nothing where they share no point yet."""
        made = {cell: choose(by_name(own), self.tuning) for cell, own in found.items()}
        return {cell: choice for cell, choice in made.items() if choice is not None}

    def plan(self, request: Request) -> Runs:
        """The grid; where a cell has all of it, the other seeds of what was chosen, too."""
        if self.tuning is None:
            return super().plan(request)
        wanted = self.chosen(request)
        found = self.found(Record(request.out).read())
        choices, tuning = self.choices(found), set(self.tuning)
        begun = {
            cell for cell, name in wanted if not tuning <= found.get(cell, {}).get(name, {}).keys()
        }
        chosen = {
            (cell, pair)
            for cell, choice in choices.items()
            for pair in choice.chosen.items()
            if cell not in begun
        }
        return {
            config: range(request.runs) if place in chosen else self.tuning
            for place, config in wanted.items()
        }

    def collect(self, request: Request) -> str:
        """Train the grid, and then what was chosen from it."""
        if self.tuning is not None and request.runs < len(self.tuning):
            least = len(self.tuning)
            raise ValueError(f"runs must be at least {least}, which choose, not {request.runs}.")
        for _ in ("the grid", "what was chosen"):
            finished, total = train_missing(self.plan(request), request, self.load)
            if finished < total:
                break
        return standing(finished, total, request.out)

    def rows(self, results: Iterable[Result]) -> list[Row]:
        found = self.found(results)
        choices = self.choices(found)
        rows = self.rows_of(
            {
                cell: {name: found[cell][name, point] for name, point in choice.chosen.items()}
                for cell, choice in choices.items()
            }
        )
        for row in rows:
            row.values["tried"] = len(choices[row.cell].points)
        return rows
