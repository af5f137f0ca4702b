"""What a comparison says about GReLU, in one sentence that claims no more than was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from graphrelu.lab.render.tables import CompareRow, amount, label, measured
from graphrelu.lab.stats.comparison import SIGNIFICANCE, Comparison, fewest_seeds

POWER = 0.8
MOST_SEEDS = 1_000
# Of the Wilcoxon test, relative to the t-test, for normally distributed differences.
WILCOXON_EFFICIENCY = 3 / math.pi


def verdict(rows: Sequence[CompareRow]) -> str:
    """Whether GReLU is better than ReLU here, and whether another activation is ahead of it."""
    by_name = {row.activation: row for row in rows}
    if "grelu" not in by_name:
        return "GReLU is not among these activations, so this table says nothing about it."
    if len(rows) == 1:
        return "GReLU stands alone in this table, so there is nothing to compare it with."
    lead = by_name["grelu"].over_relu
    if "relu" not in by_name:
        against_relu = "Whether GReLU helps is open, as ReLU is not among these activations"
    elif lead is None:
        against_relu = "Whether GReLU helps is open, as it shares no seed with ReLU"
    else:
        against_relu = _against_relu(lead, sum(row.over_relu is not None for row in rows))
    rest = _against_the_rest(rows, beaten_too="relu" not in by_name)
    return "; ".join(part for part in (against_relu, rest) if part) + "."


def seeds_needed(lead: Comparison, comparisons: int) -> int | None:
    """Roughly how many seeds decide a difference of this size four times out of five.

    To two digits, as the size is itself an estimate; ``None`` if more seeds would not help.
    """
    if not lead.std or not lead.difference:
        return None
    level, power = 1 - SIGNIFICANCE / (2 * comparisons), POWER
    quantiles = NormalDist().inv_cdf(level) + NormalDist().inv_cdf(power)
    n = (quantiles * lead.std / lead.difference) ** 2 / WILCOXON_EFFICIENCY
    rounding = 10 ** max(0, math.floor(math.log10(n)) - 1)
    needed = math.ceil(n / rounding) * rounding
    return needed if needed > lead.n else None


def _against_relu(lead: Comparison, comparisons: int) -> str:
    fewest = fewest_seeds(comparisons)
    takes = f"a significant difference takes {fewest} seeds or more"
    if comparisons > 1:
        takes = f"in a table of {comparisons} comparisons {takes}"
    lead_is = f"GReLU's lead over ReLU is {amount(lead)} {lead.unit}"
    if lead.n == 1:
        return f"One seed decides nothing: there {lead_is}, and {takes}"
    if lead.n < fewest:
        return f"{lead.n} seeds are too few to decide: {lead_is}, and {takes}"
    if lead.low == lead.high == 0:
        return f"GReLU and ReLU scored the same on each of {lead.n} seeds"
    found = measured(lead)
    if lead.outcome != "undecided":
        return f"GReLU is significantly {lead.outcome} than ReLU here ({found})"
    needed = seeds_needed(lead, comparisons)
    more = ""
    if needed is not None:
        size = f"over {MOST_SEEDS:,}" if needed > MOST_SEEDS else f"roughly {needed:,}"
        more = f", and a difference of this size takes {size} seeds to decide"
    return f"Whether GReLU beats ReLU here is undecided at this many seeds ({found}){more}"


def _against_the_rest(rows: Sequence[CompareRow], beaten_too: bool) -> str:
    leads = {label(row.activation): row.grelu_over_it for row in rows if row.grelu_over_it}
    if not leads:
        return ""
    better = [name for name, lead in leads.items() if lead.outcome == "worse"]
    if better:
        return (
            f"{_listed(better)} {'is' if len(better) == 1 else 'are'} significantly ahead of GReLU"
        )
    beaten = [name for name, lead in leads.items() if lead.outcome == "better"]
    name, lead = min(leads.items(), key=lambda item: item[1].difference)
    if lead.difference < 0:
        size = "less than 0.1" if lead.difference > -0.05 else f"{-lead.difference:.1f}"
        size = size if lead.unit == "points" else f"{-lead.difference:.3g}"
        rest = f"{name} is {size} {lead.unit} ahead of GReLU, but not significantly"
    else:
        rest = f"no other activation has a {'higher' if lead.unit == 'points' else 'lower'} mean"
    return (
        f"it is significantly ahead of {_listed(beaten)}; {rest}" if beaten_too and beaten else rest
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
