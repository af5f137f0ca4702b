"""The paper's table of graph classification: a grid, and the chosen configurations repeated."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.data.folds import NUM_FOLDS
from graphrelu.lab.record import recipes
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, GRAPH_GRIDS, GraphAxes
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import figures, findings, tables
from graphrelu.lab.render.export import provenance, table, table_line
from graphrelu.lab.render.findings import Observation, in_all, papers_lead, several
from graphrelu.lab.render.tables import label, signed
from graphrelu.lab.reproduce.experiment import Request, filled, standing, train_missing
from graphrelu.lab.stats import comparison
from graphrelu.lab.stats.comparison import Scores
from graphrelu.lab.stats.decision import Decision
from graphrelu.lab.stats.splits import splits_of

REPEATS = 3

Cell: TypeAlias = tuple[str, str, str]  # protocol, dataset, backbone
Point: TypeAlias = tuple[int, int, float]  # of the grid: hidden units, layers, dropout


class Choice(NamedTuple):
    """The configuration chosen for each activation of a cell, from the same points of the grid."""

    points: tuple[Point, ...]
    configs: dict[str, Config]


@dataclass(frozen=True)
class GraphRow(tables.NodeRow):
    """One cell of the table beside the paper's, with the protocol and the chosen configuration.

    ``tried`` counts the points of the grid. GReLU's rows have its lead over ReLU, with Holm's
    correction over all cells of the protocol.
    """

    protocol: str
    hidden: int
    layers: int
    dropout: float
    tried: int

    @property
    def chosen(self) -> str:
        dropout = f", dropout {self.dropout:g}" if "dropout" in _axes(self.protocol) else ""
        return f"{self.hidden} x {self.layers}{dropout}"


def _axes(protocol: str) -> tuple[str, ...]:
    """The names of the grid's axes; the dropout is one where there are several to choose from."""
    several = len(GRAPH_GRIDS[protocol].dropout) > 1
    return GraphAxes._fields if several else GraphAxes._fields[:-1]


def point(config: Config) -> Point:
    """A configuration's place in the grid."""
    return config.hidden, int(dict(config.backbone_options)["layers"] or 0), config.dropout


def choices(results: Iterable[Result]) -> dict[Cell, Choice]:
    """The configuration with the highest mean validation accuracy on the first ten folds; of
    equal ones, that with the lowest mean validation loss.

    All activations of a cell choose from the same points: those that each of them has finished.
    """
    runs: dict[Cell, dict[str, dict[Config, list[Result]]]] = {}
    for result in results:
        config = result.config
        if config.split in FOLD_SPLITS and result.seed < NUM_FOLDS:
            cell: Cell = (config.split, config.dataset, config.backbone)
            of_cell = runs.setdefault(cell, {}).setdefault(config.activation, {})
            of_cell.setdefault(config, []).append(result)
    found: dict[Cell, Choice] = {}
    for cell, by_activation in runs.items():
        _check_settings(cell, by_activation)
        finished = {
            name: {point(config): rs for config, rs in cells.items() if len(rs) == NUM_FOLDS}
            for name, cells in by_activation.items()
        }
        shared = sorted(set.intersection(*(set(points) for points in finished.values())))
        if shared:
            configs = {
                name: min((points[p] for p in shared), key=_rank)[0].config
                for name, points in finished.items()
            }
            found[cell] = Choice(tuple(shared), configs)
    return found


def _rank(runs: list[Result]) -> tuple[float, float]:
    loss = fmean(run.val_loss for run in runs)
    return -comparison.mean_validation(runs), loss if math.isfinite(loss) else math.inf


def _check_settings(cell: Cell, by_activation: dict[str, dict[Config, list[Result]]]) -> None:
    settings = [
        config.shared_settings | dict.fromkeys(("hidden", "backbone_options", "dropout"))
        for cells in by_activation.values()
        for config in cells
    ]
    if any(other != settings[0] for other in settings):
        raise ValueError(f"The runs of {' with '.join(cell[1:])} have different settings.")


@dataclass(frozen=True)
class GraphGrid:
    """The runs: every configuration on the first fold assignment, and the chosen configurations on
    ``repeats`` more assignments. ``None`` stands for the value of the protocol."""

    datasets: Sequence[str] = GRAPH_DATASETS
    backbones: Sequence[str] = GRAPH_BACKBONES
    activations: Sequence[str] = recipes.ACTIVATIONS
    hidden: Sequence[int] | None = None
    layers: Sequence[int] | None = None
    protocols: Sequence[str] = ("folds", "gin_folds")
    repeats: int = REPEATS
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.repeats < 0:
            raise ValueError(f"repeats must be a whole number from 0, not {self.repeats}.")

    @property
    def runs(self) -> int:
        """The runs of a chosen configuration."""
        return NUM_FOLDS * (1 + self.repeats)

    def small(self) -> GraphGrid:
        """The grid of a quick run: the embedded graphs, one width and depth, few epochs."""
        epochs = 1 if "gin_paper" in self.protocols else 20  # its epochs have 50 updates
        small = replace(self, hidden=(16,), layers=(2,), repeats=0, epochs=epochs)
        return replace(small, datasets=("digit-graphs",))

    def cells(self) -> list[Config]:
        """The first point of a protocol's grid for all cells comes first, then the second, and so
        on: wherever training stops, all cells of a protocol have nearly the same points."""
        names = [recipes.check_name("protocol", name, FOLD_SPLITS) for name in self.protocols]
        given: dict[str, Any] = {} if self.epochs is None else {"epochs": self.epochs}
        return [
            recipes.graph_cell(*cell, hidden, layers, split=name, dropout=dropout, **given)
            for name, own in ((name, GRAPH_GRIDS[name]) for name in names)
            for hidden, layers, dropout in product(
                self.hidden or own.hidden, self.layers or own.layers, own.dropout
            )
            for cell in product(self.datasets, self.backbones, self.activations)
        ]


def collect_graphs(grid: GraphGrid, request: Request) -> str:
    """Train the missing runs; return a sentence on how much is on record."""
    if request.quick:
        grid = grid.small()
    cells = grid.cells()
    of_table = set(map(_cell, cells))
    seeds, more_seeds = range(NUM_FOLDS), range(NUM_FOLDS, grid.runs)
    largest = {_cell(config): config for config in cells}.values()  # stand for the chosen ones
    then = dict.fromkeys(largest, more_seeds)
    finished, total = train_missing(dict.fromkeys(cells, seeds), request, then)
    if finished == total and grid.repeats:
        # Chosen from all runs on record, as in the table.
        chosen = [
            config
            for choice in choices(Record(request.out).read()).values()
            for config in choice.configs.values()
            if _cell(config) in of_table
        ]
        finished += train_missing(dict.fromkeys(chosen, more_seeds), request)[0]
    total += NUM_FOLDS * grid.repeats * len(of_table)
    return standing(finished, total, request.out)


def _cell(config: Config) -> tuple[str, ...]:
    return config.split, config.dataset, config.backbone, config.activation


def has_table(record: Path) -> bool:
    """Whether all activations of a cell have finished a point of the grid."""
    return bool(choices(Record(record).read()))


def graph_rows(results: Iterable[Result]) -> list[GraphRow]:
    """The table of every protocol, in the paper's order; the runs of all assignments count."""
    results = list(results)
    chosen = choices(results)
    scores: dict[Config, Scores] = {}
    for result in results:
        scores.setdefault(result.config, {})[result.seed] = result.score
    leads: dict[Cell, Decision] = {}
    for protocol in FOLD_SPLITS:
        own = {cell: choice.configs for cell, choice in chosen.items() if cell[0] == protocol}
        by_name = {
            cell: {name: scores[config] for name, config in configs.items()}
            for cell, configs in own.items()
        }
        splits = {
            cell: splits_of(config) for cell, configs in own.items() for config in configs.values()
        }
        leads |= comparison.leads_over(by_name, "grelu", "relu", splits)
    rows = [
        GraphRow(
            **tables.beside_paper("graph_classification", *cell[1:], name, scores[config]),
            over_relu=leads.get(cell) if name == "grelu" else None,
            protocol=cell[0],
            hidden=point(config)[0],
            layers=point(config)[1],
            dropout=config.dropout,
            tried=len(choice.points),
        )
        for cell, choice in chosen.items()
        for name, config in choice.configs.items()
    ]
    position = tables.in_order(
        *FOLD_SPLITS, *GRAPH_DATASETS, *GRAPH_BACKBONES, *recipes.ACTIVATIONS
    )
    return sorted(
        rows, key=lambda row: position((row.protocol, row.dataset, row.backbone, row.activation))
    )


def grid_sentence(protocol: str, chosen: Iterable[Choice]) -> str:
    """A sentence on which points of the grid were tried."""
    axes = _axes(protocol)
    tried = {tuple(place[: len(axes)] for place in choice.points) for choice in chosen}
    full = set(product(*GRAPH_GRIDS[protocol][: len(axes)]))
    whole = f"{_rectangle(axes, full)}, {len(full)} configurations"
    if all(set(points) == full for points in tried):
        return f"Chosen from the full grid: {whole}, the same for every activation."
    if len(tried) > 1:
        counts = sorted({len(points) for points in tried})
        how = f"{counts[0]} to {counts[-1]} points of it" if len(counts) > 1 else "parts of it"
        return (
            f"Chosen from a subset of the grid ({whole}): {how}, by cell; each activation of a "
            "cell was given the same."
        )
    (points,) = tried
    listed = [" x ".join(f"{value:g}" for value in place) for place in points]
    what = _rectangle(axes, points) or ", ".join(listed)
    return (
        f"Chosen from a subset of the grid: {what}, {len(points)} of the {len(full)} "
        f"configurations, the same for every activation."
    )


def _rectangle(names: Sequence[str], points: Collection[tuple[float, ...]]) -> str:
    """The axes of points that are all of their combinations; else empty."""
    axes = [sorted(set(axis)) for axis in zip(*points, strict=True)]
    if len(points) < math.prod(map(len, axes)):
        return ""
    listed = ["{" + ", ".join(f"{value:g}" for value in axis) + "}" for axis in axes]
    return " x ".join(f"{name} {values}" for name, values in zip(names, listed, strict=True))


def print_sentences(rows: Sequence[GraphRow]) -> str:
    """Whether the printed numbers come out; the printed means are over one run for each fold."""

    def sentence(what: str, rows: Sequence[GraphRow]) -> str:
        beside = [
            (row.difference, row.paper_std / math.sqrt(NUM_FOLDS))
            for row in rows
            if row.difference is not None and row.paper_std is not None
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

    relu = [row for row in rows if row.activation == "relu"]
    others = [row for row in rows if row.activation != "relu"]
    return sentence("ReLU, as in the GIN paper", relu) + sentence("The other activations", others)


def observations(results: Sequence[Result]) -> list[Observation]:
    """GReLU against ReLU by the paper's protocol, each with the chosen configuration."""
    rows = graph_rows(result for result in results if result.config.split == "folds")
    leads = [row.over_relu for row in rows if row.over_relu is not None]
    cells = product(GRAPH_DATASETS, GRAPH_BACKBONES)
    papers = [papers_lead("graph_classification", *cell) for cell in cells]
    figure = f"{signed(min(papers))} to {signed(max(papers))} points"
    claim = "GReLU is ahead of ReLU in graph classification"
    return [Observation(claim, figure, in_all(leads), several(leads))]


def render_graphs(record: Path) -> list[Path]:
    """Write ``.md`` and ``.csv`` beside the record, from all runs on record."""
    results = [r for r in Record(record).read() if r.config.split in FOLD_SPLITS]
    table_rows, chosen = graph_rows(results), choices(results)
    if not table_rows:
        raise ValueError(f"{record} has no configuration yet that all activations finished.")
    head = ("backbone", "activation", "chosen", "ours", "paper", "difference", "GReLU - ReLU", "p")
    protocols = []
    for protocol, group in groupby(table_rows, key=lambda row: row.protocol):
        rows = list(group)
        of_protocol = [choice for cell, choice in chosen.items() if cell[0] == protocol]
        epochs = {config.epochs for choice in of_protocol for config in choice.configs.values()}
        datasets = []
        for dataset, part in groupby(rows, key=lambda row: row.dataset):
            lines = []
            for row, best in tables.with_best(part, lambda row: row.backbone):
                line = table_line(row, best)
                lines.append((*line[:2], row.chosen, *line[2:]))
            datasets.append(f"### {label(dataset)}\n\n{table(head, lines, numbers=3)}")
        printed = print_sentences(rows) if protocol == "gin_paper" else ""
        rule = findings.rule("this table", ((row.dataset, row.over_relu) for row in rows))
        protocols += filled(
            f"graph_{protocol}",
            rule=rule,
            epochs=" or ".join(map(str, sorted(epochs))),
            grid=f"{grid_sentence(protocol, of_protocol)}\n{printed}{tables.caution(rows)}",
            datasets="\n".join(datasets),
        )
    origin = provenance(results, record)
    page = filled("graph", origin=origin, protocols="\n".join(protocols))
    return figures.write(record, page, table_rows, GraphRow)
