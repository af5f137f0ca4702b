"""GReLU in networks as people train them: four to ten layers, norm, skips, all labels.

The study in :mod:`graphrelu.lab.reproduce.study` chose GReLU's default on some of these graphs; the
others confirm the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab.models.activations import ACTIVATIONS as MODULES
from graphrelu.lab.record.config import Config, Metric, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import in_order, label, marked, percent
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.stats.comparison import Comparison, Scores, leads_over

BACKBONES = ("gcn", "sage", "gat")
SPLITS = 10


class Protocol(NamedTuple):
    """How a graph is split, and by what it is scored."""

    split: SplitName
    metric: Metric = "accuracy"


# The published splits where there are some, else 60 / 20 / 20 % of every class.
GRAPHS = {
    "squirrel": Protocol("masks"),
    "minesweeper": Protocol("masks", "rocauc"),
    "photo": Protocol("full"),
    "chameleon": Protocol("masks"),
    "tolokers": Protocol("masks", "rocauc"),
    "actor": Protocol("masks"),
    "computers": Protocol("full"),
    "cs": Protocol("full"),
    "physics": Protocol("full"),
}
CHOOSING = ("squirrel", "minesweeper", "photo")  # the graphs of the study
DEEPER = [(d, b) for d in ("squirrel", "minesweeper") for b in ("gcn", "sage")]  # ten layers, too
LAYERS, MORE_LAYERS = 4, 10
PATIENCE = 100  # epochs without a better validation score
QUICK = {"epochs": 30}

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
        split, metric = GRAPHS.get(self.dataset, Protocol("full"))
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
    """Train what the record lacks."""
    datasets = request.datasets(*GRAPHS)
    changes = QUICK if request.quick else {}
    configs = [
        cell.config(activation, options, **changes)
        for cell in cells(datasets)
        for activation, options in ACTIVATIONS.values()
    ]
    finished = train_missing(configs, request)
    return standing(len(finished), len(configs) * request.runs, request.out)


@dataclass(frozen=True)
class DeepRow:
    """One activation in one cell, in percent. The leads over one rival are a family for Holm's
    correction of the paired t-test."""

    dataset: str
    backbone: str
    layers: int
    activation: str
    mean: float
    std: float
    n: int
    over_relu: Comparison | None
    over_b: Comparison | None


@cache
def name_of(config: Config) -> str | None:
    """The name of a configuration's activation; none for configurations of other experiments."""
    if config.is_deep:
        cell = cell_of(config)
        for name, (activation, options) in ACTIVATIONS.items():
            if config == cell.config(activation, options, epochs=config.epochs):
                return name
    return None


def scores(results: Iterable[Result]) -> dict[Cell, dict[str, Scores]]:
    """Cell -> activation -> test scores."""
    found: dict[Cell, dict[str, Scores]] = {}
    for result in results:
        if name := name_of(result.config):
            own = found.setdefault(cell_of(result.config), {}).setdefault(name, {})
            own[result.seed] = result.score
    position = in_order(*GRAPHS, *BACKBONES)
    return {cell: found[cell] for cell in sorted(found, key=lambda c: (position(c[:2]), c.layers))}


def deep_rows(results: Sequence[Result]) -> list[DeepRow]:
    """A row for each cell and activation."""
    found = scores(results)
    over_relu = {
        name: leads_over(found, name, "ReLU", "ttest") for name in ACTIVATIONS if name != "ReLU"
    }
    over_b = leads_over(found, "GReLU", "GReLU-B", "ttest")
    rows = []
    for cell, own in found.items():
        for name in [name for name in ACTIVATIONS if name in own]:
            mean, std, _, n = percent(own[name])
            lead = over_relu.get(name, {}).get(cell)
            ahead = over_b.get(cell) if name == "GReLU" else None
            rows.append(DeepRow(*cell, name, mean, std, n, lead, ahead))
    return rows


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
    results = Record(record).required(lambda c: name_of(c) is not None, "of these networks")
    rows = deep_rows(results)
    protocol = [cell.config(*own) for cell in cells() for own in ACTIVATIONS.values()]
    page = [
        "# Networks as people train them\n",
        export.provenance(results, record.name, protocol) + "\n",
        NOTES,
        "## In short\n",
        _in_short(rows),
        "## Every cell\n",
        _table(rows),
    ]
    return figures.write(record, "\n".join(page), rows, DeepRow)


def _in_short(rows: Sequence[DeepRow]) -> str:
    """The mean lead of each activation over ReLU, and the cells where it is ahead or behind."""
    chose = [row for row in rows if row.dataset in CHOOSING]
    confirm = [row for row in rows if row.dataset not in CHOOSING]
    lines = []
    groups = {"all": rows, "those that chose": chose, "those that confirm": confirm}
    for graphs, part in groups.items():
        for name in ACTIVATIONS:
            own = [row.over_relu for row in part if row.activation == name]
            lines += _tally(graphs, name, str(_parameters(name)), own)
        lines += _tally(graphs, "GReLU over GReLU-B", "", [row.over_b for row in part])
    head = ("graphs", "activation", "parameters", "mean lead", "better", "undecided", "worse")
    return export.table(head, lines, numbers=2)


def _tally(
    graphs: str, name: str, parameters: str, leads: Iterable[Comparison | None]
) -> list[tuple[str, ...]]:
    """The line of one activation; none without leads."""
    found = [lead for lead in leads if lead is not None]
    if not found:
        return []
    mean = f"{fmean(lead.difference for lead in found):+.2f}"
    outcomes = [lead.outcome for lead in found]
    counts = (str(outcomes.count(outcome)) for outcome in ("better", "undecided", "worse"))
    return [(graphs, name, parameters, mean, *counts)]


def _parameters(name: str) -> int:
    """The number of parameters of an activation with 64 channels."""
    activation, options = ACTIVATIONS[name]
    module = MODULES[activation](64, **options)
    return sum(parameter.numel() for parameter in module.parameters())


def _table(rows: Sequence[DeepRow]) -> str:
    by_cell: dict[Cell, dict[str, DeepRow]] = {}
    for row in rows:
        cell = Cell(row.dataset, row.backbone, row.layers)
        by_cell.setdefault(cell, {})[row.activation] = row
    others = [name for name in ACTIVATIONS if name != "ReLU"]
    lines = []
    for cell, own in by_cell.items():
        relu = f"{own['ReLU'].mean:.1f} ± {own['ReLU'].std:.1f}" if "ReLU" in own else ""
        found = [marked(own[name].over_relu) if name in own else "" for name in others]
        last = marked(own["GReLU"].over_b) if "GReLU" in own else ""
        lines.append((cell.title, relu, *found, last))
    return export.table(("cell", "ReLU", *others, "GReLU - GReLU-B"), lines, numbers=1)


EXPERIMENT = Experiment(runs=SPLITS, quick_runs=3, collect=collect, render=render)
