"""The main table with tuned rivals: every activation chooses from the same eight settings.

Each axis has the main table's value and one other. Validation nodes choose; test nodes do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby, product
from typing import Any

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, family_of, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.grid import GridTable
from graphrelu.lab.reproduce.node import OVER_RIVALS
from graphrelu.lab.reproduce.table import Found, Place, Request, Row

# The other value of each axis.
LR_FACTOR, WEIGHT_DECAY_FACTOR, DROPOUT = 0.3, 10, 0.8
SETTINGS = 8
TUNED_BACKBONES = ("gcn", "sage")


def grid(cell: Config) -> list[Config]:
    """The settings of a cell, the main table's first."""
    axes = (
        (cell.lr, LR_FACTOR * cell.lr),
        (cell.weight_decay, WEIGHT_DECAY_FACTOR * cell.weight_decay),
        (cell.dropout, DROPOUT),
    )
    return [
        replace(cell, lr=lr, weight_decay=weight_decay, dropout=dropout)
        for lr, weight_decay, dropout in product(*axes)
    ]


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """A place in the grid for each activation of each backbone."""
    family = family_of(dataset)
    return {
        ((dataset, backbone), (name, place)): config
        for backbone, name in product(BACKBONES, ACTIVATIONS)
        for place, config in enumerate(grid(recipe(dataset, family, backbone, name, **changes)))
    }


class TunedTable(GridTable):
    """Beside what was chosen stands the main table's own setting, the first."""

    def chosen(self, request: Request) -> dict[Place, Config]:
        """Two of the backbones, unless others are asked for."""
        found = super().chosen(request)
        if "backbone" in request.only:
            return found
        return {place: c for place, c in found.items() if c.backbone in TUNED_BACKBONES}

    def rows(self, results: Iterable[Result]) -> list[Row]:
        results = list(results)
        untuned: Found = {
            cell: {name: runs for (name, point), runs in own.items() if point == 0}
            for cell, own in self.found(results).items()
        }
        rows, before = super().rows(results), shown.by_cell(self.rows_of(untuned))
        for row in rows:
            if first := before.get(row.cell, {}).get(row.name):
                row.values |= {"untuned_mean": first.mean, "untuned_std": first.std}
                row.values["untuned_over_it"] = first["grelu_over_it"]
        return rows


AXES = ("lr", "weight_decay", "dropout")


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    parts = []
    head = ("dataset", "activation", "tuned", "lr", "weight decay", "dropout", "untuned")
    for backbone, part in groupby(rows, key=lambda row: row.backbone):
        lines = [_line(row, best) for row, best in shown.with_best(part, lambda row: row.dataset)]
        table = export.table((*head, "GReLU - it", "p"), lines, numbers=3)
        parts.append(f"## {label(backbone)}\n\n{table}")
    fewest = min(row["tried"] for row in rows)
    tried = f"Every cell chose from all {SETTINGS} settings."
    if fewest < SETTINGS:
        tried = (
            f"The grid is incomplete: some cells chose from {fewest} of the {SETTINGS} settings."
        )
    return {
        "settings": SETTINGS,
        "lr_factor": LR_FACTOR,
        "weight_decay_factor": WEIGHT_DECAY_FACTOR,
        "dropout": DROPOUT,
        "tried": tried,
        "tallies": shown.tallies(shown.by_rival(rows, "grelu_over_it")),
        "untuned_tallies": shown.tallies(shown.by_rival(rows, "untuned_over_it")),
        "backbones": "\n".join(parts),
    }


def _line(row: Row, bold: bool) -> tuple[str, ...]:
    setting = (f"{row[axis]:g}" for axis in AXES)
    mean = row["untuned_mean"]
    untuned = "" if mean is None else f"{mean:.1f} ± {row['untuned_std']:.1f}"
    names = (label(row.dataset), label(row.activation))
    return (
        *names,
        shown.accuracy(row, bold),
        *setting,
        untuned,
        *shown.lead_and_p(row["grelu_over_it"]),
    )


TABLE = TunedTable(
    name="tuned",
    datasets=NODE_DATASETS,
    cells=cells,
    runs=10,
    quick_runs=3,
    pairs=(OVER_RIVALS,),
    columns=(*AXES, "tried", "untuned_mean", "untuned_std", "grelu_over_it"),
    page=page,
    # Wherever training stops, all cells have nearly the same settings.
    turn=lambda place: place[1][1],
    order=lambda row: BACKBONES.index(row.backbone),
    family="a rival",
    quick=(("digits",), lambda place: place[0][1] == "gcn"),
)
