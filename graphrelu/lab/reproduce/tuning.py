"""The main table with tuned rivals: every activation chooses from the same eight settings.

Each axis has the main table's value and one other. Validation nodes choose; test nodes do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    NODE_DATASETS,
    check_name,
    family_of,
    node_table,
    recipe,
)
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures, findings, tables
from graphrelu.lab.render.tables import ScoreRow, label
from graphrelu.lab.reproduce.experiment import Place, Request, Table
from graphrelu.lab.stats.comparison import Scores, mean_validation
from graphrelu.lab.stats.decision import Decision

TUNED_BACKBONES = ("gcn", "sage")
QUICK_RUNS = 3
# The other value of each axis.
LR_FACTOR, WEIGHT_DECAY_FACTOR, DROPOUT = 0.3, 10, 0.8
SETTINGS = 8

Cell: TypeAlias = tuple[str, str]  # dataset, backbone
BySeed: TypeAlias = dict[int, Result]


def grid(cell: Config) -> list[Config]:
    """The settings of a cell, the main table's first."""
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
    request: Request, datasets: Sequence[str], backbones: Sequence[str], activations: Sequence[str]
) -> list[Config]:
    """The runs; a quick run has one graph with the first backbone.

    The first setting of all cells comes first, then the second, and so on: wherever training
    stops, all cells have nearly the same settings.
    """
    backbones = [check_name("backbone", name, BACKBONES) for name in backbones]
    cells = node_table(datasets, backbones, activations)
    if request.quick:
        cells = [cell for cell in quick_cells(cells, request) if cell.backbone == cells[0].backbone]
    return [config for setting in zip(*map(grid, cells), strict=True) for config in setting]


def quick_cells(cells: Iterable[Config], request: Request) -> list[Config]:
    """The backbones and activations of these cells on the embedded graph, for few epochs."""
    kinds = dict.fromkeys((cell.backbone, cell.activation) for cell in cells)
    return [recipe("digits", family_of("digits"), *kind, **request.changes) for kind in kinds]


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """A place in the grid for each activation of each backbone."""
    family = family_of(dataset)
    return {
        ((dataset, backbone), (name, place)): config
        for backbone, name in product(BACKBONES, ACTIVATIONS)
        for place, config in enumerate(grid(recipe(dataset, family, backbone, name, **changes)))
    }


TABLE = Table("tuned", "of the grid", NODE_DATASETS, cells)


@dataclass(frozen=True)
class Choice:
    """The runs of the setting that each activation of a cell chose, and of the main table's.

    ``tried`` are the places in the grid that all activations chose from. Every activation and
    setting has the same seeds. ``own`` is empty where the main table's setting was not tried.
    """

    tried: tuple[int, ...]
    chosen: dict[str, BySeed]
    own: dict[str, BySeed]


def choices(results: Iterable[Result]) -> dict[Cell, Choice]:
    """The choice of each cell; runs outside the grid are left out.

    The highest mean validation accuracy over the seeds wins, the first setting of the grid in a
    tie. The settings are those that all activations of the cell have begun. The seeds are those
    that all these settings share.
    """
    found = {}
    for cell, own in TABLE.scores(results, lambda run: run).items():
        runs: dict[str, dict[int, BySeed]] = {}
        for (name, place), by_seed in own.items():
            runs.setdefault(name, {})[place] = by_seed
        if choice := _choice(runs):
            found[cell] = choice
    return found


def _choice(runs: dict[str, dict[int, BySeed]]) -> Choice | None:
    """The choice from the runs of a cell, by activation and place in the grid."""
    tried = sorted(set.intersection(*(set(own) for own in runs.values())))
    shared = [set(own[place]) for own in runs.values() for place in tried]
    seeds = sorted(set.intersection(*shared)) if shared else []
    if not seeds:
        return None
    chosen, untuned = {}, {}
    for name, own in runs.items():
        kept = {place: {seed: own[place][seed] for seed in seeds} for place in tried}
        chosen[name] = max(kept.values(), key=lambda by_seed: mean_validation(by_seed.values()))
        if 0 in kept:
            untuned[name] = kept[0]
    return Choice(tuple(tried), chosen, untuned)


def has_choice(record: Path) -> bool:
    """Whether all activations of a cell have finished a setting."""
    return bool(choices(Record(record).read()))


@dataclass(frozen=True)
class TunedRow(ScoreRow):
    """One activation with the chosen setting and with the main table's, and GReLU's lead over the
    activation.

    ``tried`` is the number of settings to choose from. The leads over one rival are a family for
    Holm's correction.
    """

    lr: float
    weight_decay: float
    dropout: float
    tried: int
    untuned_mean: float | None
    untuned_std: float | None
    grelu_over_it: Decision | None


def tuned_rows(results: Sequence[Result]) -> list[TunedRow]:
    """A row for each activation, backbone by backbone."""
    found = choices(results)
    tuned = {cell: _scores(choice.chosen) for cell, choice in found.items()}
    leads = tables.grelu_leads(tuned, TABLE.splits(results))
    rows = []
    for cell in sorted(found, key=lambda cell: BACKBONES.index(cell[1])):
        choice = found[cell]
        scores, own = tuned[cell], _scores(choice.own)
        for name in [name for name in ACTIVATIONS if name in scores]:
            config = next(iter(choice.chosen[name].values())).config
            untuned = tables.percent(own[name])[:2] if name in own else (None, None)
            rows.append(
                TunedRow(
                    *(*cell, name, *tables.percent(scores[name])),
                    *(config.lr, config.weight_decay, config.dropout, len(choice.tried)),
                    *(*untuned, leads.get(name, {}).get(cell)),
                )
            )
    return rows


def _scores(runs: Mapping[str, BySeed]) -> dict[str, Scores]:
    return {
        name: {seed: run.score for seed, run in by_seed.items()} for name, by_seed in runs.items()
    }


def render_tuned(record: Path) -> list[Path]:
    """Write ``.md`` and ``.csv`` beside the record, from all runs on record."""
    of_grid = [r for r in Record(record).read() if TABLE.place(r.config) is not None]
    rows, found = tuned_rows(of_grid), choices(of_grid)
    if not rows:
        raise ValueError(f"{record} has no setting yet that all activations of a cell finished.")
    tuned: dict[str, dict[Cell, Decision]] = {name: {} for name in ACTIVATIONS}
    for row in rows:
        if row.grelu_over_it is not None:
            tuned[row.activation][row.dataset, row.backbone] = row.grelu_over_it
    own = {cell: _scores(choice.own) for cell, choice in found.items()}
    untuned = tables.grelu_leads(own, TABLE.splits(of_grid))
    cautions = [tables.too_few(list(leads.values())) for leads in tuned.values() if leads]
    caution = cautions[0] if cautions and all(cautions) else ""
    head = ("dataset", "activation", "tuned", "lr", "weight decay", "dropout", "untuned")
    parts = []
    for backbone, part in groupby(rows, key=lambda row: row.backbone):
        lines = [_line(row, best) for row, best in tables.with_best(part, lambda row: row.dataset)]
        table = export.table((*head, "GReLU - it", "p"), lines, numbers=3)
        parts.append(f"## {label(backbone)}\n\n{table}")
    page = TABLE.text(
        *(of_grid, record),
        rule=findings.rule("a rival", ((row.dataset, row.grelu_over_it) for row in rows)),
        settings=SETTINGS,
        lr_factor=LR_FACTOR,
        weight_decay_factor=WEIGHT_DECAY_FACTOR,
        dropout=DROPOUT,
        tried=f"{_tried(rows)} {caution}".rstrip(),
        tallies=export.tallies_to_markdown(tables.tallies_of(tuned)),
        untuned_tallies=export.tallies_to_markdown(tables.tallies_of(untuned)),
        backbones="\n".join(parts),
    )
    return figures.write(record, page, rows, TunedRow)


def _tried(rows: Sequence[TunedRow]) -> str:
    fewest = min(row.tried for row in rows)
    if fewest == SETTINGS:
        return f"Every cell chose from all {SETTINGS} settings."
    return f"The grid is incomplete: some cells chose from {fewest} of the {SETTINGS} settings."


def _line(row: TunedRow, bold: bool) -> tuple[str, ...]:
    tuned = f"**{tables.accuracy(row)}**" if bold else tables.accuracy(row)
    setting = (f"{value:g}" for value in (row.lr, row.weight_decay, row.dropout))
    untuned = "" if row.untuned_mean is None else f"{row.untuned_mean:.1f} ± {row.untuned_std:.1f}"
    p = "" if row.grelu_over_it is None else tables.p_value(row.grelu_over_it.p)
    names = (label(row.dataset), label(row.activation))
    return *names, tuned, *setting, untuned, tables.marked(row.grelu_over_it), p
