"""The effect of K: GReLU with two to seven segments on the citation graphs, with GCN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from graphrelu.lab import stats
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import family_of, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.findings import Finding, Observation
from graphrelu.lab.render.tables import ScoreRow, accuracy, amount, label, marked, p_value, percent
from graphrelu.lab.reproduce.experiment import Experiment, Place, Table
from graphrelu.lab.stats.comparison import compared
from graphrelu.lab.stats.decision import Decision

SEGMENTS = (2, 3, 4, 5, 6, 7)
MARGIN = 1.0  # percent points: a smaller difference does not matter


@dataclass(frozen=True)
class SegmentsRow(ScoreRow):
    """One K on one graph; ``low`` and ``high`` bound the mean's 95 % interval."""

    K: int
    low: float | None
    high: float | None
    over_two: Decision | None


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """One cell for each graph; K = 2 is a cell of the main table."""
    names = (dataset, family_of(dataset), "gcn", "grelu")
    options = {K: {} if K == 2 else {"K": K} for K in SEGMENTS}
    return {
        ((dataset, "gcn"), K): recipe(*names, activation_options=own, **changes)
        for K, own in options.items()
    }


TABLE = Table("segments", "of GReLU with GCN", ("cora", "pubmed", "citeseer"), cells)


def segments_rows(results: Iterable[Result]) -> list[SegmentsRow]:
    """A row for each graph and K."""
    results = list(results)
    pairs = {
        (*cell, K): (scores, own.get(2, {}))
        for cell, own in TABLE.scores(results).items()
        for K, scores in own.items()
    }
    splits = TABLE.splits(results)
    leads = compared(
        {place: pair for place, pair in pairs.items() if place[-1] != 2},
        {place: splits[place[:-1]] for place in pairs},
        MARGIN,
    )
    rows = []
    for place, (scores, _) in pairs.items():
        dataset, backbone, K = place
        mean, std, best, n = percent(scores)
        reach = stats.half_width(std, n) if n > 1 else None
        low, high = (None, None) if reach is None else (mean - reach, mean + reach)
        names = (dataset, backbone, "grelu")
        rows.append(SegmentsRow(*names, mean, std, best, n, K, low, high, leads.get(place)))
    return rows


def observations(
    rows: Sequence[SegmentsRow], datasets: Iterable[str] = TABLE.datasets
) -> list[Observation]:
    """Whether K matters, graph by graph."""
    found = []
    for dataset in datasets:
        several = [row for row in rows if row.dataset == dataset]
        leads = [row.over_two for row in several if row.over_two is not None]
        means = [row.mean for row in several]
        ours = ""
        if leads:
            largest = max(leads, key=lambda lead: abs(lead.difference))
            ours = (
                f"means from {min(means):.1f} to {max(means):.1f}; the largest difference to "
                f"K = 2 is {amount(largest)} points over {largest.n} seeds"
            )
        claim = f"K does not matter on {label(dataset)}"
        found.append(Observation(claim, "no numbers", equivalence(leads), ours))
    return found


def equivalence(leads: Sequence[Decision]) -> Finding:
    """Whether all differences are small, or one is large."""
    if not leads:
        return "not measured yet"
    if all(lead.outcome == "no difference" for lead in leads):
        return "holds"
    large = (lead.differs and abs(lead.difference) > MARGIN for lead in leads)
    return "does not hold" if any(large) else "undecided"


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    results = TABLE.read(record)
    rows = segments_rows(results)
    lines = []
    for row in rows:
        lead = row.over_two
        difference = ("", "") if lead is None else (marked(lead), p_value(lead.p))
        lines.append((label(row.dataset), str(row.K), accuracy(row), *difference))
    head = ("dataset", "K", "ours", "difference to K = 2", "p")
    page = TABLE.text(
        results,
        record,
        margin=MARGIN,
        rule=findings.rule(
            "the table", ((row.dataset, row.over_two) for row in rows), margin=MARGIN
        ),
        table=export.table(head, lines, numbers=1),
        findings=findings.to_markdown(
            observations(rows, dict.fromkeys(row.dataset for row in rows))
        ),
    )
    return figures.write(record, page, rows, SegmentsRow, lambda: draw(rows))


def draw(rows: Sequence[SegmentsRow]) -> figures.Figure:
    """Means with their intervals, as in the paper's figure; and the paired differences."""
    figure, ((means, differences),) = figures.panels(1, 2, figsize=(7.5, 3.2))
    for place, ((dataset, part), style) in enumerate(
        zip(groupby(rows, key=lambda row: row.dataset), figures.line_styles(), strict=False)
    ):
        several = list(part)
        K = [row.K for row in several]
        means.plot(K, [row.mean for row in several], label=label(dataset), **style)
        banded = [(r.K, r.low, r.high) for r in several if r.low is not None]
        if banded:
            means.fill_between(*zip(*banded, strict=True), color=style["color"], alpha=0.15)
        beside = [(row.K + 0.12 * (place - 1), row.over_two) for row in several]
        figures.draw_leads(differences, beside, {**style, "linestyle": "none"})
    means.set(xlabel="K, number of segments", ylabel="test accuracy (%)", xticks=SEGMENTS)
    figures.shared_legend(figure, [means], loc="outside upper center", ncols=3)
    for edge in (-MARGIN, MARGIN):
        differences.axhline(edge, color="black", linewidth=0.8, linestyle=":")
    differences.axhline(0, color="black", linewidth=0.8)
    differences.set(xlabel="K, number of segments", ylabel="difference to K = 2 (points)")
    differences.set_xticks(SEGMENTS[1:])
    return figure


EXPERIMENT = Experiment(runs=30, quick_runs=6, collect=TABLE.collect, render=render)
