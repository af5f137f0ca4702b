"""What the paper observes of its main table: GReLU everywhere, with ARMA, and against GAT."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import label, measured, signed
from graphrelu.lab.reproduce.findings import (
    Finding,
    Observation,
    in_all,
    papers_lead,
    papers_mean,
    several,
)
from graphrelu.lab.stats.comparison import Cells, Comparison, Scores, compared, scores_by_cell

RIVALS = tuple(name for name in ACTIVATIONS if name != "grelu")
TABLE = "node_classification"
SOCIAL = ("blogcatalog", "flickr")


def observations(results: Sequence[Result]) -> list[Observation]:
    """One line for each, from the runs of the main table."""
    cells = scores_by_cell(results)
    return [_best_everywhere(cells), *_with_arma(cells), _against_gat(cells)]


def reaches(lead: Comparison | None, figure: float) -> Finding:
    """Whether a lead is as large as the paper's."""
    if lead is None:
        return "not measured yet"
    if lead.high is not None and lead.high < figure:
        return "does not hold"
    return "holds" if lead.outcome == "better" else "undecided"


def _best_everywhere(cells: Cells) -> Observation:
    pairs = {
        (cell, rival): (scores.get("grelu", {}), scores.get(rival, {}))
        for cell, scores in cells.items()
        for rival in RIVALS
    }
    leads = compared(pairs).values()
    whole = [scores for scores in cells.values() if scores.keys() >= set(ACTIVATIONS)]
    ours = [{name: fmean(own.values()) for name, own in scores.items()} for scores in whole]
    return Observation(
        "GReLU is the best activation on every graph and backbone",
        _highest(_printed_cells()),
        in_all(leads),
        "; ".join(part for part in (several(leads), _highest(ours)) if part),
    )


def _with_arma(cells: Cells) -> list[Observation]:
    arma = {name: cells.get((name, "arma"), {}) for name in SOCIAL}
    leads = compared(
        {name: (own.get("grelu", {}), own.get("relu", {})) for name, own in arma.items()}
    )
    found = []
    for name in SOCIAL:
        claim = f"GReLU is ahead of ReLU on {label(name)} with ARMA by as much as the paper's"
        figure, lead = papers_lead(TABLE, name, "arma"), leads.get(name)
        ours = "" if lead is None else measured(lead)
        found.append(Observation(claim, f"{signed(figure)} points", reaches(lead, figure), ours))
    return found


def _against_gat(cells: Cells) -> Observation:
    pairs: dict[tuple[str, str], tuple[Scores, Scores]] = {}
    printed = []
    for name in NODE_DATASETS:
        ours, theirs = (cells.get((name, backbone), {}) for backbone in ("gcn", "gat"))
        for rival in RIVALS:
            pairs[name, rival] = (ours.get("grelu", {}), theirs.get(rival, {}))
            printed.append(
                papers_mean(TABLE, name, "gcn", "grelu") > papers_mean(TABLE, name, "gat", rival)
            )
    leads = compared(pairs).values()
    return Observation(
        "GCN with GReLU is ahead of GAT with any other activation",
        f"higher in {sum(printed)} of {len(printed)} comparisons",
        in_all(leads),
        several(leads),
    )


def _highest(means: Collection[Mapping[str, float]]) -> str:
    highest = sum(cell["grelu"] == max(cell.values()) for cell in means)
    return f"the highest mean in {highest} of {len(means)} cells" if means else ""


def _printed_cells() -> list[dict[str, float]]:
    return [
        {name: papers_mean(TABLE, dataset, backbone, name) for name in ACTIVATIONS}
        for dataset in NODE_DATASETS
        for backbone in BACKBONES
        if published(TABLE, dataset, backbone, "grelu") is not None
    ]
