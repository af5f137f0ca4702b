"""Runs whose loss became infinite or NaN: they stay on record, and every table says so.

Their score is that of the best epoch before, as for any run.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphrelu.lab.record.results import Result

MARK = "†"
MOST_NAMED = 5


def sentence(results: Sequence[Result]) -> str:
    """Which runs diverged, and of how many that is not recorded; empty where none did."""
    told = []
    if lost := [result for result in results if result.diverged]:
        runs = ", ".join(f"seed {r.seed} of {r.config.title}" for r in lost[:MOST_NAMED])
        more = f" and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
        told.append(
            f"{MARK} {len(lost):,} of {len(results):,} runs diverged, to a loss that is not finite "
            f"({runs}{more}); the best epoch before that counts."
        )
    if unknown := sum(result.diverged is None for result in results):
        which = "these runs" if unknown == len(results) else f"{unknown:,} of these runs"
        told.append(f"Whether {which} diverged is not recorded.")
    return " ".join(told)
