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
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.findings import Finding, Observation
from graphrelu.lab.render.tables import ScoreRow, accuracy, amount, label, p_value, percent
from graphrelu.lab.reproduce.experiment import Experiment, Request, trained
from graphrelu.lab.stats.comparison import Comparison, compared, scores_by_cell

DATASETS = ("cora", "pubmed", "citeseer")
SEGMENTS = (2, 3, 4, 5, 6, 7)
MARGIN = 1.0  # percent points: a smaller difference does not matter

NOTES = """\
Test accuracy in percent, mean ± standard deviation over seeds (their number in brackets), and the
difference to K = 2, paired by seed, with its 95 % interval; p is the Wilcoxon test's with Holm's
correction over the table. The paper prints a figure without numbers.
"""
CAPTION = f"""\
Left: means with 95 % intervals, which include the differences between splits. Right: differences to
K = 2, paired by seed, with 95 % intervals; the dotted lines are at ± {MARGIN:g} point.
"""
RULE = f"""\
That K does not matter *holds* where all 95 % intervals of the differences to K = 2 lie within ±
{MARGIN:g} point. This is a test of equivalence, which too few seeds cannot pass. It *does not hold*
where a larger difference is significant. Otherwise it is *undecided* at this many seeds.
"""


@dataclass(frozen=True)
class SegmentsRow(ScoreRow):
    """One K on one graph; ``low`` and ``high`` bound the mean's 95 % interval."""

    K: int
    low: float | None
    high: float | None
    over_two: Comparison | None


def cells(dataset: str, **changes: Any) -> list[Config]:
    """One cell for each K; K = 2 is a cell of the main table."""
    options = [{} if K == 2 else {"K": K} for K in SEGMENTS]
    return [
        recipe(dataset, family_of(dataset), "gcn", "grelu", activation_options=own, **changes)
        for own in options
    ]


def collect(request: Request) -> str:
    """Train the missing runs."""
    names = request.datasets(*DATASETS)
    return trained([cell for name in names for cell in cells(name, **request.changes)], request)


def segments_rows(results: Sequence[Result]) -> list[SegmentsRow]:
    """A row for each graph and K, the graphs in the order of the results."""
    found = scores_by_cell(results, lambda config: str(_segments(config)))
    pairs = {
        (dataset, int(K)): (own, scores.get("2", {}))
        for (dataset, _), scores in found.items()
        for K, own in sorted(scores.items())
    }
    leads = compared({key: pair for key, pair in pairs.items() if key[1] != 2})
    rows = []
    for key, (own, _) in pairs.items():
        mean, std, best, n = percent(own)
        reach = stats.half_width(std, n) if n > 1 else None
        low, high = (None, None) if reach is None else (mean - reach, mean + reach)
        scores = (key[0], "gcn", "grelu", mean, std, best, n)
        rows.append(SegmentsRow(*scores, key[1], low, high, leads.get(key)))
    return rows


def observations(rows: Sequence[SegmentsRow], datasets: Iterable[str]) -> list[Observation]:
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


def equivalence(leads: Sequence[Comparison]) -> Finding:
    """Whether all differences are small, or one is significantly large."""
    if not leads:
        return "not measured yet"
    if all(
        lead.low is not None and lead.high is not None and max(-lead.low, lead.high) < MARGIN
        for lead in leads
    ):
        return "holds"
    large = (lead.outcome != "undecided" and abs(lead.difference) > MARGIN for lead in leads)
    return "does not hold" if any(large) else "undecided"


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    results = Record(record).required(belongs, "of GReLU with GCN")
    rows = segments_rows(results)
    protocol = [cell for name in DATASETS for cell in cells(name)]
    page = [
        "# The effect of K, run again\n",
        export.provenance(results, record, protocol),
        NOTES,
        f"![Accuracy by K, and differences to K = 2]({record.with_suffix('.png').name})\n",
        CAPTION,
        _table(rows),
        "## What the paper observes\n",
        RULE,
        findings.to_markdown(observations(rows, dict.fromkeys(row.dataset for row in rows))),
    ]
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


def _table(rows: Sequence[SegmentsRow]) -> str:
    lines = []
    for row in rows:
        lead = row.over_two
        difference = ("", "") if lead is None else (amount(lead), p_value(lead.p_holm))
        lines.append((label(row.dataset), str(row.K), accuracy(row), *difference))
    return export.table(("dataset", "K", "ours", "difference to K = 2", "p"), lines, numbers=1)


def _segments(config: Config) -> int:
    return int(dict(config.activation_options).get("K") or 2)


def belongs(config: Config) -> bool:
    """Whether a configuration is GReLU with GCN in which K alone is set."""
    if (config.backbone, config.activation) != ("gcn", "grelu"):
        return False
    return config in cells(config.dataset, epochs=config.epochs)


EXPERIMENT = Experiment(runs=30, quick_runs=6, collect=collect, render=render)
