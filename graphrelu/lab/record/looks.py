"""How often a comparison was looked at: each look is a line of its record.

A look is a verdict on a set of runs. The same set again is the same look, so that the same runs
always get the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import now

PRIMARY = "grelu"
FEWEST = 5  # runs, or splits, that an interval takes
# Two splits share most of their training data from here on: a training part has this share of all
# labelled nodes or graphs. Folds, 80 / 10 / 10, 60 / 20 / 20 and 48 / 32 / 20 % have it; 20 nodes
# per class have a twentieth.
MOST = 0.4


@dataclass(frozen=True)
class Splits:
    """``share`` is that of the training part in all labelled nodes or graphs, ``ratio`` the size of
    the test part over that of the training part. ``num_test`` is the size of the smallest test
    part. ``count`` is the number of different splits where it is limited: the split of a seed is
    then ``seed % count``.
    """

    share: float = 0.0
    ratio: float = 0.0
    num_test: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.num_test, self.count)
        if not (
            0 <= self.share <= 1 and self.ratio >= 0 and all(n is None or n > 0 for n in sizes)
        ):
            raise ValueError(f"There are no such splits: {self}.")

    @property
    def overlap(self) -> bool:
        """Whether the splits share most of their training data."""
        return self.share >= MOST and (self.count is None or self.count >= FEWEST)

    @property
    def shared(self) -> float:
        """What is added to the variance factor 1/n: by `Nadeau and Bengio (2003)
        <https://doi.org/10.1023/A:1024068626366>`_ n_test / n_train, or nothing."""
        return self.ratio if self.overlap else 0.0

    def about(self, n: int) -> str:
        """What an interval over ``n`` runs is about."""
        if self.overlap:
            return (
                "over other data like this (corrected for the training data that the splits share)"
            )
        if self.count is not None and n > self.count:
            what = "one split" if self.count == 1 else f"{self.count} splits"
            return f"over seeds of {what}; nothing is said about other splits"
        return "over random splits of this data"


@dataclass(frozen=True)
class Look:
    """One look at a comparison or, without ``pairs``, its beginning.

    ``cell`` are the digits of :meth:`~graphrelu.lab.record.config.Config.cell_key`. ``command`` is
    the one that goes on, but for the number of runs and the record. ``pairs`` are the seeds that
    each activation shares with ReLU, such as ``"0-9"``.
    """

    cell: str
    dataset: str
    backbone: str
    margin: float
    splits: Splits
    command: str
    pairs: dict[str, str]
    date: str

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"A margin is a number of at least 0, not {self.margin}.")

    @classmethod
    def announced(cls, config: Config, margin: float, splits: Splits, command: str) -> Look:
        """A comparison before its runs are there; ``config`` is any activation's."""
        names = (config.cell_key(), config.dataset, config.backbone)
        return cls(*names, margin, splits, command, {}, now())

    def at(self, seeds: Mapping[str, Collection[int]]) -> Look:
        """The next look, at runs with these seeds by activation."""
        relu = set(seeds.get("relu", ()))
        pairs = {name: relu & set(own) for name, own in seeds.items() if name != "relu"}
        told = {name: in_ranges(own) for name, own in pairs.items() if own}
        return replace(self, pairs=told, date=now())

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
