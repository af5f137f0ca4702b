"""GReLU in networks as people train them: four to ten layers, norm, skips, all labels.

GReLU's constants were chosen on some of these graphs, the tuning graphs; the others are held out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab.models.activations import ACTIVATIONS as MODULES
from graphrelu.lab.record.config import Config, Metric, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.render import export
from graphrelu.lab.render.tables import label, marked
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.held_out import is_held_out
from graphrelu.lab.reproduce.table import Found, Pair, Place, Row, Table

BACKBONES = ("gcn", "sage", "gat")
SPLITS = 10


# How a graph is split, and by what it is scored: the published splits where there are some, else
# 60 / 20 / 20 % of every class.
GRAPHS: dict[str, tuple[SplitName, Metric]] = {
    "squirrel": ("masks", "accuracy"),
    "minesweeper": ("masks", "rocauc"),
    "photo": ("full", "accuracy"),
    "chameleon": ("masks", "accuracy"),
    "tolokers": ("masks", "rocauc"),
    "actor": ("masks", "accuracy"),
    "computers": ("full", "accuracy"),
    "cs": ("full", "accuracy"),
    "physics": ("full", "accuracy"),
}
DEEPER = [(d, b) for d in ("squirrel", "minesweeper") for b in ("gcn", "sage")]  # ten layers, too
LAYERS, MORE_LAYERS = 4, 10
PATIENCE = 100  # epochs without a better validation score

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {}),
    "PReLU": ("prelu", {}),
    "GELU": ("gelu", {}),
    "SiLU": ("silu", {}),
    "GReLU-B": ("grelu", VARIANTS["B"]),
    "GReLU": ("grelu", {}),
}


class Cell(NamedTuple):
    """A graph and a network; its settings are the same for all activations."""

    dataset: str
    backbone: str
    layers: int

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        split, metric = GRAPHS.get(self.dataset, ("full", "accuracy"))
        # With LayerNorm, ten layers may not train at all, for some seeds not even with ReLU.
        norm = "batch" if self.layers == MORE_LAYERS else "layer"
        settings = {"split": split, "metric": metric, "patience": PATIENCE} | changes
        return modern(
            *(self.dataset, self.backbone, activation),
            layers=self.layers,
            norm=norm,
            activation_options=options,
            **settings,
        )

    @property
    def title(self) -> str:
        return f"{label(self.dataset)}, {label(self.backbone)}, {self.layers} layers"


def networks(dataset: str) -> list[Cell]:
    """The networks on a graph."""
    return [
        Cell(dataset, backbone, layers)
        for backbone in BACKBONES
        for layers in ((LAYERS, MORE_LAYERS) if (dataset, backbone) in DEEPER else (LAYERS,))
    ]


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every activation in every network on a graph."""
    return {
        (cell, name): cell.config(*own, **changes)
        for cell in networks(dataset)
        for name, own in ACTIVATIONS.items()
    }


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    lines = [(cell.title, *line) for cell, line in lead_lines(rows).items()]
    every_cell = export.table(("cell", *ACTIVATIONS, "GReLU - GReLU-B"), lines, numbers=1)
    return {"in_short": _in_short(rows), "cells": every_cell}


def _in_short(rows: Sequence[Row]) -> str:
    lines = in_short(rows, tuple(ACTIVATIONS))
    told = [(graphs, name, str(_parameters(name)), *line) for graphs, name, *line in lines]
    for graphs, part in parts(rows).items():
        over_b = shown.tally(row["over_b"] for row in part)
        told += [(graphs, "GReLU over GReLU-B", "", *line) for line in over_b]
    return export.table(("graphs", "activation", "parameters", *shown.TALLY), told, numbers=2)


def parts(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of held-out graphs, and those of tuning graphs."""
    held_out = [row for row in rows if is_held_out(row.dataset)]
    return {"held out": held_out, "tuning graphs": [row for row in rows if row not in held_out]}


def in_short(rows: Sequence[Row], names: Sequence[str]) -> list[tuple[str, ...]]:
    """The leads of each activation over ReLU in short, first on the held-out graphs."""
    return [
        (graphs, name, *line)
        for graphs, part in parts(rows).items()
        for name in names
        for line in shown.tally(row["over_relu"] for row in part if row.name == name)
    ]


def _parameters(name: str) -> int:
    """The number of parameters of an activation with 64 channels."""
    activation, options = ACTIVATIONS[name]
    module = MODULES[activation](64, **options)
    return sum(parameter.numel() for parameter in module.parameters())


def lead_lines(
    rows: Sequence[Row], names: Iterable[str] = ACTIVATIONS
) -> dict[Cell, tuple[str, ...]]:
    """For each cell ReLU's score, the leads over ReLU, and GReLU's lead over GReLU-B."""
    lines = {}
    for cell in dict.fromkeys(row.cell for row in rows):
        own = {row.name: row for row in rows if row.cell == cell}
        relu = f"{own['ReLU'].mean:.1f} ± {own['ReLU'].std:.1f}" if "ReLU" in own else ""
        leads = [
            own[name]["over_relu"] if name in own else None for name in names if name != "ReLU"
        ]
        last = own["GReLU"]["over_b"] if "GReLU" in own else None
        lines[cell] = (relu, *map(marked, (*leads, last)))
    return lines


PAIRS = (Pair("over_relu", None, "ReLU"), Pair("over_b", None, "GReLU-B", only="GReLU"))
TABLE = Table(
    name="deep",
    what="of these networks",
    datasets=tuple(GRAPHS),
    cells=cells,
    runs=SPLITS,
    quick_runs=2,
    pairs=PAIRS,
    columns=("layers", "over_relu", "over_b"),
    page=page,
    values=lambda row: {"layers": row.cell.layers},
)
