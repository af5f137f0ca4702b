"""Parts of pages: lines beside the paper's numbers, and counts of what was decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from statistics import fmean, median
from typing import Any

from graphrelu.lab.render import label, marked, p_value, signed
from graphrelu.lab.reproduce import files
from graphrelu.lab.reproduce.table import Row
from graphrelu.lab.stats import Decision

OUTCOMES = ("better", "no difference", "undecided", "worse")
TALLY = ("mean lead", "median", *OUTCOMES)


def counts(leads: Iterable[Decision]) -> tuple[str, ...]:
    """In how many cells each outcome was found."""
    outcomes: list[str] = [lead.outcome for lead in leads]
    return tuple(str(outcomes.count(outcome)) for outcome in OUTCOMES)


def tally(leads: Iterable[Decision | None]) -> list[tuple[str, ...]]:
    """The mean and the median lead, and the cells by outcome: one line, or none without leads."""
    found = [lead for lead in leads if lead is not None]
    if not found:
        return []
    middle = (f"{of(lead.difference for lead in found):+.2f}" for of in (fmean, median))
    return [(*middle, *counts(found))]


def tallies(rows: Iterable[Row], field: str, better: str = "higher mean") -> str:
    """GReLU's leads of a column by rival, counted."""
    leads: dict[str, list[Decision]] = {}
    for row in rows:
        if row[field] is not None:
            leads.setdefault(row.activation, []).append(row[field])
    lines = [
        (label(rival), *counts(own), str(sum(lead.difference > 0 for lead in own)))
        for rival, own in leads.items()
    ]
    return files.table(("rival", *OUTCOMES, better), lines, numbers=1)


def by_cell(rows: Iterable[Row]) -> dict[Any, dict[Any, Row]]:
    """The rows by cell and name."""
    found: dict[Any, dict[Any, Row]] = {}
    for row in rows:
        found.setdefault(row.cell, {})[row.name] = row
    return found


def with_best(rows: Iterable[Row], key: Callable[[Row], Any]) -> list[tuple[Row, bool]]:
    """Rows, and whether each has the highest mean among its neighbours with the same key."""
    groups = [list(group) for _, group in groupby(rows, key=key)]
    return [(row, row.mean == max(one.mean for one in group)) for group in groups for row in group]


def accuracy(row: Row, bold: bool = False) -> str:
    """Mean, standard deviation and number of runs: ``81.2 ± 1.0 (12)``."""
    shown = f"{row.mean:.1f} ± {row.std:.1f} ({row.n})"
    return f"**{shown}**" if bold else shown


def papers(row: Row) -> str:
    return "" if row["paper_mean"] is None else f"{row['paper_mean']:.1f} ± {row['paper_std']:.1f}"


def line(row: Row, bold: bool = False) -> tuple[str, ...]:
    """Backbone, activation, ours, the paper's, the difference, GReLU's lead over ReLU and its p."""
    difference = "" if row["difference"] is None else signed(row["difference"])
    names = (label(row.backbone), label(row.activation))
    return (*names, accuracy(row, bold), papers(row), difference, *lead_and_p(row["over_relu"]))


def lead_and_p(lead: Decision | None) -> tuple[str, str]:
    """A lead with its mark, and its corrected p-value."""
    return marked(lead), p_value(None if lead is None else lead.p)
