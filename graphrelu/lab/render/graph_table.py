"""Graph classification: from runs to the chosen configurations and the rows of the table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TypeAlias

from graphrelu.lab.data.folds import NUM_FOLDS
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_HIDDEN,
    GRAPH_LAYERS,
)
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import NodeRow, beside_paper, in_order
from graphrelu.lab.stats.comparison import (
    Comparison,
    Scores,
    leads_over,
    mean_validation,
    shared_settings,
)

Cell: TypeAlias = tuple[str, str, str]  # protocol, dataset, backbone
Point: TypeAlias = tuple[int, int]  # of the grid: hidden units, layers


@dataclass(frozen=True)
class Choice:
    """The configuration chosen for each activation of a cell, from the same points of the grid."""

    points: tuple[Point, ...]
    configs: dict[str, Config]


@dataclass(frozen=True)
class GraphRow(NodeRow):
    """One cell of the table beside the paper's, with the protocol and the chosen configuration.

    ``tried`` counts the points of the grid. GReLU's rows have its lead over ReLU, with Holm's
    correction over all cells of the protocol.
    """

    protocol: str
    hidden: int
    layers: int
    tried: int


def point(config: Config) -> Point:
    """A configuration's place in the grid."""
    return config.hidden, int(dict(config.backbone_options)["layers"] or 0)


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
    return -mean_validation(runs), loss if math.isfinite(loss) else math.inf


def _check_settings(cell: Cell, by_activation: dict[str, dict[Config, list[Result]]]) -> None:
    settings = [
        shared_settings(config) | {"hidden": None, "backbone_options": None}
        for cells in by_activation.values()
        for config in cells
    ]
    if any(other != settings[0] for other in settings):
        raise ValueError(f"The runs of {' with '.join(cell[1:])} have different settings.")


def graph_rows(results: Iterable[Result]) -> list[GraphRow]:
    """The table of both protocols, in the paper's order; the runs of all assignments count."""
    results = list(results)
    chosen = choices(results)
    scores: dict[Config, Scores] = {}
    for result in results:
        scores.setdefault(result.config, {})[result.seed] = result.score
    leads: dict[Cell, Comparison] = {}
    for protocol in FOLD_SPLITS:
        own = {cell: choice.configs for cell, choice in chosen.items() if cell[0] == protocol}
        by_name = {
            cell: {name: scores[config] for name, config in configs.items()}
            for cell, configs in own.items()
        }
        leads |= leads_over(by_name, "grelu", "relu")
    rows = [
        GraphRow(
            **beside_paper("graph_classification", *cell[1:], name, scores[config]),
            over_relu=leads.get(cell) if name == "grelu" else None,
            protocol=cell[0],
            hidden=point(config)[0],
            layers=point(config)[1],
            tried=len(choice.points),
        )
        for cell, choice in chosen.items()
        for name, config in choice.configs.items()
    ]
    position = in_order(*FOLD_SPLITS, *GRAPH_DATASETS, *GRAPH_BACKBONES, *ACTIVATIONS)
    return sorted(
        rows, key=lambda row: position((row.protocol, row.dataset, row.backbone, row.activation))
    )


def grid_sentence(chosen: Iterable[Choice]) -> str:
    """Which points of the grid were tried, and whether that is all of it."""
    tried = {choice.points for choice in chosen}
    full = set(product(GRAPH_HIDDEN, GRAPH_LAYERS))
    whole = f"{_rectangle(full)}, {len(full)} configurations"
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
    what = _rectangle(points) or ", ".join(f"{hidden} x {layers}" for hidden, layers in points)
    return (
        f"Chosen from a subset of the grid: {what}, {len(points)} of the {len(full)} "
        f"configurations, the same for every activation."
    )


def _rectangle(points: Collection[Point]) -> str:
    """The axes of points that are all of their combinations; else empty."""
    hidden, layers = (sorted(set(axis)) for axis in zip(*points, strict=True))
    if len(points) < len(hidden) * len(layers):
        return ""
    listed = ["{" + ", ".join(map(str, axis)) + "}" for axis in (hidden, layers)]
    return f"hidden {listed[0]} x layers {listed[1]}"
