"""Tables in which each activation chooses its settings from a grid: validation parts choose, test
parts do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from graphrelu.lab.cli.options import standing
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.table import Found, Place, Request, Row, Runs, Table, train_missing


@dataclass(frozen=True)
class GridTable(Table):
    """A table whose names are those of an activation and of a point of its grid. The rows are those
    of the points that the activations chose.

    Attributes:
        tuning: The seeds that choose. Only what was chosen is run with the others.
        fixed: Whether a place is run with all seeds, chosen or not.
    """

    tuning: tuple[int, ...] = ()
    fixed: Callable[[Place], bool] = lambda place: False

    def choices(self, found: Found) -> dict[Any, dict[Any, Any]]:
        """The point that each activation of a cell chose, once it has all of its grid: that of the
        highest mean validation score; of equal ones the lowest mean validation loss, then the
        first."""
        made: dict[Any, dict[Any, Any]] = {}
        for cell, own in found.items():
            grid: dict[Any, list[Any]] = {}
            for other, (name, point) in self.cells(cell[0]):
                if other == cell:
                    grid.setdefault(name, []).append(point)
            has_all = {
                name: all(own.get((name, one), {}).keys() >= set(self.tuning) for one in points)
                for name, points in grid.items()
            }
            made[cell] = {
                name: min(points, key=lambda point: self._rank(own[name, point]))
                for name, points in grid.items()
                if has_all[name]
            }
        return made

    def _rank(self, runs: Mapping[int, Result]) -> tuple[float, float]:
        own = [runs[seed] for seed in self.tuning]
        loss = fmean(run.val_loss for run in own)
        # Accuracies are whole counts: without rounding, equal means would not tie.
        score = round(fmean(run.val_score for run in own), 12)
        return -score, loss if math.isfinite(loss) else math.inf

    def plan(self, request: Request) -> Runs:
        """The grid, and the other seeds of what was chosen from it."""
        choices = self.choices(self.found(Record(request.out).read()))

        def is_chosen(place: Place) -> bool:
            cell, (name, point) = place
            return choices.get(cell, {}).get(name) == point

        return {
            config: self.seeds(config, request.runs)
            if self.fixed(place) or is_chosen(place)
            else self.tuning
            for place, config in self.chosen(request).items()
        }

    def collect(self, request: Request) -> str:
        """Train the grid, and then what was chosen from it."""
        if request.runs < len(self.tuning):
            least = len(self.tuning)
            raise ValueError(f"runs must be at least {least}, which choose, not {request.runs}.")
        for _ in ("the grid", "what was chosen"):
            finished, total = train_missing(self.plan(request), request, self.load)
            if finished < total:
                break
        return standing(finished, total, request.out)

    def rows(self, results: Iterable[Result]) -> list[Row]:
        found = self.found(results)
        chosen = {
            cell: {name: found[cell][name, point] for name, point in choice.items()}
            for cell, choice in self.choices(found).items()
        }
        return self.rows_of(chosen)
