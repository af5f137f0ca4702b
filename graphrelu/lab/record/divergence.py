"""Runs whose loss became infinite or NaN: they stay on record, and every table says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphrelu.lab.record.results import Result

MARK = "†"
MOST_NAMED = 5


def diverged(result: Result) -> bool:
    """Whether the training loss was not finite in the last epoch; the score is that of the best
    epoch before, as for any run."""
    curve = result.curves.get("train_loss", [])
    return bool(curve) and not math.isfinite(curve[-1])


def sentence(results: Sequence[Result]) -> str:
    """Which runs diverged; empty where none did."""
    runs = [f"seed {r.seed} of {r.config.title}" for r in results if diverged(r)]
    if not runs:
        return ""
    names = ", ".join(runs[:MOST_NAMED])
    more = f" and {len(runs) - MOST_NAMED:,} more" if len(runs) > MOST_NAMED else ""
    return (
        f"{MARK} {len(runs):,} of {len(results):,} runs diverged, to a loss that is not finite "
        f"({names}{more}); the best epoch before that counts."
    )
