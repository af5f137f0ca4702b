"""Activations in strong networks: GCN, SAGE and GAT with settings that were tuned for ReLU.

The settings, and the scores to hold ReLU against, are those of `"Classic GNNs are Strong Baselines"
<https://arxiv.org/abs/2406.08993>`_, per graph and backbone; every activation gets the same.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab import data, stats
from graphrelu.lab.models.deep_backbones import DeepGNN
from graphrelu.lab.record.config import Config, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import label, marked
from graphrelu.lab.reproduce import deep
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.stats.comparison import Comparison, Scores, compared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE = 200  # epochs without a better validation score
RUNS = 10
FEWER_RUNS = {"computers": 5, "cs": 5, "physics": 5}  # the large graphs
DEPTHS = (2, 4, 8, 16)
DEPTH_GRAPHS = ("squirrel", "minesweeper")
QUICK: dict[str, Any] = {"epochs": 10, "hidden": 8}
TOLERANCE = 0.5  # points below the published mean, or one published standard deviation if larger

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {}),
    "PReLU": ("prelu", {}),
    "GELU": ("gelu", {}),
    "SiLU": ("silu", {}),
    "GReLU-B": ("grelu", VARIANTS["B"]),
    "GReLU": ("grelu", {}),
}
WIDER = "ReLU, wider"
# A graph without published settings takes those of a graph of its kind, and its metric.
LIKE = {"tolokers": "minesweeper", "actor": "squirrel"}


class Row(NamedTuple):
    """The tuned settings of one graph and backbone, and the published score in percent."""

    dataset: str
    backbone: str
    hidden: int
    layers: int
    dropout: float
    norm: str | None
    residual: bool
    linear_first: bool
    lr: float
    weight_decay: float
    epochs: int
    metric: str
    split: SplitName
    normalize_features: bool
    mean: float | None
    std: float | None

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        settings: dict[str, Any] = {
            "hidden": self.hidden,
            "layers": self.layers,
            "dropout": self.dropout,
            "norm": self.norm,
            "residual": self.residual,
            "linear_first": self.linear_first,
            "lr": self.lr,
            "weight_decay": self.weight_decay,
            "epochs": self.epochs,
            "metric": self.metric,
            "split": self.split,
            "normalize_features": self.normalize_features,
            "patience": PATIENCE,
            "activation_options": options,
        }
        if self.backbone == "gat":
            settings["backbone_options"] = {"heads": 1}
        return modern(self.dataset, self.backbone, activation, **(settings | changes))

    @property
    def cell(self) -> deep.Cell:
        return deep.Cell(self.dataset, self.backbone, self.layers)


@cache
def rows() -> tuple[Row, ...]:
    """The published rows whose graphs are known here, then the graphs without a row."""
    source = files("graphrelu.lab.record").joinpath("tuned_gnns.csv")
    found = [_row(line) for line in csv.DictReader(source.read_text().splitlines())]
    for name, like in LIKE.items():
        same = [row for row in found if row.dataset == like]
        found += [row._replace(dataset=name, mean=None, std=None) for row in same]
    return tuple(found)


def _row(line: dict[str, str]) -> Row:
    masks = line["split"] == "published masks"
    few = line["split"].startswith("20 per class")
    return Row(
        dataset=line["dataset"],
        backbone=line["backbone"],
        hidden=int(line["hidden"]),
        layers=int(line["layers"]),
        dropout=float(line["dropout"]),
        norm=None if line["norm"] == "none" else line["norm"],
        residual=line["residual"] == "yes",
        linear_first=line["linear_first"] == "yes",
        lr=float(line["lr"]),
        weight_decay=float(line["weight_decay"]),
        epochs=int(line["epochs"]),
        metric={"acc": "accuracy", "rocauc": "rocauc"}[line["metric"]],
        split="masks" if masks else "random" if few else "full",
        normalize_features=not (masks or few),
        mean=float(line["mean"]),
        std=float(line["std"]),
    )


def depth_rows() -> list[Row]:
    """GCN with its tuned settings on two graphs, with other numbers of layers."""
    return [
        row._replace(layers=layers, mean=None, std=None)
        for row in rows()
        if row.dataset in DEPTH_GRAPHS and row.backbone == "gcn"
        for layers in DEPTHS
        if layers != row.layers
    ]


def all_rows() -> tuple[Row, ...]:
    """Those of the table, those of the figure, and one for the embedded graph."""
    embedded = rows()[0]._replace(dataset="digits", mean=None, std=None)
    return (*rows(), *depth_rows(), embedded)


def wider(row: Row, features: int, classes: int) -> int:
    """The smallest width with which ReLU has as many parameters as GReLU at the row's width."""

    options: dict[str, Any] = {"heads": 1} if row.backbone == "gat" else {}

    def parameters(activation: str, hidden: int) -> int:
        network = DeepGNN(
            row.backbone,
            features,
            hidden,
            classes,
            activation,
            row.layers,
            row.norm,
            row.residual,
            row.linear_first,
            **options,
        )
        return sum(parameter.numel() for parameter in network.parameters())

    wanted, hidden = parameters("grelu", row.hidden), row.hidden
    while parameters("relu", hidden) < wanted:
        hidden += 1
    return hidden


def on_published_split(row: Row, **changes: Any) -> Config:
    """ReLU on the one split of the published score, to hold against that score."""
    return row.config("relu", {}, split="published", **changes)


def collect(request: Request) -> str:
    """Train what the record lacks."""
    datasets = request.datasets(*dict.fromkeys(row.dataset for row in rows()))
    wanted = [row for row in all_rows() if row.dataset in datasets]
    changes = QUICK if request.quick else {}
    by_runs: dict[int, list[Config]] = {}
    for row in wanted:
        runs = min(request.runs, FEWER_RUNS.get(row.dataset, request.runs))
        configs = by_runs.setdefault(runs, [])
        configs += [row.config(*own, **changes) for own in ACTIVATIONS.values()]
        if row.mean is not None and row.split == "random":
            configs.append(on_published_split(row, **changes))
        if row in rows() and not request.quick:
            graph = data.load(row.dataset, request.root)
            hidden = wider(row, graph.num_features, graph.num_classes)
            configs.append(row.config("relu", {}, hidden=hidden))
    finished = 0
    deadline = request.deadline()
    for runs, configs in sorted(by_runs.items(), reverse=True):
        if request.seconds is not None:  # those that are left of the whole
            request = replace(request, seconds=max(0.01, deadline - time.monotonic()))
        finished += len(train_missing(configs, request, range(runs)))
    total = sum(runs * len(configs) for runs, configs in by_runs.items())
    return standing(finished, total, request.out)


@dataclass(frozen=True)
class StrongRow:
    """One activation in one cell, in percent. The leads over one rival are a family for Holm's
    correction of the paired t-test."""

    dataset: str
    backbone: str
    layers: int
    hidden: int
    activation: str
    mean: float
    std: float
    n: int
    published_mean: float | None
    published_std: float | None
    over_relu: Comparison | None


def place_of(config: Config) -> tuple[Row, str] | None:
    """Row and activation of a run; none for runs of other experiments."""
    if not config.is_deep:
        return None
    changes: dict[str, Any] = {"epochs": config.epochs, "hidden": config.hidden}
    for row in [row for row in all_rows() if row.cell == deep.cell_of(config)]:
        for name, own in ACTIVATIONS.items():
            if config == row.config(*own, **changes):
                is_wider = config.epochs == row.epochs and config.hidden != row.hidden
                return row, WIDER if is_wider else name
    return None


def strong_rows(results: Iterable[Result]) -> list[StrongRow]:
    """A line for each row of settings and each activation."""
    found: dict[Row, dict[str, Scores]] = {}
    widths: dict[tuple[Row, str], int] = {}
    place = cache(place_of)
    for result in results:
        if (where := place(result.config)) is not None:
            found.setdefault(where[0], {}).setdefault(where[1], {})[result.seed] = result.score
            widths[where] = result.config.hidden
    order = [row for row in all_rows() if row in found]
    names = [*ACTIVATIONS, WIDER]
    over_relu = {
        name: compared(
            {row: (found[row].get(name, {}), found[row].get("ReLU", {})) for row in order},
            test="ttest",
        )
        for name in names
        if name != "ReLU"
    }
    made = []
    for row in order:
        for name in [name for name in names if name in found[row]]:
            own = stats.summary([100 * score for score in found[row][name].values()])
            lead = over_relu.get(name, {}).get(row)
            width = widths[row, name]
            made.append(
                StrongRow(*row.cell, width, name, own.mean, own.std, own.n, row.mean, row.std, lead)
            )
    return made


def check(results: Sequence[Result]) -> str:
    """Whether ReLU reaches the published scores here, on the published splits where known."""
    known, below = 0, []
    for row in [row for row in rows() if row.mean is not None]:
        relu = on_published_split(row) if row.split == "random" else row.config("relu", {})
        scores = [100 * result.score for result in results if result.config == relu]
        if scores and row.mean is not None:
            known += 1
            gap = fmean(scores) - row.mean
            if gap < -max(TOLERANCE, row.std or 0):
                below.append(f"{label(row.dataset)}-{label(row.backbone)} ({gap:+.1f})")
    return (
        f"ReLU is no more than {TOLERANCE} points, or one published standard deviation if that is "
        f"more, below the published mean in {known - len(below)} of {known} rows"
        f"{'; below in ' + ', '.join(below) if below else ''}. The published scores on Cora, "
        "CiteSeer and PubMed are for one random split, and ReLU is held against them on that split;"
        " those on Photo, Computers, CS and Physics are for one split that is not at hand, and "
        "ReLU's are means over other splits."
    )


NOTES = """\
Test scores in percent (ROC AUC on Minesweeper and Tolokers, accuracy elsewhere) at the epoch of the
best validation score. The settings are those that were published for ReLU on each graph, the same
for every activation; training stops after 200 epochs without a better validation score. Tolokers
has the settings of Minesweeper, Actor those of Squirrel. Leads over ReLU are paired by split; *
marks what is significant (paired t-test, 5 %, Holm's correction over the cells of a column). Splits
are the published ones on the graphs that have several, else random: 20 nodes per class on Cora,
CiteSeer and PubMed, 60 / 20 / 20 % on Photo, Computers, CS and Physics. *ReLU, wider* has as many
parameters as GReLU. GReLU-B is GReLU without topology.
"""


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure of depths."""
    results = Record(record).read()
    made = strong_rows(results)
    if not made:
        raise ValueError(f"{record} has no runs of these networks.")
    others = {row.cell for row in depth_rows()}
    table = [row for row in made if (row.dataset, row.backbone, row.layers) not in others]
    known = (*rows(), *depth_rows())
    protocol = {row.config(*own) for row in known for own in ACTIVATIONS.values()}
    protocol |= {on_published_split(row) for row in known if row.split == "random"}
    places = {result.config: place_of(result.config) for result in results}
    protocol |= {config for config, place in places.items() if place and place[1] == WIDER}
    used = [r for r in results if places[r.config] or r.config.split == "published"]
    page = [
        "# Strong networks\n",
        export.provenance(used, record.name, protocol) + "\n",
        NOTES,
        "## Are the networks as strong as published?\n",
        check(results) + "\n",
        "## In short\n",
        _in_short(table),
        "## Every row\n",
        _table(table),
        "## Depth\n",
        "GCN with its tuned settings and other numbers of layers.\n",
        f"![Leads over ReLU by number of layers]({record.stem}.png)\n",
    ]
    return figures.write(record, "\n".join(page), made, StrongRow, lambda: _figure(made))


def _in_short(made: Sequence[StrongRow]) -> str:
    lines = []
    for name in [*ACTIVATIONS, WIDER]:
        leads = [row.over_relu for row in made if row.activation == name and row.over_relu]
        if leads:
            outcomes = [lead.outcome for lead in leads]
            counts = [str(outcomes.count(o)) for o in ("better", "undecided", "worse")]
            lines.append((name, f"{fmean(lead.difference for lead in leads):+.2f}", *counts))
    head = ("activation", "mean lead", "better", "undecided", "worse")
    return export.table(head, lines, numbers=1)


def _table(made: Sequence[StrongRow]) -> str:
    others = [name for name in (*ACTIVATIONS, WIDER) if name != "ReLU"]
    lines = []
    for cell in dict.fromkeys((row.dataset, row.backbone, row.layers) for row in made):
        own = {r.activation: r for r in made if (r.dataset, r.backbone, r.layers) == cell}
        first = next(iter(own.values()))
        published = ""
        if first.published_mean is not None:
            published = f"{first.published_mean:.1f} ± {first.published_std:.1f}"
        relu = f"{own['ReLU'].mean:.1f} ± {own['ReLU'].std:.1f}" if "ReLU" in own else ""
        leads = [marked(own[name].over_relu) if name in own else "" for name in others]
        lines.append((deep.Cell(*cell).title, published, relu, *leads))
    return export.table(("cell", "published", "ReLU", *others), lines, numbers=1)


def _figure(made: Sequence[StrongRow]) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(DEPTH_GRAPHS), figsize=(7.5, 3.2))
    for ax, dataset in zip(axes, DEPTH_GRAPHS, strict=True):
        several = [row for row in made if (row.dataset, row.backbone) == (dataset, "gcn")]
        names = dict.fromkeys(row.activation for row in several if row.over_relu is not None)
        for name, style in zip(names, figures.line_styles(), strict=False):
            own = sorted((row.layers, row) for row in several if row.activation == name)
            figures.draw_leads(ax, [(n, row.over_relu) for n, row in own], style | {"label": name})
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(title=label(dataset), xlabel="layers", ylabel="lead over ReLU (points)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


EXPERIMENT = Experiment(runs=RUNS, quick_runs=3, collect=collect, render=render)
