"""Activations in strong networks: GCN, SAGE and GAT with settings that were tuned for ReLU.

The settings, and the scores to hold ReLU against, are those of `"Classic GNNs are Strong Baselines"
<https://arxiv.org/abs/2406.08993>`_, per graph and backbone; every activation gets the same.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any, NamedTuple

from graphrelu.lab import data
from graphrelu.lab.models.backbones import DeepGNN
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce import deep, shown
from graphrelu.lab.reproduce.table import Found, Pair, Place, Request, Row, Runs, Table, filled

PATIENCE = 200  # epochs without a better validation score
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


class Settings(NamedTuple):
    """The tuned settings of one graph and backbone, and the published score in percent."""

    cell: deep.Cell
    settings: dict[str, Any]
    mean: float | None = None
    std: float | None = None

    def config(self, activation: str, options: dict[str, Any], **changes: Any) -> Config:
        dataset, backbone, layers = self.cell
        own = {"layers": layers, "patience": PATIENCE, "activation_options": options}
        own["backbone_options"] = OPTIONS.get(backbone, {})
        return modern(dataset, backbone, activation, **(self.settings | own | changes))

    def of(self, cell: deep.Cell) -> Settings:
        """The same settings elsewhere, without a published score."""
        return Settings(cell, self.settings)


@cache
def settings() -> tuple[Settings, ...]:
    """The published rows whose graphs are known here, then the graphs without a row."""
    source = files("graphrelu.lab.record").joinpath("tuned_gnns.csv")
    found = [_settings(line) for line in csv.DictReader(source.read_text().splitlines())]
    for name, like in LIKE.items():
        same = [row for row in found if row.cell.dataset == like]
        found += [row.of(row.cell._replace(dataset=name)) for row in same]
    return tuple(found)


def _settings(line: dict[str, str]) -> Settings:
    masks = line["split"] == "published masks"
    few = line["split"].startswith("20 per class")
    return Settings(
        deep.Cell(line["dataset"], line["backbone"], int(line["layers"])),
        {
            "hidden": int(line["hidden"]),
            "dropout": float(line["dropout"]),
            "norm": None if line["norm"] == "none" else line["norm"],
            "residual": line["residual"] == "yes",
            "linear_first": line["linear_first"] == "yes",
            "lr": float(line["lr"]),
            "weight_decay": float(line["weight_decay"]),
            "epochs": int(line["epochs"]),
            "metric": {"acc": "accuracy", "rocauc": "rocauc"}[line["metric"]],
            "split": "masks" if masks else "random" if few else "full",
            "normalize_features": not (masks or few),
        },
        float(line["mean"]),
        float(line["std"]),
    )


@cache
def depths() -> dict[deep.Cell, Settings]:
    """GCN with its tuned settings on two graphs, with other numbers of layers: the figure's."""
    found = [
        row.of(row.cell._replace(layers=layers))
        for row in settings()
        if row.cell.dataset in DEPTH_GRAPHS and row.cell.backbone == "gcn"
        for layers in DEPTHS
        if layers != row.cell.layers
    ]
    return {row.cell: row for row in found}


@cache
def all_rows() -> dict[deep.Cell, Settings]:
    """The rows of the table and of the figure, and a row for the embedded graph."""
    first = settings()[0]
    embedded = first.of(first.cell._replace(dataset="digits"))
    return {row.cell: row for row in (*settings(), *depths().values(), embedded)}


def wider(row: Settings, features: int, classes: int) -> int:
    """The smallest width for which ReLU has as many parameters as GReLU at the row's width."""
    options = {name: row.settings[name] for name in ("norm", "residual", "linear_first")}
    options |= OPTIONS.get(row.cell.backbone, {}) | {"layers": row.cell.layers}

    def parameters(activation: str, hidden: int) -> int:
        network = DeepGNN(row.cell.backbone, features, hidden, classes, activation, **options)
        return sum(parameter.numel() for parameter in network.parameters())

    hidden = row.settings["hidden"]
    wanted = parameters("grelu", hidden)
    while parameters("relu", hidden) < wanted:
        hidden += 1
    return int(hidden)


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every activation in every network on a graph. Where the published score is for one random
    split, ReLU has that split, too."""
    found: dict[Place, Config] = {}
    for cell, row in all_rows().items():
        if cell.dataset == dataset:
            found |= {
                (cell, name): row.config(*own, **changes) for name, own in ACTIVATIONS.items()
            }
            if row.mean is not None and row.settings["split"] == "random":
                found[cell, PUBLISHED] = row.config("relu", {}, split="published", **changes)
    return found


class StrongTable(Table):
    """A table in which ReLU has another width, too: the width depends on the graph's features. The
    figure's other depths are rows of their own, last, and corrected for themselves."""

    def place(self, config: Config) -> Place | None:
        """Cell and name of a run; none for runs of other tables."""
        layers = dict(config.backbone_options).get("layers")
        row = all_rows().get(deep.Cell(config.dataset, config.backbone, int(layers or 0)))
        if row and config.hidden > row.settings["hidden"]:
            is_wider = config == row.config("relu", {}, hidden=config.hidden)
            return (row.cell, WIDER) if is_wider else None
        return super().place(config)

    def plan(self, request: Request) -> Runs:
        """Large graphs have fewer runs."""
        wanted = self.chosen(request)
        configs = list(wanted.values())
        known = {place[0] for place in wanted}
        for row in [row for row in settings() if row.cell in known and not request.quick]:
            graph = data.load(row.cell.dataset, request.root)
            hidden = wider(row, graph.num_features, graph.num_classes)
            configs.append(row.config("relu", {}, hidden=hidden))
        most = request.runs
        return {c: range(min(most, FEWER_RUNS.get(c.dataset, most))) for c in configs}

    def rows(self, results: Iterable[Result]) -> list[Row]:
        made = [row for row in super().rows(results) if row.name != PUBLISHED]
        return sorted(made, key=lambda row: row.cell in depths())

    def protocol(self, results: Sequence[Result]) -> set[Config]:
        """The full settings, with those of the wider networks on record."""
        places = {run.config: self.place(run.config) for run in results}
        wide = {config for config, place in places.items() if place and place[1] == WIDER}
        return super().protocol(results) | wide


def of_table(rows: Iterable[Row]) -> list[Row]:
    """Without the figure's other depths."""
    return [row for row in rows if row.cell not in depths()]


def values(row: Row) -> dict[str, Any]:
    own = all_rows()[row.cell]
    widths = {"layers": row.cell.layers, "hidden": row.config.hidden}
    return widths | {"published_mean": own.mean, "published_std": own.std}


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    table = of_table(rows)
    lines = []
    for cell, line in deep.lead_lines(table, NAMES).items():
        row = all_rows()[cell]
        published = "" if row.mean is None else f"{row.mean:.1f} ± {row.std:.1f}"
        lines.append((cell.title, published, *line))
    head = ("cell", "published", *NAMES, "GReLU - GReLU-B")
    in_short = deep.in_short(table, NAMES)
    return {
        "not_run": _not_run(table),
        "check": check(all_runs),
        "in_short": export.table(("graphs", "activation", *shown.TALLY), in_short, numbers=2),
        "rows": export.table(head, lines, numbers=1),
        "depth": "" if table == rows else filled("strong_depth", figure="strong.png")[0],
    }


def check(found: Found) -> str:
    """In how many rows ReLU reaches the published score, on the published split where known."""
    known, below = 0, []
    for cell, row in all_rows().items():
        name = PUBLISHED if row.settings["split"] == "random" else "ReLU"
        runs = found.get(cell, {}).get(name)
        if runs and row.mean is not None:
            known += 1
            gap = fmean(100 * run.score for run in runs.values()) - row.mean
            if gap < -max(TOLERANCE, row.std or 0):
                below.append(f"{label(cell.dataset)}-{label(cell.backbone)} ({gap:+.1f})")
    which = f"; below in {', '.join(below)}" if below else ""
    return (
        f"ReLU is no more than {TOLERANCE} points, or one published standard deviation if that is "
        f"more, below the published mean in {known - len(below)} of {known} rows{which}."
    )


def _not_run(table: Sequence[Row]) -> str:
    """What is empty in a table that has been begun."""
    found = shown.by_cell(table)
    lacking = {
        row.cell: [n for n in NAMES if n not in found.get(row.cell, ())] for row in settings()
    }
    missing = [f"{cell.title} ({' / '.join(names)})" for cell, names in lacking.items() if names]
    return f"Not run yet: {'; '.join(missing)}.\n" if missing else ""


def draw(rows: Sequence[Row]) -> figures.Figure | None:
    """The leads by number of layers, once there are other depths than the table's."""
    if of_table(rows) == rows:
        return None
    figure, (axes,) = figures.panels(1, len(DEPTH_GRAPHS), figsize=(7.5, 3.2))
    for ax, dataset in zip(axes, DEPTH_GRAPHS, strict=True):
        several = [row for row in rows if row.cell[:2] == (dataset, "gcn")]
        led = dict.fromkeys(row.name for row in several if row["over_relu"] is not None)
        names = [name for name in led if name in ACTIVATIONS]
        for name, style in zip(names, figures.line_styles(), strict=False):
            own = [row for row in several if row.name == name]
            own.sort(key=lambda row: row.cell.layers)
            leads = [(row.cell.layers, row["over_relu"]) for row in own]
            figures.draw_leads(ax, leads, style | {"label": name})
        ax.axhline(0, color="black", linewidth=0.8)
        ax.set(title=label(dataset), xlabel="layers", ylabel="lead over ReLU (points)")
    figures.shared_legend(figure, axes[:1], loc="outside upper center", ncols=6)
    return figure


def _family(cell: Any, name: Any) -> Any:
    """The table and the other depths are corrected each for itself."""
    return name, cell in depths()


TABLE = StrongTable(
    name="strong",
    what="of these networks",
    datasets=tuple(dict.fromkeys(row.cell.dataset for row in settings())),
    cells=cells,
    runs=10,
    quick_runs=2,
    pairs=(
        Pair("over_relu", None, "ReLU", family=_family),
        Pair("over_b", None, "GReLU-B", only="GReLU", family=_family),
    ),
    columns=("layers", "over_relu", "over_b", "hidden", "published_mean", "published_std"),
    page=page,
    values=values,
    figure=draw,
)
