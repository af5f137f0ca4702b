"""Activations in strong networks: GCN, SAGE and GAT with settings that were tuned for ReLU.

The settings, and the scores to hold ReLU against, are those of `"Classic GNNs are Strong Baselines"
<https://arxiv.org/abs/2406.08993>`_, per graph and backbone; every activation gets the same.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from graphrelu.lab import data
from graphrelu.lab.models.backbones import DeepGNN
from graphrelu.lab.record.config import Config, SplitName
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce import deep
from graphrelu.lab.reproduce.experiment import (
    Experiment,
    Place,
    Request,
    Table,
    filled,
    standing,
    train_missing,
)
from graphrelu.lab.reproduce.held_out import is_held_out

PATIENCE = 200  # epochs without a better validation score
RUNS = 10
FEWER_RUNS = {"computers": 5, "cs": 5, "physics": 5}  # the large graphs
DEPTHS = (2, 4, 8, 16)
DEPTH_GRAPHS = ("squirrel", "minesweeper")
TOLERANCE = 0.5  # points below the published mean, or one published standard deviation if larger

OPTIONS: dict[str, dict[str, Any]] = {"sage": {"add_self_loops": True}, "gat": {"heads": 1}}

ACTIVATIONS = deep.ACTIVATIONS
WIDER, PUBLISHED = "ReLU, wider", "ReLU, published split"
NAMES = (*ACTIVATIONS, WIDER)
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
        names = ("dataset", "backbone", "mean", "std")
        settings = {key: value for key, value in self._asdict().items() if key not in names}
        settings |= {"patience": PATIENCE, "activation_options": options}
        settings["backbone_options"] = OPTIONS.get(self.backbone, {})
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
    """The rows of the table and of the figure, and a row for the embedded graph."""
    embedded = rows()[0]._replace(dataset="digits", mean=None, std=None)
    return (*rows(), *depth_rows(), embedded)


def wider(row: Row, features: int, classes: int) -> int:
    """The smallest width for which ReLU has as many parameters as GReLU at the row's width."""

    def parameters(activation: str, hidden: int) -> int:
        names = ("layers", "norm", "residual", "linear_first")
        options = {name: getattr(row, name) for name in names} | OPTIONS.get(row.backbone, {})
        network = DeepGNN(row.backbone, features, hidden, classes, activation, **options)
        return sum(parameter.numel() for parameter in network.parameters())

    wanted, hidden = parameters("grelu", row.hidden), row.hidden
    while parameters("relu", hidden) < wanted:
        hidden += 1
    return hidden


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every activation in every network on a graph. Where the published score is for one random
    split, ReLU has that split, too."""
    found = {}
    for row in [row for row in all_rows() if row.dataset == dataset]:
        for name, own in ACTIVATIONS.items():
            found[row.cell, name] = row.config(*own, **changes)
        if row.mean is not None and row.split == "random":
            found[row.cell, PUBLISHED] = row.config("relu", {}, split="published", **changes)
    return found


class StrongTable(Table):
    """A table in which ReLU has another width, too: the width depends on the graph's features."""

    def place(self, config: Config) -> Place | None:
        """Cell and name of a run; none for runs of other tables."""
        place = super().place(config)
        if place is None and config.is_deep and config.activation == "relu":
            for row in all_rows():
                if config == row.config("relu", {}, hidden=config.hidden):
                    return row.cell, WIDER
        return place

    def protocol(self, results: Sequence[Result]) -> set[Config]:
        """The full settings, with those of the wider networks on record."""
        places = {result.config: self.place(result.config) for result in results}
        wide = {config for config, place in places.items() if place and place[1] == WIDER}
        return super().protocol(results) | wide


TABLE = StrongTable(
    "strong", "of these networks", tuple(dict.fromkeys(row.dataset for row in rows())), cells
)


def collect(request: Request) -> str:
    """Train the missing runs."""
    configs = TABLE.wanted(request.datasets(*TABLE.datasets), **request.changes)
    wanted = list(configs.values())
    for row in [] if request.quick else rows():
        graph = data.load(row.dataset, request.root)
        hidden = wider(row, graph.num_features, graph.num_classes)
        wanted.append(row.config("relu", {}, hidden=hidden))
    runs = {c: range(min(request.runs, FEWER_RUNS.get(c.dataset, request.runs))) for c in wanted}
    return standing(*train_missing(runs, request), request.out)


@dataclass(frozen=True)
class StrongRow(deep.DeepRow):
    """The same with the width, and with the published score of ReLU."""

    hidden: int
    published_mean: float | None
    published_std: float | None


def strong_rows(results: Sequence[Result]) -> list[StrongRow]:
    """A line for each row of settings and each activation, the figure's other depths last. The
    table and the other depths are corrected each for itself."""
    found, settings = TABLE.scores(results), {row.cell: row for row in all_rows()}
    splits = TABLE.splits(results)
    depths = {row.cell: found.pop(row.cell) for row in depth_rows() if row.cell in found}
    widths = {TABLE.place(result.config): result.config.hidden for result in results}
    return [
        StrongRow(
            **vars(row),
            hidden=widths[row.cell, row.activation],
            published_mean=settings[row.cell].mean,
            published_std=settings[row.cell].std,
        )
        for cells in (found, depths)
        for row in deep.rows_of(cells, NAMES, splits)
    ]


def of_table(made: Sequence[StrongRow]) -> list[StrongRow]:
    """Without the figure's other depths."""
    others = {row.cell for row in depth_rows()}
    return [row for row in made if row.cell not in others]


def check(results: Sequence[Result]) -> str:
    """Whether ReLU reaches the published scores here, on the published splits where known."""
    known, below = 0, []
    found = TABLE.scores(results, lambda run: 100 * run.score)
    for row in rows():
        scores = found.get(row.cell, {}).get(PUBLISHED if row.split == "random" else "ReLU")
        if scores and row.mean is not None:
            known += 1
            gap = fmean(scores.values()) - row.mean
            if gap < -max(TOLERANCE, row.std or 0):
                below.append(f"{label(row.dataset)}-{label(row.backbone)} ({gap:+.1f})")
    return (
        f"ReLU is no more than {TOLERANCE} points, or one published standard deviation if that is "
        f"more, below the published mean in {known - len(below)} of {known} rows"
        f"{'; below in ' + ', '.join(below) if below else ''}. The published scores on Cora, "
        "CiteSeer and PubMed are for one random split, and ReLU is held against them on that split;"
        " those on Photo, Computers, CS and Physics are for one split that is not at hand, and "
        "ReLU's are means over other splits. A plain loop of PyG's layers, with the same settings "
        "and without an early stop, came to the same scores as here on Cora, CiteSeer and PubMed "
        "(GCN) and Computers (SAGE): neither the engine nor the early stop is the reason."
    )


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure of depths."""
    results = TABLE.read(record)
    made = strong_rows(results)
    table = of_table(made)
    page = TABLE.text(
        *(results, record),
        rule=deep.rule_of(table),
        not_run=_not_run(table),
        check=check(results),
        in_short=_in_short(table),
        rows=_table(table),
    )
    if table == made:
        return figures.write(record, page, made, StrongRow)
    page += filled("strong_depth", figure=f"{record.stem}.png")
    return figures.write(record, page, made, StrongRow, lambda: _figure(made))


def _not_run(table: Sequence[StrongRow]) -> str:
    """What is empty in a table that has been begun."""
    found = {(row.cell, row.activation) for row in table}
    lacking = {row.cell: [n for n in NAMES if (row.cell, n) not in found] for row in rows()}
    if all(len(names) == len(NAMES) for names in lacking.values()):
        return ""
    missing = [f"{cell.title} ({' / '.join(names)})" for cell, names in lacking.items() if names]
    return f"Not run yet: {'; '.join(missing)}.\n" if missing else ""


def _in_short(made: Sequence[StrongRow]) -> str:
    lines = []
    for graphs, held_out in {"held out": True, "tuning graphs": False}.items():
        part = [row for row in made if is_held_out(row.dataset) == held_out]
        for name in NAMES:
            own = [row.over_relu for row in part if row.activation == name]
            lines += [(graphs, name, *line) for line in deep.tally(own)]
    return export.table(("graphs", "activation", *deep.TALLY), lines, numbers=2)


def _table(made: Sequence[StrongRow]) -> str:
    published = {
        row.cell: f"{row.published_mean:.1f} ± {row.published_std:.1f}"
        for row in made
        if row.published_mean is not None
    }
    lines = [
        (cell.title, published.get(cell, ""), *line)
        for cell, line in deep.lead_lines(made, NAMES).items()
    ]
    head = ("cell", "published", *NAMES, "GReLU - GReLU-B")
    return export.table(head, lines, numbers=1)


def _figure(made: Sequence[StrongRow]) -> figures.Figure:
    figure, (axes,) = figures.panels(1, len(DEPTH_GRAPHS), figsize=(7.5, 3.2))
    for ax, dataset in zip(axes, DEPTH_GRAPHS, strict=True):
        several = [row for row in made if (row.dataset, row.backbone) == (dataset, "gcn")]
        shown = dict.fromkeys(row.activation for row in several if row.over_relu is not None)
        names = [name for name in shown if name in ACTIVATIONS]
        for name, style in zip(names, figures.line_styles(), strict=False):
            own = sorted((row.layers, row) for row in several if row.activation == name)
            figures.draw_leads(ax, [(n, row.over_relu) for n, row in own], style | {"label": name})
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(title=label(dataset), xlabel="layers", ylabel="lead over ReLU (points)")
    figures.shared_legend(figure, axes[:1], loc="outside upper center", ncols=6)
    return figure


EXPERIMENT = Experiment(runs=RUNS, quick_runs=2, collect=collect, render=render)
