"""A line on the screen for each batch of runs, without the terminal's packages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphrelu.lab.record.results import Record

if TYPE_CHECKING:
    from graphrelu.lab.engine import Progress


class BatchLines:
    """Prints one line for each batch of runs that is on record."""

    def __init__(self, record: Path) -> None:
        self._record = Record(record)
        self._since = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if progress.epoch < progress.epochs:
            return
        config, seeds = progress.config, progress.seeds
        scores = {r.seed: r.score for r in self._record.read() if r.config == config}
        if not scores.keys() >= set(seeds):
            return  # trained, and about to be written
        mean = 100 * sum(scores[seed] for seed in seeds) / len(seeds)
        now = time.monotonic()
        print(
            f"[{progress.runs_done}/{progress.runs_total}] "
            f"{config.title}, seeds {spans(seeds)}: "
            f"{mean:.1f} %, {now - self._since:.1f} s",
            flush=True,
        )
        self._since = now


def spans(seeds: Sequence[int]) -> str:
    """Seeds in short: ``0-9, 12``."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
