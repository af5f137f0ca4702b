"""The paper's main table, node classification, and the figure of the leads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, product
from typing import Any

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, recipe
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import figures, files, shown
from graphrelu.lab.reproduce.table import Pair, Place, Row, Table, beside_paper

CHECKED_DATASETS = ("cora", "citeseer", "pubmed")
CHECKED_ACTIVATIONS = ("relu", "lrelu", "elu", "prelu")
SOURCE = "node_classification"  # of the paper's numbers


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every backbone and activation on a graph, with the paper's settings."""
    return {
        ((dataset, backbone), name): recipe(dataset, backbone, name, **changes)
        for backbone, name in product(BACKBONES, ACTIVATIONS)
    }


def page(rows: list[Row]) -> dict[str, Any]:
    return {
        "tallies": shown.tallies(rows, "grelu_over_it"),
        "loss_tallies": shown.tallies(rows, "grelu_below_it", "lower mean"),
        "protocol_check": protocol_check(rows),
        "graphs": "\n".join(
            f"## {label(dataset)}\n\n{_graph(part)}"
            for dataset, part in groupby(rows, key=lambda row: row.dataset)
        ),
    }


def _graph(rows: Iterable[Row]) -> str:
    lines = [shown.line(row, best) for row, best in shown.with_best(rows, lambda row: row.cell)]
    head = ("backbone", "activation", "ours", "paper", "difference", "GReLU - ReLU", "p")
    return files.table(head, lines, numbers=3)


def checked(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The baselines on the citation graphs that lie within one published standard deviation, and
    the others."""
    within: list[Row] = []
    others: list[Row] = []
    for row in rows:
        is_checked = row.dataset in CHECKED_DATASETS and row.name in CHECKED_ACTIVATIONS
        if is_checked and row["difference"] is not None:
            # A deviation of exactly one counts, despite rounding.
            is_within = abs(row["difference"]) <= row["paper_std"] + 1e-9
            (within if is_within else others).append(row)
    return within, others


def protocol_check(rows: Iterable[Row]) -> str:
    """Whether the baselines repeat the paper's numbers: a sentence, and the cells that deviate."""
    within, others = checked(rows)
    if not within + others:
        return "None of these cells is one of the baselines on the citation graphs.\n"
    names = ", ".join(map(label, CHECKED_ACTIVATIONS))
    said = (
        f"In {len(within)} of {len(within + others)} cells of {names} on the citation graphs, our "
        "mean lies within one published standard deviation of the paper's."
    )
    if not others:
        return f"{said}\n"
    head = ("dataset", "backbone", "activation", "ours", "paper", "difference")
    lines = [(label(row.dataset), *shown.line(row)[:5]) for row in others]
    return f"{said} The others:\n\n{files.table(head, lines, numbers=3)}"


def draw(rows: Sequence[Row]) -> figures.Figure:
    """One panel for each graph, one line for each backbone: the lead and its interval."""
    leads = [row for row in rows if row["over_relu"] is not None]
    datasets = list(dict.fromkeys(row.dataset for row in leads))
    count = max(1, len(datasets))
    figure, axes = figures.panels(1, count, figsize=(2 * count, 2.3), sharex=True, sharey=True)
    for axis, dataset in zip(axes[0], datasets, strict=False):
        of_graph = [row for row in leads if row.dataset == dataset]
        for row in of_graph:
            lead, place = row["over_relu"], BACKBONES.index(row.backbone)
            if lead.low is not None:
                axis.plot((lead.low, lead.high), (place, place), color="black", linewidth=1)
            style = {"markersize": 5, "markerfacecolor": "black" if lead.differs else "white"}
            axis.plot(lead.difference, place, marker="o", color="black", **style)
        seeds = " or ".join(map(str, sorted({row.n for row in of_graph})))
        axis.set_title(f"{label(dataset)}, {seeds} seeds")
        axis.axvline(0, color="black", linewidth=0.8, linestyle="--", zorder=0)
    axes[0][0].set_yticks(range(len(BACKBONES)), map(label, BACKBONES))
    axes[0][0].invert_yaxis()
    figure.supxlabel(
        "GReLU - ReLU, points of test accuracy (intervals that hold together with 95 %, paired by "
        "seed; filled: better or worse)",
        fontsize=9,
    )
    return figure


TABLE = Table(
    name="node",
    datasets=NODE_DATASETS,
    cells=cells,
    runs=10,
    quick_runs=3,
    pairs=(
        Pair("over_relu", "grelu", "relu", only="grelu"),
        Pair("grelu_over_it", "grelu", None),
        # By the cross-entropy on the test nodes.
        Pair("grelu_below_it", "grelu", None, value=lambda run: -run.test_loss, margin=0.0),
    ),
    columns=("paper_mean", "paper_std", "difference", "over_relu"),
    page=page,
    values=lambda row: beside_paper(SOURCE, row),
    figure=draw,
    family="the table",
)
