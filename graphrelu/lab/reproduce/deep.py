"""GReLU in networks as people train them: four to ten layers, norm, skips, all labels.

The graphs, backbones and depths here are those of :mod:`graphrelu.lab.reproduce.study`, whose
choice is the default: some chose it, the others confirm it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab import stats
from graphrelu.lab.models.activations import ACTIVATIONS as MODULES
from graphrelu.lab.record import output
from graphrelu.lab.record.config import Config, Metric, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.render.tables import label, marked
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.stats.comparison import Comparison, Scores, compared

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
CHOOSING = ("squirrel", "minesweeper", "photo")  # those that the study looked at
DEEPER = [  # also with ten layers
    (dataset, backbone) for dataset in ("squirrel", "minesweeper") for backbone in ("gcn", "sage")
]
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
    """What is the same for all activations."""

    dataset: str
    backbone: str
    layers: int

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        split, metric = GRAPHS.get(self.dataset, Protocol("full"))
        # With LayerNorm, ten layers may stay on the plateau where they start, with ReLU as well.
        norm = "batch" if self.layers == MORE_LAYERS else "layer"
        return modern(
            self.dataset,
            self.backbone,
            activation,
            layers=self.layers,
            norm=norm,
            split=split,
            metric=metric,
            activation_options=options,
            **{"patience": PATIENCE, **changes},
        )

    @property
    def title(self) -> str:
        return f"{label(self.dataset)}, {label(self.backbone)}, {self.layers} layers"


def cell_of(config: Config) -> Cell:
    return Cell(config.dataset, config.backbone, int(str(dict(config.backbone_options)["layers"])))


def cells(datasets: Sequence[str] = tuple(GRAPHS)) -> list[Cell]:
    """All cells of some graphs, those of one graph and backbone together."""
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
    """The activation's name on the page; none for what has no place there."""
    for name, (activation, options) in ACTIVATIONS.items():
        if config == cell_of(config).config(activation, options, epochs=config.epochs):
            return name
    return None


def scores(results: Iterable[Result]) -> dict[Cell, dict[str, Scores]]:
    """Cell -> activation -> test scores."""
    found: dict[Cell, dict[str, Scores]] = {}
    for result in results:
        if result.config.is_deep and (name := name_of(result.config)):
            own = found.setdefault(cell_of(result.config), {}).setdefault(name, {})
            own[result.seed] = result.score
    return {cell: found[cell] for cell in sorted(found, key=_place)}


def _place(cell: Cell) -> tuple[int, int, int]:
    known = list(GRAPHS)
    place = known.index(cell.dataset) if cell.dataset in known else len(known)
    return place, BACKBONES.index(cell.backbone), cell.layers


def leads(
    found: Mapping[Cell, Mapping[str, Scores]], first: str, rival: str
) -> dict[Cell, Comparison]:
    """How far one activation is ahead of another in every cell, corrected together."""
    pairs = {cell: (own.get(first, {}), own.get(rival, {})) for cell, own in found.items()}
    return compared(pairs, test="ttest")


def deep_rows(results: Sequence[Result]) -> list[DeepRow]:
    """A row for each cell and activation."""
    found = scores(results)
    over_relu = {name: leads(found, name, "ReLU") for name in ACTIVATIONS if name != "ReLU"}
    over_b = leads(found, "GReLU", "GReLU-B")
    rows = []
    for cell, own in found.items():
        for name in [name for name in ACTIVATIONS if name in own]:
            lead = over_relu.get(name, {}).get(cell)
            ahead = over_b.get(cell) if name == "GReLU" else None
            rows.append(DeepRow(*cell, name, *_summary(own[name]), lead, ahead))
    return rows


def _summary(own: Scores) -> tuple[float, float, int]:
    found = stats.summary([100 * score for score in own.values()])
    return found.mean, found.std, found.n


NOTES = """\
Test scores in percent (ROC AUC on Minesweeper and Tolokers, accuracy elsewhere) at the epoch of
the best validation score, means over splits. Every network has 64 units, linear skips and dropout
0.2; LayerNorm with four layers, BatchNorm with ten; Adam with learning rate 0.003, at most 400
epochs, and 100 without a better validation score; the same for every activation. The columns after
ReLU are leads over it in points, paired by split; * marks what is significant (paired t-test, 5 %,
Holm's correction over the cells of a column). GReLU-B is GReLU without topology.
"""


def render(record: Path) -> list[Path]:
    """A page, and the same as CSV."""
    results = [result for result in Record(record).read() if result.config.is_deep]
    rows = deep_rows(results)
    if not rows:
        raise ValueError(f"{record} has no runs of these networks.")
    page, csv = (output.check_file(record.with_suffix(ending)) for ending in (".md", ".csv"))
    output.write_text(page, document(results, rows, record))
    output.write_text(csv, export.to_csv(rows, DeepRow))
    return [page, csv]


def document(results: Sequence[Result], rows: Sequence[DeepRow], record: Path) -> str:
    """Everything about a record on one page."""
    protocol = [
        cell.config(activation, options)
        for cell in cells()
        for activation, options in ACTIVATIONS.values()
    ]
    parts = [
        "# Networks as people train them\n",
        export.provenance(results, record.name, protocol) + "\n",
        NOTES,
        "## In short\n",
        _in_short(rows),
        "## Every cell\n",
        _table(rows),
    ]
    return "\n".join(parts)


def _in_short(rows: Sequence[DeepRow]) -> str:
    """Of each activation the mean lead over ReLU, and in how many cells it is ahead or behind."""
    lines = []
    for title, own in _groups(rows):
        for name in ACTIVATIONS:
            found = [r.over_relu for r in own if r.activation == name and r.over_relu is not None]
            if found:
                lines.append((title, name, str(_parameters(name)), *tally(found)))
        found = [row.over_b for row in own if row.over_b is not None]
        if found:
            lines.append((title, "GReLU over GReLU-B", "", *tally(found)))
    head = ("graphs", "activation", "parameters", "mean lead", "better", "undecided", "worse")
    return export.table(head, lines, numbers=2)


def tally(found: Sequence[Comparison]) -> tuple[str, ...]:
    """The mean lead, and the cells that are significantly better, undecided and worse."""
    outcomes = [lead.outcome for lead in found]
    counts = (str(outcomes.count(outcome)) for outcome in ("better", "undecided", "worse"))
    return (f"{fmean(lead.difference for lead in found):+.2f}", *counts)


def _groups(rows: Sequence[DeepRow]) -> list[tuple[str, list[DeepRow]]]:
    chose = [row for row in rows if row.dataset in CHOOSING]
    confirm = [row for row in rows if row.dataset not in CHOOSING]
    groups = [("all", list(rows)), ("those that chose", chose), ("those that confirm", confirm)]
    return [(title, own) for title, own in groups if own]


def _parameters(name: str) -> int:
    """Of one activation of 64 channels."""
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
