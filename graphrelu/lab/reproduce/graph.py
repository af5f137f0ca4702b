"""The paper's table of graph classification: a grid, and the chosen configurations repeated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, product
from typing import Any

from graphrelu.lab.data.splits import NUM_FOLDS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, GRAPH_BACKBONES, GRAPH_DATASETS, graph_cell
from graphrelu.lab.render import export, findings
from graphrelu.lab.render.findings import Observation, papers_lead
from graphrelu.lab.render.tables import label, signed
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.grid import GridTable
from graphrelu.lab.reproduce.table import Found, Pair, Place, Row, beside_paper

# Hidden units and layers; a quick run has one small network.
POINTS = ((32, 3), (64, 3))
QUICK_POINTS, QUICK_GRAPHS = ((16, 2),), "sets:graphs=100,nodes=10"


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The first point of the grid for all cells comes first, then the second: wherever training
    stops, all cells have nearly the same points."""
    points = QUICK_POINTS if dataset == QUICK_GRAPHS else POINTS
    return {
        ((dataset, backbone), (name, point)): graph_cell(dataset, backbone, name, *point, **changes)
        for point, backbone, name in product(points, GRAPH_BACKBONES, ACTIVATIONS)
    }


def values(row: Row) -> dict[str, Any]:
    """What was chosen, and the paper's number."""
    layers = {"layers": dict(row.config.backbone_options)["layers"]}
    return layers | beside_paper("graph_classification", row)


def observations(rows: Sequence[Row]) -> list[Observation]:
    """GReLU against ReLU, each with the chosen configuration."""
    leads = [row["over_relu"] for row in rows if row["over_relu"] is not None]
    cells = product(GRAPH_DATASETS, GRAPH_BACKBONES)
    papers = [papers_lead("graph_classification", *cell) for cell in cells]
    figure = f"{signed(min(papers))} to {signed(max(papers))} points"
    claim = "GReLU is ahead of ReLU in graph classification"
    return [findings.ahead(claim, figure, leads)]


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    head = ("backbone", "activation", "chosen", "ours", "paper", "difference", "GReLU - ReLU", "p")
    datasets = []
    for dataset, part in groupby(rows, key=lambda row: row.dataset):
        lines = []
        for row, best in shown.with_best(part, lambda row: row.backbone):
            line = shown.line(row, best)
            lines.append((*line[:2], f"{row['hidden']} x {row['layers']}", *line[2:]))
        datasets.append(f"## {label(dataset)}\n\n{export.table(head, lines, numbers=3)}")
    return {
        "claims_rule": findings.RULE,
        "findings": findings.to_markdown(observations(rows)),
        "datasets": "\n".join(datasets),
    }


TABLE = GridTable(
    name="graph",
    datasets=GRAPH_DATASETS,
    cells=cells,
    runs=4 * NUM_FOLDS,
    quick_runs=NUM_FOLDS,
    tuning=tuple(range(NUM_FOLDS)),  # the first assignment
    pairs=(Pair("over_relu", "grelu", "relu", only="grelu", family=lambda cell, name: None),),
    columns=("paper_mean", "paper_std", "difference", "over_relu", "hidden", "layers", "tried"),
    page=page,
    values=values,
    family="this table",
    quick=((QUICK_GRAPHS,), lambda place: place[0][1] == "gcn"),
)
