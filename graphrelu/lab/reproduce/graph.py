"""The paper's table of graph classification: a grid, and the chosen configurations repeated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby, product
from statistics import fmean
from typing import Any

from graphrelu.lab.choice import fold_choices, fold_point
from graphrelu.lab.cli.options import standing
from graphrelu.lab.data.splits import NUM_FOLDS
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_GRIDS,
    GraphAxes,
    graph_cell,
)
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, findings
from graphrelu.lab.render.findings import Observation, in_all, papers_lead, several
from graphrelu.lab.render.tables import in_order, label, signed
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.table import (
    Found,
    Pair,
    Place,
    Request,
    Row,
    Table,
    beside_paper,
    filled,
    train_missing,
)

# The points that are run, of those of the protocol; a quick run has one small network.
POINTS = GraphAxes((32, 64), (3,))
QUICK_POINTS, QUICK_GRAPHS = GraphAxes((16,), (2,)), "digit-graphs"
PROTOCOLS = ("folds", "gin_folds")  # gin_paper is on record, but no longer trained
POSITION = in_order(*GRAPH_DATASETS, *GRAPH_BACKBONES, *ACTIVATIONS)


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """The first point of a protocol's grid for all cells comes first, then the second, and so on:
    wherever training stops, all cells of a protocol have nearly the same points."""
    found: dict[Place, Config] = {}
    axes = QUICK_POINTS if dataset == QUICK_GRAPHS else POINTS
    for protocol in PROTOCOLS:
        for hidden, layers, dropout in product(*axes):
            for backbone, name in product(GRAPH_BACKBONES, ACTIVATIONS):
                settings = {"split": protocol, "dropout": dropout} | changes
                config = graph_cell(dataset, backbone, name, hidden, layers, **settings)
                found[(dataset, backbone, protocol), (name, fold_point(config))] = config
    return found


class GraphTable(Table):
    """The rows are those of the configurations that the activations chose."""

    def place(self, config: Config) -> Place | None:
        """Of any point, whichever grid it is from."""
        if config.split not in FOLD_SPLITS:
            return None
        cell = (config.dataset, config.backbone, config.split)
        return cell, (config.activation, fold_point(config))

    def chosen(self, request: Request) -> dict[Place, Config]:
        if "gin_paper" in request.only.get("split", ()):
            raise ValueError("The GIN paper's own networks (gin_paper) are no longer trained.")
        return super().chosen(request)

    def collect(self, request: Request) -> str:
        """Train every configuration on the first fold assignment, and the chosen ones on more."""
        if request.runs % NUM_FOLDS:
            raise ValueError(f"runs must be a multiple of {NUM_FOLDS}, not {request.runs}.")
        wanted = list(self.chosen(request).values())
        of_table = {_names(config) for config in wanted}
        seeds, more = range(NUM_FOLDS), range(NUM_FOLDS, request.runs)
        finished, total = train_missing(dict.fromkeys(wanted, seeds), request)
        if finished == total and more:
            # Chosen from all runs on record, as in the table.
            choices = fold_choices(Record(request.out).read()).values()
            configs = [c for _, own in choices for c in own.values() if _names(c) in of_table]
            finished += train_missing(dict.fromkeys(configs, more), request)[0]
        return standing(finished, total + len(more) * len(of_table), request.out)

    def rows(self, results: Iterable[Result]) -> list[Row]:
        results = list(results)
        by_config: dict[Config, dict[int, Result]] = {}
        for run in results:
            by_config.setdefault(run.config, {})[run.seed] = run
        chosen = fold_choices(results)
        found = {
            cell: {name: by_config[config] for name, config in configs.items()}
            for cell, (_, configs) in chosen.items()
        }
        leads = self.leads(found, self.pairs[0])
        rows = []
        for cell, own in found.items():
            for name, runs in own.items():
                row = Row(cell, name, runs, {"over_relu": leads.get((cell, name))})
                hidden, layers, dropout = fold_point(row.config)
                row.values |= {"hidden": hidden, "layers": layers, "dropout": dropout}
                row.values |= {"protocol": cell[2], "points": chosen[cell][0].points}
                row.values["tried"] = len(row["points"])
                row.values |= beside_paper("graph_classification", row)
                rows.append(row)
        protocols = list(FOLD_SPLITS)
        return sorted(
            rows, key=lambda r: (protocols.index(r.cell[2]), POSITION((*r.cell[:2], r.name)))
        )

    def protocol(self, results: Sequence[Result]) -> set[Config]:
        return {result.config for result in results}  # any point, and any number of epochs


def _names(config: Config) -> tuple[str, ...]:
    return config.split, config.dataset, config.backbone, config.activation


def _chosen(row: Row) -> str:
    """The chosen point; the dropout, where there are several to choose from."""
    several = len(GRAPH_GRIDS[row["protocol"]].dropout) > 1
    dropout = f", dropout {row['dropout']:g}" if several else ""
    return f"{row['hidden']} x {row['layers']}{dropout}"


def grid_sentence(rows: Sequence[Row]) -> str:
    """A sentence on which points of a protocol's grid were tried."""
    grid = GRAPH_GRIDS[rows[0]["protocol"]]
    full = len(list(product(*grid)))
    tried = list(dict.fromkeys(row["points"] for row in rows))
    if len(tried) > 1:
        number = f"{min(map(len, tried))} to {max(map(len, tried))}"
        return f"Each cell chose from {number} of the {full} configurations of the grid."
    axes = [sorted(set(axis)) for axis in zip(*tried[0], strict=True)]
    listed = (
        f"{name} {{{', '.join(f'{value:g}' for value in axis)}}}"
        for name, axis, whole in zip(GraphAxes._fields, axes, grid, strict=True)
        if name == "layers" or len(whole) > 1
    )
    return (
        f"Chosen from {' x '.join(listed)}, "
        f"{len(tried[0]) if len(tried[0]) < full else 'all'} of the {full} configurations of the "
        "grid, the same for every activation."
    )


def print_sentences(rows: Sequence[Row]) -> str:
    """Whether the printed numbers come out; the printed means are over one run for each fold."""

    def sentence(what: str, rows: Sequence[Row]) -> str:
        beside = [
            (row["difference"], row["paper_std"] / math.sqrt(NUM_FOLDS))
            for row in rows
            if row["difference"] is not None
        ]
        if not beside:
            return ""
        out = sum(abs(difference) <= 2 * error for difference, error in beside)
        differences = [difference for difference, _ in beside]
        return (
            f"{what}: our mean lies within two standard errors of the printed one in {out} of "
            f"{len(beside)} cells; the differences go from {signed(min(differences))} to "
            f"{signed(max(differences))} points, {signed(fmean(differences))} in the mean.\n"
        )

    relu = [row for row in rows if row.name == "relu"]
    others = [row for row in rows if row.name != "relu"]
    return sentence("ReLU, as in the GIN paper", relu) + sentence("The other activations", others)


def observations(results: Sequence[Result]) -> list[Observation]:
    """GReLU against ReLU by the paper's protocol, each with the chosen configuration."""
    rows = TABLE.rows(result for result in results if result.config.split == "folds")
    leads = [row["over_relu"] for row in rows if row["over_relu"] is not None]
    papers = [
        papers_lead("graph_classification", *cell)
        for cell in product(GRAPH_DATASETS, GRAPH_BACKBONES)
    ]
    figure = f"{signed(min(papers))} to {signed(max(papers))} points"
    claim = "GReLU is ahead of ReLU in graph classification"
    return [Observation(claim, figure, in_all(leads), several(leads))]


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    head = ("backbone", "activation", "chosen", "ours", "paper", "difference", "GReLU - ReLU", "p")
    protocols = []
    for protocol, group in groupby(rows, key=lambda row: row["protocol"]):
        own = list(group)
        datasets = []
        for dataset, part in groupby(own, key=lambda row: row.dataset):
            lines = []
            for row, best in shown.with_best(part, lambda row: row.backbone):
                line = shown.line(row, best)
                lines.append((*line[:2], _chosen(row), *line[2:]))
            datasets.append(f"### {label(dataset)}\n\n{export.table(head, lines, numbers=3)}")
        leads = [(row.dataset, row["over_relu"]) for row in own]
        few = shown.too_few(lead for _, lead in leads)
        printed = print_sentences(own) if protocol == "gin_paper" else ""
        protocols += filled(
            f"graph_{protocol}",
            rule=findings.rule("this table", leads),
            epochs=" or ".join(map(str, sorted({row.config.epochs for row in own}))),
            grid=f"{grid_sentence(own)}\n{printed}{few}",
            datasets="\n".join(datasets),
        )
    return {"protocols": "\n".join(protocols)}


TABLE = GraphTable(
    name="graph",
    what="of graph classification",
    datasets=GRAPH_DATASETS,
    cells=cells,
    runs=4 * NUM_FOLDS,
    quick_runs=NUM_FOLDS,
    pairs=(Pair("over_relu", "grelu", "relu", only="grelu", family=lambda cell, name: cell[2]),),
    columns=(
        *("paper_mean", "paper_std", "difference", "over_relu"),
        *("protocol", "hidden", "layers", "dropout", "tried"),
    ),
    page=page,
    quick=((QUICK_GRAPHS,), lambda place: place[0][1:] == ("gcn", "folds")),
)
