"""The paper's observations on its main table, held against the runs: one line for each claim."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS
from graphrelu.lab.render.findings import (
    Finding,
    Observation,
    in_all,
    papers_lead,
    papers_mean,
    several,
)
from graphrelu.lab.render.tables import label, measured, signed
from graphrelu.lab.reproduce.table import Row
from graphrelu.lab.stats import Decision, compared

RIVALS = tuple(name for name in ACTIVATIONS if name != "grelu")
TABLE = "node_classification"
SOCIAL = ("blogcatalog", "flickr")

Names: TypeAlias = tuple[str, str, str]  # graph, backbone and activation
Rows: TypeAlias = Mapping[Names, Row]


def of_main_table(own: Sequence[Row]) -> list[Observation]:
    """GReLU everywhere, GReLU with ARMA, and GCN with GReLU against GAT."""
    rows = {(row.dataset, row.backbone, row.activation): row for row in own}
    return [_best_everywhere(rows), *_with_arma(rows), _against_gat(rows)]


def _leads(rows: Rows, pairs: Iterable[tuple[Names, Names]]) -> dict[Names, Decision]:
    """The leads of the first rows over the second, as one family, by the second."""
    known = [(a, b) for a, b in pairs if a in rows and b in rows]
    scores = {b: (rows[a].scores, rows[b].scores) for a, b in known}
    return compared(scores, {b: rows[a].splits for a, b in known})


def _best_everywhere(rows: Rows) -> Observation:
    cells = dict.fromkeys(names[:2] for names in rows)
    leads = _leads(
        rows, [((*cell, "grelu"), (*cell, rival)) for cell in cells for rival in RIVALS]
    ).values()
    means = [
        {n: rows[(*cell, n)].mean for n in ACTIVATIONS if (*cell, n) in rows} for cell in cells
    ]
    ours = [cell for cell in means if len(cell) == len(ACTIVATIONS)]
    papers = [
        {name: papers_mean(TABLE, dataset, backbone, name) for name in ACTIVATIONS}
        for dataset in NODE_DATASETS
        for backbone in BACKBONES
        if published(TABLE, dataset, backbone, "grelu") is not None
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
    leads = _leads(rows, [((name, "arma", "grelu"), (name, "arma", "relu")) for name in SOCIAL])
    found = []
    for name in SOCIAL:
        claim = f"GReLU is ahead of ReLU on {label(name)} with ARMA by as much as the paper's"
        figure, lead = papers_lead(TABLE, name, "arma"), leads.get((name, "arma", "relu"))
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
    printed = [papers_mean(TABLE, *own) > papers_mean(TABLE, *rival) for own, rival in pairs]
    leads = _leads(rows, pairs).values()
    return Observation(
        "GCN with GReLU is ahead of GAT with any other activation",
        f"higher in {sum(printed)} of {len(printed)} comparisons",
        in_all(leads),
        several(leads),
    )
