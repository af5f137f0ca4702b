"""The main table with tuned rivals: every activation chooses from the same eight settings.

Each axis has the table's own value and one other. Validation nodes choose, test nodes do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from statistics import fmean
from typing import TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    check_name,
    family_of,
    node_table,
    recipe,
)
from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce.experiment import Request

TUNED_BACKBONES = ("gcn", "sage")
QUICK_RUNS, QUICK_EPOCHS = 3, 30
# The other value of each axis.
LR_FACTOR, WEIGHT_DECAY_FACTOR, DROPOUT = 0.3, 10, 0.8
SETTINGS = 8

Cell: TypeAlias = tuple[str, str]  # dataset, backbone
Runs: TypeAlias = dict[str, dict[int, dict[int, Result]]]  # activation -> place in grid -> seed


@dataclass(frozen=True)
class Choice:
    """The runs of what was chosen for each activation of a cell, and those of the table's own.

    ``tried`` are the places in the grid that all of them chose from. Every activation and setting
    has the same seeds. ``own`` is empty where the table's own setting was not tried.
    """

    tried: tuple[int, ...]
    chosen: dict[str, dict[int, Result]]
    own: dict[str, dict[int, Result]]


def grid(cell: Config) -> list[Config]:
    """The settings of a cell, its own first."""
    axes = (
        (cell.lr, LR_FACTOR * cell.lr),
        (cell.weight_decay, WEIGHT_DECAY_FACTOR * cell.weight_decay),
        (cell.dropout, DROPOUT),
    )
    return [
        replace(cell, lr=lr, weight_decay=weight_decay, dropout=dropout)
        for lr, weight_decay, dropout in product(*axes)
    ]


def tuned_cells(
    request: Request,
    datasets: Sequence[str],
    backbones: Sequence[str],
    activations: Sequence[str],
) -> list[Config]:
    """What is to be run, in haste one graph with GCN.

    A setting for all cells, then the next: wherever training stops, all have been given nearly the
    same.
    """
    backbones = [check_name("backbone", name, BACKBONES) for name in backbones]
    cells = node_table(datasets, backbones, activations)
    if request.quick:
        (dataset,) = request.datasets("cora")
        cells = [
            recipe(dataset, family_of(dataset), "gcn", name, epochs=QUICK_EPOCHS)
            for name in activations
        ]
    return [config for setting in zip(*map(grid, cells), strict=True) for config in setting]


@cache  # a configuration has many runs
def place_in_grid(config: Config) -> int | None:
    """Which of the settings of its cell a configuration is; ``None`` where it is none of them."""
    if config.backbone not in BACKBONES or config.activation not in ACTIVATIONS:
        return None
    names = (config.dataset, family_of(config.dataset), config.backbone, config.activation)
    settings = grid(recipe(*names, epochs=config.epochs))
    return settings.index(config) if config in settings else None


def choices(results: Iterable[Result]) -> dict[Cell, Choice]:
    """What each activation of each cell chooses; other runs are left out.

    By the mean validation accuracy over the seeds, the first setting of the grid where that is
    equal. The settings are those that all activations of the cell have begun, the seeds those that
    all of these share.
    """
    by_config: dict[Config, dict[int, Result]] = {}
    for result in results:
        by_config.setdefault(result.config, {})[result.seed] = result
    runs: dict[Cell, Runs] = {}
    epochs: dict[Cell, int] = {}
    for config, by_seed in by_config.items():
        place = place_in_grid(config)
        if place is not None:
            cell = (config.dataset, config.backbone)
            if epochs.setdefault(cell, config.epochs) != config.epochs:
                raise ValueError(f"The runs of {' with '.join(cell)} have different settings.")
            runs.setdefault(cell, {}).setdefault(config.activation, {})[place] = by_seed
    found = {cell: _choice(of_cell) for cell, of_cell in runs.items()}
    return {cell: choice for cell, choice in found.items() if choice is not None}


def _choice(runs: Runs) -> Choice | None:
    tried = sorted(set.intersection(*(set(own) for own in runs.values())))
    if not tried:
        return None
    seeds = sorted(set.intersection(*(set(own[place]) for own in runs.values() for place in tried)))
    if not seeds:
        return None
    kept = {
        name: {place: {seed: own[place][seed] for seed in seeds} for place in tried}
        for name, own in runs.items()
    }
    return Choice(
        tried=tuple(tried),
        chosen={
            name: own[max(tried, key=lambda p: _validated(own[p]))] for name, own in kept.items()
        },
        own={name: own[0] for name, own in kept.items()} if 0 in tried else {},
    )


def _validated(runs: dict[int, Result]) -> float:
    # Accuracies are whole counts: without rounding, equal means would not tie.
    return round(fmean(run.val_score for run in runs.values()), 12)
