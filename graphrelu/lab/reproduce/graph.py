"""The paper's table of graph classification: a grid, and the chosen configurations repeated."""

from __future__ import annotations

from itertools import groupby, product
from typing import Any

from graphrelu.lab.data.splits import NUM_FOLDS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, GRAPH_BACKBONES, GRAPH_DATASETS, graph_cell
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import files, shown
from graphrelu.lab.reproduce.table import GridTable, Pair, Place, Row, beside_paper

# Hidden units and layers; a quick run has one small network.
POINTS = ((32, 3), (64, 3))
QUICK_POINTS, QUICK_GRAPHS = ((16, 2),), "sets:graphs=100,nodes=10"


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The first point of the grid for all cells comes first, then the second."""
    points = QUICK_POINTS if dataset == QUICK_GRAPHS else POINTS
    return {
        ((dataset, backbone), (name, point)): graph_cell(dataset, backbone, name, *point, **changes)
        for point, backbone, name in product(points, GRAPH_BACKBONES, ACTIVATIONS)
    }


def values(row: Row) -> dict[str, Any]:
    """What was chosen, and the paper's number."""
    layers = {"layers": dict(row.config.backbone_options)["layers"]}
    return layers | beside_paper("graph_classification", row)


def page(rows: list[Row]) -> dict[str, Any]:
    head = ("backbone", "activation", "chosen", "ours", "paper", "difference", "GReLU - ReLU", "p")
    datasets = []
    for dataset, part in groupby(rows, key=lambda row: row.dataset):
        lines = []
        for row, best in shown.with_best(part, lambda row: row.backbone):
            line = shown.line(row, best)
            lines.append((*line[:2], f"{row['hidden']} x {row['layers']}", *line[2:]))
        datasets.append(f"## {label(dataset)}\n\n{files.table(head, lines, numbers=3)}")
    return {"datasets": "\n".join(datasets)}


TABLE = GridTable(
    name="graph",
    datasets=GRAPH_DATASETS,
    cells=cells,
    runs=4 * NUM_FOLDS,
    quick_runs=NUM_FOLDS,
    tuning=tuple(range(NUM_FOLDS)),  # the first assignment
    pairs=(Pair("over_relu", "grelu", "relu", only="grelu", family=lambda cell, name: None),),
    columns=("paper_mean", "paper_std", "difference", "over_relu", "hidden", "layers"),
    page=page,
    values=values,
    family="this table",
    quick=((QUICK_GRAPHS,), lambda place: place[0][1] == "gcn"),
)
