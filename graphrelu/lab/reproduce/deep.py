"""GReLU in networks as people train them: four to ten layers, norm, skips, all labels.

The study in :mod:`graphrelu.lab.reproduce.study` chose GReLU's default on some of these graphs; the
others confirm the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from graphrelu.grelu import VARIANTS
from graphrelu.lab.models.activations import ACTIVATIONS as MODULES
from graphrelu.lab.record.config import Config, Metric, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import ScoreRow, in_order, label, marked, percent
from graphrelu.lab.reproduce.experiment import Experiment, Request, trained
from graphrelu.lab.stats.comparison import Comparison, Scores, leads_over

Place = TypeVar("Place")
Name = TypeVar("Name")

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
CHOOSING = ("squirrel", "minesweeper", "photo")  # the graphs of the study
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


def cell_of(config: Config) -> Cell:
    return Cell(config.dataset, config.backbone, int(str(dict(config.backbone_options)["layers"])))


def cells(datasets: Sequence[str] = tuple(GRAPHS)) -> list[Cell]:
    """All cells of some graphs."""
    return [
        Cell(dataset, backbone, layers)
        for dataset in datasets
        for backbone in BACKBONES
        for layers in ((LAYERS, MORE_LAYERS) if (dataset, backbone) in DEEPER else (LAYERS,))
    ]


def collect(request: Request) -> str:
    """Train the missing runs."""
    configs = [
        cell.config(*own, **request.changes)
        for cell in cells(request.datasets(*GRAPHS))
        for own in ACTIVATIONS.values()
    ]
    return trained(configs, request)


@dataclass(frozen=True)
class DeepRow(ScoreRow):
    """One activation in one cell. The leads over one rival are a family for Holm's correction of
    the paired t-test."""

    layers: int
    over_relu: Comparison | None
    over_b: Comparison | None

    @property
    def cell(self) -> Cell:
        return Cell(self.dataset, self.backbone, self.layers)


@cache
def place_of(config: Config) -> tuple[Cell, str] | None:
    """Cell and activation of a run; none for runs of other experiments."""
    if config.is_deep:
        cell = cell_of(config)
        for name, own in ACTIVATIONS.items():
            if config == cell.config(*own, epochs=config.epochs):
                return cell, name
    return None


def gathered(
    results: Iterable[Result],
    place_of: Callable[[Config], tuple[Place, Name] | None],
    score_of: Callable[[Result], float] = attrgetter("score"),
) -> dict[Place, dict[Name, Scores]]:
    """Cell -> activation -> scores, of the runs that have a place."""
    found: dict[Place, dict[Name, Scores]] = {}
    for result in results:
        if (place := place_of(result.config)) is not None:
            own = found.setdefault(place[0], {}).setdefault(place[1], {})
            own[result.seed] = score_of(result)
    return found


def deep_rows(results: Iterable[Result]) -> list[DeepRow]:
    """A row for each cell and activation."""
    position = in_order(*GRAPHS, *BACKBONES)
    found = gathered(results, place_of)
    order = sorted(found, key=lambda cell: (position(cell[:2]), cell.layers))
    return rows_of({cell: found[cell] for cell in order}, tuple(ACTIVATIONS))


def rows_of(found: Mapping[Cell, Mapping[str, Scores]], names: Sequence[str]) -> list[DeepRow]:
    """The rows of these cells, their activations in this order."""
    over_relu = {name: leads_over(found, name, "ReLU", "ttest") for name in names if name != "ReLU"}
    over_b = {"GReLU": leads_over(found, "GReLU", "GReLU-B", "ttest")}
    return [
        DeepRow(
            *(cell.dataset, cell.backbone, name, *percent(own[name]), cell.layers),
            *(leads.get(name, {}).get(cell) for leads in (over_relu, over_b)),
        )
        for cell, own in found.items()
        for name in names
        if name in own
    ]


NOTES = """\
Test scores in percent (ROC AUC on Minesweeper and Tolokers, accuracy elsewhere) at the epoch of the
best validation score, means over splits. Every network has 64 units, linear skips and dropout 0.2;
LayerNorm with four layers, BatchNorm with ten. Adam has learning rate 0.003 and at most 400 epochs,
and stops after 100 epochs without a better validation score. All activations have the same
settings. The columns after ReLU are leads over ReLU in points, paired by split; * marks a
significant lead (paired t-test, 5 %, Holm's correction over the cells of a column). GReLU-B is
GReLU without topology.
"""


def render(record: Path) -> list[Path]:
    """A page, and the same as CSV."""
    results = Record(record).required(lambda c: place_of(c) is not None, "of these networks")
    rows = deep_rows(results)
    protocol = [cell.config(*own) for cell in cells() for own in ACTIVATIONS.values()]
    head = ("cell", *ACTIVATIONS, "GReLU - GReLU-B")
    page = [
        "# Networks as people train them\n",
        export.provenance(results, record, protocol),
        NOTES,
        "## In short\n",
        _in_short(rows),
        "## Every cell\n",
        export.table(head, [(c.title, *line) for c, line in lead_lines(rows).items()], numbers=1),
    ]
    return figures.write(record, page, rows, DeepRow)


def _in_short(rows: Sequence[DeepRow]) -> str:
    """The mean lead of each activation over ReLU, and the number of cells ahead and behind."""
    chose = [row for row in rows if row.dataset in CHOOSING]
    confirm = [row for row in rows if row.dataset not in CHOOSING]
    lines = []
    groups = {"all": rows, "those that chose": chose, "those that confirm": confirm}
    for graphs, part in groups.items():
        for name in ACTIVATIONS:
            own = [row.over_relu for row in part if row.activation == name]
            lines += [(graphs, name, str(_parameters(name)), *line) for line in tally(own)]
        over_b = tally(row.over_b for row in part)
        lines += [(graphs, "GReLU over GReLU-B", "", *line) for line in over_b]
    return export.table(("graphs", "activation", "parameters", *TALLY), lines, numbers=2)


TALLY = ("mean lead", "better", "undecided", "worse")


def tally(leads: Iterable[Comparison | None]) -> list[tuple[str, ...]]:
    """The mean lead, and the cells by outcome: one line, or none without leads."""
    found = [lead for lead in leads if lead is not None]
    if not found:
        return []
    outcomes: list[str] = [lead.outcome for lead in found]
    mean = f"{fmean(lead.difference for lead in found):+.2f}"
    return [(mean, *(str(outcomes.count(outcome)) for outcome in TALLY[1:]))]


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


EXPERIMENT = Experiment(runs=SPLITS, quick_runs=2, collect=collect, render=render)
