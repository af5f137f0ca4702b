"""What a comparison says about GReLU, in one sentence that claims no more than was found."""

from __future__ import annotations

from collections.abc import Sequence

from graphrelu.lab.render.tables import CompareRow, amount, label, over_seeds
from graphrelu.lab.stats.decision import Decision


def verdict(rows: Sequence[CompareRow]) -> str:
    """Whether GReLU is better than ReLU here, and which activation has the highest mean."""
    by_name = {row.activation: row for row in rows}
    if "grelu" not in by_name:
        return "GReLU is not among these activations, so this table says nothing about it."
    if len(rows) == 1:
        return "GReLU stands alone in this table, so there is nothing to compare it with."
    lead = by_name["grelu"].over_relu
    if "relu" not in by_name:
        return "Whether GReLU helps is open, as ReLU is not among these activations."
    if lead is None:
        return "Whether GReLU helps is open, as it shares no seed with ReLU."
    best = (min if rows[0].is_error else max)(rows, key=lambda row: row.mean)
    rest = ""
    if best.activation not in ("relu", "grelu") and best.over_relu is not None:
        found = f"{amount(best.over_relu)}, {best.over_relu.outcome}"
        end = "lowest" if best.is_error else "highest"
        rest = f" The {end} mean is that of {label(best.activation)} ({found})."
    return f"{_against_relu(lead)}.{rest}"


def decided(rows: Sequence[CompareRow]) -> bool:
    """Whether more seeds are not needed: GReLU's lead over ReLU is decided."""
    leads = [row.over_relu for row in rows if row.activation == "grelu"]
    return any(lead is not None and lead.outcome != "undecided" for lead in leads)


def _against_relu(lead: Decision) -> str:
    found = over_seeds(lead)
    if lead.outcome == "no difference":
        return (
            f"GReLU makes no difference that matters here: keep ReLU ({found}, all of it within "
            f"{lead.margin:g})"
        )
    if lead.outcome != "undecided":
        return f"GReLU is {lead.outcome} than ReLU here ({found})"
    takes = "no number of seeds decides it if the differences stay as they are"
    if lead.runs is not None:
        takes = f"about {lead.runs:,} seeds decide it if the differences stay as they are"
    if lead.std is None:
        takes = f"a decision takes {lead.runs} seeds or more"
    return f"Whether GReLU is better than ReLU here is undecided ({found}); {takes}"
