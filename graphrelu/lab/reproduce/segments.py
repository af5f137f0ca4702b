"""The effect of K: GReLU with two to seven segments on the citation graphs, with GCN."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from graphrelu.lab import stats
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import figures, files, shown
from graphrelu.lab.reproduce.table import Pair, Place, Row, Table

SEGMENTS = (2, 3, 4, 5, 6, 7)
MARGIN = 1.0  # percentage points: a smaller difference does not matter


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """One cell for each graph; K = 2 is a cell of the main table."""
    options = {K: {} if K == 2 else {"K": K} for K in SEGMENTS}
    return {
        ((dataset, "gcn"), K): recipe(dataset, "gcn", "grelu", activation_options=own, **changes)
        for K, own in options.items()
    }


def values(row: Row) -> dict[str, Any]:
    """K, and the ends of the mean's 95 % interval, which includes the differences of splits."""
    reach = stats.half_width(row.std, row.n) if row.n > 1 else None
    low, high = (None, None) if reach is None else (row.mean - reach, row.mean + reach)
    return {"activation": "grelu", "K": row.name, "low": low, "high": high}


def page(rows: list[Row]) -> dict[str, Any]:
    lines = [
        (label(row.dataset), str(row.name), shown.accuracy(row), *shown.lead_and_p(row["over_two"]))
        for row in rows
    ]
    head = ("dataset", "K", "ours", "difference to K = 2", "p")
    return {"margin": MARGIN, "table": files.table(head, lines, numbers=1)}


def draw(rows: Sequence[Row]) -> figures.Figure:
    """Means with their intervals, as in the paper's figure; and the paired differences."""
    figure, ((means, differences),) = figures.panels(1, 2, figsize=(7.5, 3.2))
    for place, ((dataset, part), style) in enumerate(
        zip(groupby(rows, key=lambda row: row.dataset), figures.line_styles(), strict=False)
    ):
        several = list(part)
        means.plot(
            [r.name for r in several], [r.mean for r in several], label=label(dataset), **style
        )
        banded = [(r.name, r["low"], r["high"]) for r in several if r["low"] is not None]
        if banded:
            means.fill_between(*zip(*banded, strict=True), color=style["color"], alpha=0.15)
        beside = [(row.name + 0.12 * (place - 1), row["over_two"]) for row in several]
        figures.draw_leads(differences, beside, {**style, "linestyle": "none"})
    means.set(xlabel="K, number of segments", ylabel="test accuracy (%)", xticks=SEGMENTS)
    figure.legend(loc="outside upper center", ncols=3)
    for edge in (-MARGIN, MARGIN):
        differences.axhline(edge, color="black", linewidth=0.8, linestyle=":")
    differences.axhline(0, color="black", linewidth=0.8)
    differences.set(xlabel="K, number of segments", ylabel="difference to K = 2 (points)")
    differences.set_xticks(SEGMENTS[1:])
    return figure


TABLE = Table(
    name="segments",
    datasets=("cora", "pubmed", "citeseer"),
    cells=cells,
    runs=30,
    quick_runs=6,
    pairs=(Pair("over_two", None, 2, family=lambda cell, name: None),),
    columns=("K", "low", "high", "over_two"),
    page=page,
    values=values,
    figure=draw,
    family="the table",
    margin=MARGIN,
)
