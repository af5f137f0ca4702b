"""The paper's main table, node classification: its runs, its page, and the figure of the leads.

With ``--tuned`` the settings are chosen as :mod:`graphrelu.lab.reproduce.tuning` says.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import (
    BACKBONES,
    NODE_DATASETS,
    TABLE,
    family_of,
    node_table,
    recipe,
)
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import export, figures, findings, tables
from graphrelu.lab.render.tables import NodeRow, ProtocolCheck, label
from graphrelu.lab.reproduce.experiment import Experiment, Request, filled, trained
from graphrelu.lab.reproduce.tuning import (
    QUICK_RUNS,
    has_choice,
    quick_cells,
    render_tuned,
    tuned_cells,
)

RUNS = 10


def main_table(*lists: Sequence[str]) -> Experiment:
    """The table of these datasets, backbones and activations, with the paper's settings."""

    def collect(request: Request) -> str:
        cells = node_table(*lists)
        return trained(quick_cells(cells, request) if request.quick else cells, request)

    def has_page(record: Path) -> bool:
        return any(belongs(result.config) for result in Record(record).read())

    return Experiment(RUNS, QUICK_RUNS, collect, render, has_page)


def tuned_table(*lists: Sequence[str]) -> Experiment:
    """The same table, in which every activation chooses from the same settings."""

    def collect(request: Request) -> str:
        return trained(tuned_cells(request, *lists), request)

    return Experiment(RUNS, QUICK_RUNS, collect, render_tuned, has_choice)


@cache
def belongs(config: Config) -> bool:
    """Whether a run has the table's settings, with any number of epochs.

    Runs with an older default of GReLU do not belong to the table.
    """
    known = config.dataset in (*NODE_DATASETS, "digits") and config.backbone in TABLE
    names = (config.dataset, family_of(config.dataset), config.backbone, config.activation)
    return known and config == recipe(*names, epochs=config.epochs)


def render(record: Path) -> list[Path]:
    """Writes ``.md`` and ``.csv`` beside the record, from all runs on record."""
    results = Record(record).required(belongs, "of the main table")
    rows = tables.node_rows(results)
    page = filled(
        "node",
        origin=export.provenance(results, record, node_table()),
        rule=findings.rule("the table", ((row.dataset, row.over_relu) for row in rows)),
        caution=tables.caution(rows),
        tallies=export.tallies_to_markdown(tables.tallies(results)),
        loss_tallies=export.tallies_to_markdown(tables.loss_tallies(results), "lower mean"),
        against_best=textwrap.fill(tables.against_best(results), 100, break_on_hyphens=False),
        protocol_check=protocol_to_markdown(tables.protocol_check(results)),
        graphs=to_markdown(rows),
    )
    return figures.write(record, page, rows, NodeRow)


def to_markdown(rows: Sequence[NodeRow]) -> str:
    """The main table, one part for each dataset."""
    parts = []
    for dataset, part in groupby(rows, key=lambda row: row.dataset):
        cells = tables.with_best(part, lambda row: row.backbone)
        lines = [export.table_line(row, bold=best) for row, best in cells]
        head = ("backbone", "activation", "ours", "paper", "difference", "GReLU - ReLU", "p")
        parts.append(f"## {label(dataset)}\n\n{export.table(head, lines, numbers=3)}")
    return "\n".join(parts)


def protocol_to_markdown(check: ProtocolCheck) -> str:
    """The sentence, and the cells that deviate."""
    if not check.others:
        return check.sentence + "\n"
    head = ("dataset", "backbone", "activation", "ours", "paper", "difference")
    lines = [(label(row.dataset), *export.table_line(row)[:5]) for row in check.others]
    return f"{check.sentence} The others:\n\n{export.table(head, lines, numbers=3)}"


def draw_leads(rows: Sequence[NodeRow]) -> figures.Figure:
    """One panel for each graph, one line for each backbone: the lead and its 95 % interval."""
    leads = [row for row in rows if row.over_relu is not None]
    datasets = [name for name in NODE_DATASETS if any(row.dataset == name for row in leads)]
    figure, axes = figures.panels(
        1, len(datasets), figsize=(2 * len(datasets), 2.3), sharex=True, sharey=True
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        for row in leads:
            if row.dataset == dataset and (lead := row.over_relu):
                place = BACKBONES.index(row.backbone)
                significant = lead.differs
                if lead.low is not None and lead.high is not None:
                    axis.plot((lead.low, lead.high), (place, place), color="black", linewidth=1)
                style = {"markersize": 5, "markerfacecolor": "black" if significant else "white"}
                axis.plot(lead.difference, place, marker="o", color="black", **style)
        seeds = " or ".join(map(str, sorted({r.n for r in leads if r.dataset == dataset})))
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


def write_leads(rows: Sequence[NodeRow], prefix: Path) -> list[Path]:
    """``prefix.png`` and ``prefix.svg`` from the rows of the main table."""
    if not any(row.over_relu is not None for row in rows):
        raise ValueError("rows must have a cell with runs of both GReLU and ReLU.")
    with figures.drawing():
        return figures.save(draw_leads(rows), prefix)
