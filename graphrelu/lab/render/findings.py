"""A claim of the paper, and whether our runs agree with it."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from graphrelu.lab.record.published import published
from graphrelu.lab.render.export import table
from graphrelu.lab.render.tables import label, signed
from graphrelu.lab.stats import MARGIN, Decision

Finding = Literal["holds", "does not hold", "undecided", "not measured yet"]

RULE = """\
A claim that one is ahead *holds* where the rule of all tables says *better*, *does not hold* where
it says *worse* or *no difference that matters*, and is *undecided* otherwise: the interval of the
paired differences decides, and the intervals of all claims of one table hold together with 95 %
confidence (Holm). A claim about several cells holds where it holds in all of them, and does not
hold where it does not hold in one.
"""


def rule(family: str, leads: Iterable[tuple[str, Decision | None]], margin: float = MARGIN) -> str:
    """How the differences of a page are decided, and what their intervals are about; ``leads`` are
    those of the page, each with its graph."""
    graphs: dict[str, dict[str, None]] = {}
    for dataset, lead in leads:
        if lead is not None and lead.low is not None:
            graphs.setdefault(lead.about, {})[label(dataset)] = None
    several = len(graphs) > 1
    told = [about + f" ({', '.join(own)})" * several for about, own in graphs.items()]
    return textwrap.fill(
        "Differences are paired by seed, and the interval decides, as in `graphrelu compare`: "
        "*better* or *worse* (marked \\*) where it lies above or below 0, *no difference that "
        f"matters* (marked =) where it lies within {margin:g} of 0, else *undecided*. The "
        f"intervals of {family} hold together with 95 % confidence (Holm's correction; p is "
        f"corrected, too), {'; '.join(told) or 'where there are five seeds'}.",
        100,
        break_on_hyphens=False,
    )


@dataclass(frozen=True)
class Observation:
    """A claim and its figure in the paper; the finding and the figure of our runs."""

    claim: str
    paper: str
    outcome: Finding
    ours: str


def ahead(claim: str, paper: str, leads: Collection[Decision]) -> Observation:
    """A claim that the first side of every comparison is ahead."""
    return Observation(claim, paper, in_all(leads), several(leads))


def in_all(leads: Collection[Decision]) -> Finding:
    """The finding of a claim that the first side of every comparison is ahead."""
    outcomes = {lead.outcome for lead in leads}
    if not outcomes:
        return "not measured yet"
    if outcomes & {"worse", "no difference"}:
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
        f"better in {outcomes.count('better')} of {len(outcomes)} comparisons, worse in "
        f"{outcomes.count('worse')}, no difference in {outcomes.count('no difference')}; leads "
        f"from {signed(min(differences))} to {signed(max(differences))} points, over "
        f"{' or '.join(map(str, seeds))} seeds"
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
