"""What the paper observes of its runtimes: GReLU slower than ReLU but faster than Maxout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce.findings import Finding, Observation

Timing: TypeAlias = dict[str, Any]  # a line of the record
MODES = {"one": "one run at a time", "batched": "many runs at once"}
CLAIM, PAPER = "GReLU is slower than ReLU but faster than Maxout", "no numbers"


def observations(timings: Iterable[Timing]) -> list[Observation]:
    """One line for each graph, machine and way of training."""
    groups = groupby(sorted(timings, key=_group), key=_group)
    found = [_observation(*group, list(part)) for group, part in groups]
    return [o for o in found if o] or [Observation(CLAIM, PAPER, "not measured yet", "")]


def _group(timing: Timing) -> tuple[str, str, str]:
    return timing["dataset"], timing["device"], timing["mode"]


def _observation(
    dataset: str, device: str, mode: str, timings: Sequence[Timing]
) -> Observation | None:
    by_backbone: dict[str, dict[str, Timing]] = {}
    for timing in timings:  # of several measurements of the same, the last
        by_backbone.setdefault(timing["backbone"], {})[timing["activation"]] = timing
    whole = [own for own in by_backbone.values() if own.keys() >= {"relu", "grelu", "maxout"}]
    if not whole:
        return None
    slower = [_faster(own["relu"], own["grelu"]) for own in whole]
    faster = [_faster(own["grelu"], own["maxout"]) for own in whole]
    outcome: Finding = "holds"
    if "undecided" in (*slower, *faster):
        outcome = "undecided"
    if "does not hold" in (*slower, *faster):
        outcome = "does not hold"
    return Observation(
        f"{CLAIM} ({label(dataset)}, {device}, {MODES[mode]})",
        PAPER,
        outcome,
        f"{_ratios(whole, 'relu')} times ReLU's time, slower with {slower.count('holds')} of "
        f"{len(whole)} backbones; {_ratios(whole, 'maxout')} times Maxout's, faster with "
        f"{faster.count('holds')}",
    )


def _faster(first: Timing, second: Timing) -> Finding:
    if max(first["repeats"]) < min(second["repeats"]):
        return "holds"
    return "does not hold" if min(first["repeats"]) > max(second["repeats"]) else "undecided"


def _ratios(whole: Sequence[dict[str, Timing]], rival: str) -> str:
    ratios = [own["grelu"]["seconds"] / own[rival]["seconds"] for own in whole]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"
