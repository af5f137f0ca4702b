"""How often a comparison was looked at: each look is a line of its record.

A look is a verdict on a set of runs. The same set again is the same look, so that the same runs
always get the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphrelu.lab.record import kinds
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import now

PRIMARY = "grelu"
SPLITS: Mapping[str, kinds.Kind] = {
    "share": lambda value: kinds.number(value) and 0 <= value <= 1,
    "ratio": lambda value: kinds.number(value) and value >= 0,
    "num_test": lambda value: value is None or (kinds.whole(value) and value > 0),
    "count": lambda value: value is None or (kinds.whole(value) and value > 0),
}
KINDS: Mapping[str, kinds.Kind] = {
    **dict.fromkeys(("cell", "dataset", "backbone", "command", "date"), kinds.text),
    "margin": lambda value: kinds.number(value) and value >= 0,
    "splits": lambda value: isinstance(value, dict) and value.keys() == SPLITS.keys(),
    "pairs": kinds.named(kinds.text),
}


@dataclass(frozen=True)
class Look:
    """One look at a comparison or, without ``pairs``, its beginning.

    ``cell`` are the digits of :meth:`~graphrelu.lab.record.config.Config.cell_key`. ``splits`` are
    the fields of :class:`~graphrelu.lab.stats.Splits`. ``command`` is the one that goes on,
    but for the number of runs and the record. ``pairs`` are the seeds that each activation shares
    with ReLU, such as ``"0-9"``.
    """

    cell: str
    dataset: str
    backbone: str
    margin: float
    splits: dict[str, Any]
    command: str
    pairs: dict[str, str]
    date: str

    @classmethod
    def announced(
        cls, config: Config, margin: float, splits: Mapping[str, Any], command: str
    ) -> Look:
        """A comparison before its runs are there; ``config`` is any activation's."""
        names = (config.cell_key(), config.dataset, config.backbone)
        return cls(*names, margin, dict(splits), command, {}, now())

    def at(self, seeds: Mapping[str, Collection[int]]) -> Look:
        """The next look, at runs with these seeds by activation."""
        relu = set(seeds.get("relu", ()))
        pairs = {name: relu & set(own) for name, own in seeds.items() if name != "relu"}
        told = {name: in_ranges(own) for name, own in pairs.items() if own}
        return replace(self, pairs=told, date=now())

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Look:
        kinds.check(plain, KINDS)
        kinds.check(plain["splits"], SPLITS)
        if plain.keys() != KINDS.keys():
            raise ValueError("A look has no such field.")
        return cls(**plain)

    def says_nothing_new(self, before: Sequence[Look]) -> bool:
        """Whether these runs were looked at before, and the last look differs in its date only."""
        known = any(look.pairs == self.pairs for look in before)
        return known and replace(before[-1], pairs=self.pairs, date=self.date) == self


def numbers(looks: Sequence[Look], pairs: Mapping[str, str]) -> tuple[int, int]:
    """Which look these pairs are, from 1: at GReLU against ReLU, and at the others."""

    def number(of_primary: bool) -> int:
        several = [
            tuple(sorted(pair for pair in one.items() if (pair[0] == PRIMARY) == of_primary))
            for one in (*(look.pairs for look in looks), pairs)
        ]
        seen = list(dict.fromkeys(filter(None, several)))
        return seen.index(several[-1]) + 1 if several[-1] else 1

    return number(True), number(False)


def in_ranges(seeds: Collection[int]) -> str:
    """Seeds in a few characters: ``0-9,12``."""
    ends: list[list[int]] = []
    for seed in sorted(seeds):
        if ends and seed == ends[-1][1] + 1:
            ends[-1][1] = seed
        else:
            ends.append([seed, seed])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ends)
