"""Runs whose loss became infinite or NaN: they stay on record, and every table says so."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphrelu.lab.record.results import Result

MARK = "†"
MOST_NAMED = 5


def diverged(result: Result) -> bool | None:
    """Whether the training loss was not finite in the last epoch; the score is that of the best
    epoch before, as for any run. ``None`` where an older record does not say."""
    if result.diverged is not None:
        return result.diverged
    curve = result.curves.get("train_loss", [])
    return not math.isfinite(curve[-1]) if curve else None


def sentence(results: Sequence[Result]) -> str:
    """Which runs diverged, and of how many that is not recorded; empty where none did."""
    found = [diverged(result) for result in results]
    told = []
    if lost := [result for result, own in zip(results, found, strict=True) if own]:
        runs = ", ".join(f"seed {r.seed} of {r.config.title}" for r in lost[:MOST_NAMED])
        more = f" and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
        told.append(
            f"{MARK} {len(lost):,} of {len(results):,} runs diverged, to a loss that is not finite "
            f"({runs}{more}); the best epoch before that counts."
        )
    if unknown := found.count(None):
        which = "these runs" if unknown == len(found) else f"{unknown:,} of these runs"
        told.append(f"Whether {which} diverged is not recorded.")
    return " ".join(told)
