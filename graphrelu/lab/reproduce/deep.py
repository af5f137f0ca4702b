"""GReLU in networks as people train them: four to ten layers, norm, skips, all labels.

GReLU's constants were chosen on some of these graphs, the tuning graphs; the others are held out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab.models.activations import ACTIVATIONS as MODULES
from graphrelu.lab.record.config import Config, Metric, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.tables import ScoreRow, label, marked, percent
from graphrelu.lab.reproduce.experiment import Experiment, Place, Table
from graphrelu.lab.reproduce.held_out import is_held_out
from graphrelu.lab.stats.comparison import Scores, leads_over
from graphrelu.lab.stats.decision import Decision
from graphrelu.lab.stats.splits import Splits

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


TABLE = Table("deep", "of these networks", tuple(GRAPHS), cells)


@dataclass(frozen=True)
class DeepRow(ScoreRow):
    """One activation in one cell. The leads over one rival are a family for Holm's correction."""

    layers: int
    over_relu: Decision | None
    over_b: Decision | None

    @property
    def cell(self) -> Cell:
        return Cell(self.dataset, self.backbone, self.layers)


def deep_rows(results: Iterable[Result]) -> list[DeepRow]:
    """A row for each cell and activation."""
    results = list(results)
    return rows_of(TABLE.scores(results), tuple(ACTIVATIONS), TABLE.splits(results))


def rows_of(
    found: Mapping[Cell, Mapping[str, Scores]], names: Sequence[str], splits: Mapping[Cell, Splits]
) -> list[DeepRow]:
    """The rows of these cells, their activations in this order."""
    over_relu = {name: leads_over(found, name, "ReLU", splits) for name in names if name != "ReLU"}
    over_b = {"GReLU": leads_over(found, "GReLU", "GReLU-B", splits)}
    return [
        DeepRow(
            *(cell.dataset, cell.backbone, name, *percent(own[name]), cell.layers),
            *(leads.get(name, {}).get(cell) for leads in (over_relu, over_b)),
        )
        for cell, own in found.items()
        for name in names
        if name in own
    ]


def render(record: Path) -> list[Path]:
    """A page, and the same as CSV."""
    results = TABLE.read(record)
    rows = deep_rows(results)
    lines = [(cell.title, *line) for cell, line in lead_lines(rows).items()]
    every_cell = export.table(("cell", *ACTIVATIONS, "GReLU - GReLU-B"), lines, numbers=1)
    page = TABLE.text(
        results, record, rule=rule_of(rows), in_short=_in_short(rows), cells=every_cell
    )
    return figures.write(record, page, rows, DeepRow)


def rule_of(rows: Iterable[DeepRow]) -> str:
    """How the leads are decided."""
    return findings.rule("a column", ((row.dataset, row.over_relu) for row in rows))


def _in_short(rows: Sequence[DeepRow]) -> str:
    """The leads of each activation over ReLU in short, first on the held-out graphs."""
    held_out = [row for row in rows if is_held_out(row.dataset)]
    tuning = [row for row in rows if not is_held_out(row.dataset)]
    lines = []
    for graphs, part in {"held out": held_out, "tuning graphs": tuning}.items():
        for name in ACTIVATIONS:
            own = [row.over_relu for row in part if row.activation == name]
            lines += [(graphs, name, str(_parameters(name)), *line) for line in tally(own)]
        over_b = tally(row.over_b for row in part)
        lines += [(graphs, "GReLU over GReLU-B", "", *line) for line in over_b]
    return export.table(("graphs", "activation", "parameters", *TALLY), lines, numbers=2)


TALLY = ("mean lead", "median", "better", "no difference", "undecided", "worse")


def tally(leads: Iterable[Decision | None]) -> list[tuple[str, ...]]:
    """The mean and the median lead, and the cells by outcome: one line, or none without leads."""
    found = [lead for lead in leads if lead is not None]
    if not found:
        return []
    outcomes: list[str] = [lead.outcome for lead in found]
    middle = (f"{of(lead.difference for lead in found):+.2f}" for of in (fmean, median))
    return [(*middle, *(str(outcomes.count(outcome)) for outcome in TALLY[2:]))]


def _parameters(name: str) -> int:
    """The number of parameters of an activation with 64 channels."""
    activation, options = ACTIVATIONS[name]
    module = MODULES[activation](64, **options)
    return sum(parameter.numel() for parameter in module.parameters())


def lead_lines(
    rows: Sequence[DeepRow], names: Iterable[str] = ACTIVATIONS
) -> dict[Cell, tuple[str, ...]]:
    """For each cell ReLU's score, the leads over ReLU, and GReLU's lead over GReLU-B."""
    lines = {}
    for cell in dict.fromkeys(row.cell for row in rows):
        own = {row.activation: row for row in rows if row.cell == cell}
        relu = f"{own['ReLU'].mean:.1f} ± {own['ReLU'].std:.1f}" if "ReLU" in own else ""
        leads = [own[name].over_relu if name in own else None for name in names if name != "ReLU"]
        last = own["GReLU"].over_b if "GReLU" in own else None
        lines[cell] = (relu, *map(marked, (*leads, last)))
    return lines


EXPERIMENT = Experiment(runs=SPLITS, quick_runs=2, collect=TABLE.collect, render=render)
