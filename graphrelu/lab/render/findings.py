"""A claim of the paper, and whether our runs agree with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from graphrelu.lab.record.published import published
from graphrelu.lab.render.export import table
from graphrelu.lab.render.tables import signed
from graphrelu.lab.stats.decision import Decision

Finding = Literal["holds", "does not hold", "undecided", "not measured yet"]
# The finding of a claim about several things is the first of these that one of them has.
WORST_FIRST: tuple[Finding, ...] = ("does not hold", "undecided", "holds", "not measured yet")

RULE = """\
A claim *holds* where its difference is significant in the paper's direction (paired by seed,
Wilcoxon test, 5 %, Holm's correction over the claims of one table, and the 95 % interval on the
same side of zero), *does not hold* where it is significant in the other, and is *undecided* at this
many seeds otherwise.
"""


@dataclass(frozen=True)
class Observation:
    """A claim and its figure in the paper; the finding and the figure of our runs."""

    claim: str
    paper: str
    outcome: Finding
    ours: str


def in_all(leads: Collection[Decision]) -> Finding:
    """The finding of a claim that the first side of every comparison is ahead."""
    outcomes = {lead.outcome for lead in leads}
    if not outcomes:
        return "not measured yet"
    if "worse" in outcomes:
        return "does not hold"
    return "undecided" if "undecided" in outcomes else "holds"


def several(leads: Collection[Decision]) -> str:
    """Many leads in one phrase."""
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
    """The mean that the paper prints in a cell of a table."""
    cell = published(source, dataset, backbone, activation)
    if cell is None:
        raise ValueError(f"The paper has no {activation} on {dataset} with {backbone}.")
    return cell.mean


def papers_lead(source: str, dataset: str, backbone: str) -> float:
    """GReLU's lead over ReLU in the paper."""
    grelu, relu = (papers_mean(source, dataset, backbone, name) for name in ("grelu", "relu"))
    return grelu - relu


def to_markdown(observations: Sequence[Observation]) -> str:
    """A table with one line for each claim."""
    head = ("claim", "the paper's figure", "found", "ours")
    lines = [(o.claim, o.paper, f"**{o.outcome}**", o.ours) for o in observations]
    return table(head, lines, numbers=len(head))
