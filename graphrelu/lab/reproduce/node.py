"""The paper's main table, node classification, and the figure of the leads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, family_of, recipe
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.findings import (
    Finding,
    Observation,
    in_all,
    papers_lead,
    papers_mean,
    several,
)
from graphrelu.lab.render.tables import label, measured, signed
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.table import Found, Pair, Place, Row, Table, beside_paper
from graphrelu.lab.stats import Decision

CHECKED_DATASETS = ("cora", "citeseer", "pubmed")
CHECKED_ACTIVATIONS = ("relu", "lrelu", "elu", "prelu")
OVER_RIVALS = Pair("grelu_over_it", "grelu", None)
RIVALS = tuple(name for name in ACTIVATIONS if name != "grelu")
SOCIAL = ("blogcatalog", "flickr")
SOURCE = "node_classification"  # of the paper's numbers

Names: TypeAlias = tuple[str, str, str]  # graph, backbone and activation
Rows: TypeAlias = Mapping[Names, Row]


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every backbone and activation on a graph, with the paper's settings."""
    family = family_of(dataset)
    return {
        ((dataset, backbone), name): recipe(dataset, family, backbone, name, **changes)
        for backbone, name in product(BACKBONES, ACTIVATIONS)
    }


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    by_loss: dict[str, list[Decision]] = {}
    for (_, name), lead in loss_leads(all_runs).items():
        by_loss.setdefault(name, []).append(lead)
    return {
        "tallies": shown.tallies(shown.by_rival(rows, "grelu_over_it")),
        "loss_tallies": shown.tallies(by_loss, "lower mean"),
        "claims_rule": findings.RULE,
        "findings": findings.to_markdown(observations(rows)),
        "protocol_check": protocol_check(rows),
        "graphs": "\n".join(
            f"## {label(dataset)}\n\n{_graph(part)}"
            for dataset, part in groupby(rows, key=lambda row: row.dataset)
        ),
    }


def observations(own: Sequence[Row]) -> list[Observation]:
    """GReLU everywhere, GReLU with ARMA, and GCN with GReLU against GAT."""
    rows = {(row.dataset, row.backbone, row.activation): row for row in own}
    return [_best_everywhere(rows), *_with_arma(rows), _against_gat(rows)]


def _best_everywhere(rows: Rows) -> Observation:
    cells = dict.fromkeys(names[:2] for names in rows)
    pairs = (((*cell, "grelu"), (*cell, rival)) for cell in cells for rival in RIVALS)
    leads = shown.leads_between(rows, pairs).values()
    means = [
        {n: rows[(*cell, n)].mean for n in ACTIVATIONS if (*cell, n) in rows} for cell in cells
    ]
    ours = [cell for cell in means if len(cell) == len(ACTIVATIONS)]
    papers = [
        {name: papers_mean(SOURCE, dataset, backbone, name) for name in ACTIVATIONS}
        for dataset in NODE_DATASETS
        for backbone in BACKBONES
        if published(SOURCE, dataset, backbone, "grelu") is not None
    ]
    return Observation(
        "GReLU is the best activation on every graph and backbone",
        _highest(papers),
        in_all(leads),
        "; ".join(part for part in (several(leads), _highest(ours)) if part),
    )


def _highest(means: Collection[Mapping[str, float]]) -> str:
    highest = sum(cell["grelu"] == max(cell.values()) for cell in means)
    return f"the highest mean in {highest} of {len(means)} cells" if means else ""


def _with_arma(rows: Rows) -> list[Observation]:
    pairs = {name: ((name, "arma", "grelu"), (name, "arma", "relu")) for name in SOCIAL}
    leads = shown.leads_between(rows, pairs.values())
    found = []
    for name, pair in pairs.items():
        claim = f"GReLU is ahead of ReLU on {label(name)} with ARMA by as much as the paper's"
        figure, lead = papers_lead(SOURCE, name, "arma"), leads.get(pair)
        ours = "" if lead is None else measured(lead)
        found.append(Observation(claim, f"{signed(figure)} points", reaches(lead, figure), ours))
    return found


def reaches(lead: Decision | None, figure: float) -> Finding:
    """Whether a lead is as large as the paper's: its whole interval says so."""
    if lead is None:
        return "not measured yet"
    if lead.low is None or lead.high is None:
        return "undecided"
    return "holds" if lead.low >= figure else "does not hold" if lead.high < figure else "undecided"


def _against_gat(rows: Rows) -> Observation:
    pairs = [((name, "gcn", "grelu"), (name, "gat", r)) for name in NODE_DATASETS for r in RIVALS]
    printed = [papers_mean(SOURCE, *own) > papers_mean(SOURCE, *rival) for own, rival in pairs]
    return findings.ahead(
        "GCN with GReLU is ahead of GAT with any other activation",
        f"higher in {sum(printed)} of {len(printed)} comparisons",
        shown.leads_between(rows, pairs).values(),
    )


def loss_leads(all_runs: Found) -> dict[Place, Decision]:
    """How far GReLU's cross-entropy on the test nodes is below each rival's, without a margin."""
    return TABLE.leads(all_runs, OVER_RIVALS, lambda run: -run.test_loss, margin=0)


def _graph(rows: Iterable[Row]) -> str:
    lines = [shown.line(row, best) for row, best in shown.with_best(rows, lambda row: row.cell)]
    head = ("backbone", "activation", "ours", "paper", "difference", "GReLU - ReLU", "p")
    return export.table(head, lines, numbers=3)


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
    return f"{said} The others:\n\n{export.table(head, lines, numbers=3)}"


def draw_leads(rows: Sequence[Row]) -> figures.Figure:
    """One panel for each graph, one line for each backbone: the lead and its interval."""
    leads = [row for row in rows if row["over_relu"] is not None]
    datasets = [name for name in NODE_DATASETS if any(row.dataset == name for row in leads)]
    figure, axes = figures.panels(
        1, len(datasets), figsize=(2 * len(datasets), 2.3), sharex=True, sharey=True
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
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


def write_leads(rows: Sequence[Row], prefix: Path) -> list[Path]:
    """``prefix.png`` and ``prefix.svg`` from the rows of the main table."""
    if not any(row["over_relu"] is not None for row in rows):
        raise ValueError("rows must have a cell with runs of both GReLU and ReLU.")
    with figures.drawing():
        return figures.save(draw_leads(rows), prefix)


TABLE = Table(
    name="node",
    datasets=NODE_DATASETS,
    cells=cells,
    runs=10,
    quick_runs=3,
    pairs=(Pair("over_relu", "grelu", "relu", only="grelu"), OVER_RIVALS),
    columns=("paper_mean", "paper_std", "difference", "over_relu"),
    page=page,
    values=lambda row: beside_paper(SOURCE, row),
    family="the table",
)
