"""What the paper observes, and whether our runs agree: one line for each claim."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from graphrelu.lab.record.published import published
from graphrelu.lab.render.export import table
from graphrelu.lab.render.tables import measured, signed
from graphrelu.lab.stats.comparison import Comparison

Finding = Literal["holds", "does not hold", "undecided", "not measured yet"]

RULE = """\
A claim *holds* where its difference is significant in the paper's direction (paired by seed,
Wilcoxon test, 5 %, Holm's correction over the claims of one table, and the 95 % interval on the
same side of zero), *does not hold* where it is significant in the other, and is *undecided* at this
many seeds otherwise.
"""


@dataclass(frozen=True)
class Observation:
    """A claim of the paper's with its figure, and what was found with ours."""

    claim: str
    paper: str
    outcome: Finding
    ours: str


def in_all(leads: Collection[Comparison]) -> Finding:
    """What was found of a claim that one side of each comparison is ahead."""
    outcomes = {lead.outcome for lead in leads}
    if not outcomes:
        return "not measured yet"
    if "worse" in outcomes:
        return "does not hold"
    return "undecided" if "undecided" in outcomes else "holds"


def of_lead(claim: str, paper: str, lead: Comparison | None) -> Observation:
    """A claim that one side is ahead, with the lead of that side, if there is one."""
    leads = [] if lead is None else [lead]
    return Observation(claim, paper, in_all(leads), "".join(map(measured, leads)))


def several(leads: Collection[Comparison]) -> str:
    """Many leads in a few words."""
    if not leads:
        return ""
    outcomes = [lead.outcome for lead in leads]
    differences = [lead.difference for lead in leads]
    seeds = sorted({lead.n for lead in leads})
    return (
        f"significantly ahead in {outcomes.count('better')} of {len(outcomes)} comparisons, "
        f"behind in {outcomes.count('worse')}; leads from {signed(min(differences))} to "
        f"{signed(max(differences))} points, over {' or '.join(map(str, seeds))} seeds"
    )


def papers_mean(source: str, dataset: str, backbone: str, activation: str) -> float:
    """What the paper prints in a cell of one of its tables."""
    cell = published(source, dataset, backbone, activation)
    if cell is None:
        raise ValueError(f"The paper has no {activation} on {dataset} with {backbone}.")
    return cell.mean


def papers_lead(source: str, dataset: str, backbone: str) -> float:
    """GReLU's lead over ReLU in the paper."""
    grelu, relu = (papers_mean(source, dataset, backbone, name) for name in ("grelu", "relu"))
    return grelu - relu


def to_markdown(observations: Sequence[Observation]) -> str:
    """One line for each."""
    head = ("claim", "the paper's figure", "found", "ours")
    lines = [
        (observation.claim, observation.paper, f"**{observation.outcome}**", observation.ours)
        for observation in observations
    ]
    return table(head, lines, numbers=len(head))
