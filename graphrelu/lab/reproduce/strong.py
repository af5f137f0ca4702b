"""Activations in strong networks: GCN, SAGE and GAT with settings that were tuned for ReLU.

The settings, and the scores to hold ReLU against, are those of `"Classic GNNs are Strong Baselines"
<https://arxiv.org/abs/2406.08993>`_, per graph and backbone; every activation gets the same.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import deep, files, shown
from graphrelu.lab.reproduce.table import Pair, Place, Row, Table

PATIENCE = 200  # epochs without a better validation score
FEWER_RUNS = {"computers": 5, "cs": 5, "physics": 5}  # the large graphs
TOLERANCE = 0.5  # points below the published mean, or one published standard deviation if larger

OPTIONS: dict[str, dict[str, Any]] = {"sage": {"add_self_loops": True}, "gat": {"heads": 1}}

ACTIVATIONS = deep.ACTIVATIONS
WIDER, PUBLISHED = "ReLU, wider", "ReLU, published split"
NAMES = (*ACTIVATIONS, WIDER)


class Settings(NamedTuple):
    """The tuned settings of one graph and backbone, the published score in percent, and the width
    with which ReLU has as many parameters as GReLU."""

    cell: deep.Cell
    settings: dict[str, Any]
    mean: float | None = None
    std: float | None = None
    wider: int | None = None

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        dataset, backbone, layers = self.cell
        own = {"layers": layers, "patience": PATIENCE, "activation_options": options}
        own["backbone_options"] = OPTIONS.get(backbone, {})
        return modern(dataset, backbone, activation, **(self.settings | own | changes))


@cache
def settings() -> tuple[Settings, ...]:
    """The published rows; Tolokers and Actor, which have none, have those of Minesweeper and
    Squirrel."""
    source = resources.files("graphrelu.lab.record").joinpath("tuned_gnns.csv")
    return tuple(map(_settings, csv.DictReader(source.read_text().splitlines())))


def _settings(line: dict[str, str]) -> Settings:
    return Settings(
        deep.Cell(line["dataset"], line["backbone"], int(line["layers"])),
        {
            "hidden": int(line["hidden"]),
            "dropout": float(line["dropout"]),
            "norm": line["norm"] or None,
            "residual": line["residual"] == "yes",
            "linear_first": line["linear_first"] == "yes",
            "lr": float(line["lr"]),
            "weight_decay": float(line["weight_decay"]),
            "epochs": int(line["epochs"]),
            "metric": line["metric"],
            "split": line["split"],
            "normalize_features": line["split"] == "full",
        },
        float(line["mean"]) if line["mean"] else None,
        float(line["std"]) if line["std"] else None,
        int(line["wider"]),
    )


@cache
def all_rows() -> dict[deep.Cell, Settings]:
    """The rows of the table, and one for the embedded graph."""
    first = settings()[0]
    embedded = Settings(first.cell._replace(dataset="digits"), first.settings)
    return {row.cell: row for row in (*settings(), embedded)}


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every activation in every network on a graph. Where the published score is for one random
    split, ReLU has that split, too."""
    found: dict[Place, Config] = {}
    for cell, row in all_rows().items():
        if cell.dataset == dataset:
            found |= {
                (cell, name): row.config(*own, **changes) for name, own in ACTIVATIONS.items()
            }
            if row.wider:
                found[cell, WIDER] = row.config("relu", {}, hidden=row.wider, **changes)
            if row.mean is not None and row.settings["split"] == "random":
                found[cell, PUBLISHED] = row.config("relu", {}, split="published", **changes)
    return found


def values(row: Row) -> dict[str, Any]:
    own = all_rows()[row.cell]
    return {"published_mean": own.mean, "published_std": own.std}


def page(rows: list[Row]) -> dict[str, Any]:
    lines = []
    for cell, line in deep.lead_lines(rows, NAMES).items():
        row = all_rows()[cell]
        published = "" if row.mean is None else f"{row.mean:.1f} ± {row.std:.1f}"
        lines.append((cell.title, published, *line))
    head = ("cell", "published", *NAMES, "GReLU - GReLU-B")
    in_short = deep.in_short(rows, NAMES)
    return {
        "check": check(rows),
        "in_short": files.table(("graphs", "activation", *shown.TALLY), in_short, numbers=2),
        "rows": files.table(head, lines, numbers=1),
    }


def check(rows: list[Row]) -> str:
    """In how many rows ReLU reaches the published score, on the published split where known."""
    known, below = 0, []
    for row in rows:
        own = all_rows()[row.cell]
        reached = PUBLISHED if own.settings["split"] == "random" else "ReLU"
        if row.name == reached and own.mean is not None:
            known += 1
            gap = row.mean - own.mean
            if gap < -max(TOLERANCE, own.std or 0):
                below.append(f"{label(row.dataset)}-{label(row.backbone)} ({gap:+.1f})")
    which = f"; below in {', '.join(below)}" if below else ""
    return (
        f"ReLU is no more than {TOLERANCE} points, or one published standard deviation if that is "
        f"more, below the published mean in {known - len(below)} of {known} rows{which}."
    )


TABLE = Table(
    name="strong",
    datasets=tuple(dict.fromkeys(row.cell.dataset for row in settings())),
    cells=cells,
    runs=10,
    quick_runs=2,
    pairs=(
        Pair("over_relu", None, "ReLU"),
        Pair("over_b", None, "GReLU-B", only="GReLU"),
    ),
    columns=("layers", "over_relu", "over_b", "hidden", "published_mean", "published_std"),
    page=page,
    values=values,
    hidden=PUBLISHED,
    seeds=lambda config, runs: range(min(runs, FEWER_RUNS.get(config.dataset, runs))),
)
