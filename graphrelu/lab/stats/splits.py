"""What the splits of several runs share, and so what an interval over them is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from statistics import fmean

from graphrelu.lab.data.splits import FULL_SHARES, SMALL_SHARES, Split
from graphrelu.lab.record.config import GIN_SPLITS, Config

# Two splits share most of their training data from here on: a training part has this share of all
# labelled nodes or graphs. Folds, 80 / 10 / 10, 60 / 20 / 20 and 48 / 32 / 20 % have it; 20 nodes
# per class have a twentieth.
MOST = 0.4
FEWEST = 5  # runs, or splits, that an interval takes
# Of several published splits whose sizes are not on record: the widest interval of the usual ones,
# 50 / 25 / 25 %.
USUAL_MASKS = (0.5, 0.25)


@dataclass(frozen=True)
class Splits:
    """``share`` is that of the training part in all labelled nodes or graphs, ``ratio`` the size of
    the test part over that of the training part. ``num_test`` is the size of the smallest test
    part, ``count`` the number of different splits, where there are so many only: the split of a
    seed is then ``seed % count``.
    """

    share: float = 0.0
    ratio: float = 0.0
    num_test: int | None = None
    count: int | None = None

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


ONE = Splits(count=1)


def splits_of(config: Config, note: str = "") -> Splits:
    """What a record says of the splits of a cell: their shares, but no sizes."""
    how, count = config.split, None
    if how == "masks":
        several = re.search(r"split \d+ of (\d+)", note)
        count = int(several[1]) if several else 1
        shares = USUAL_MASKS if count > 1 else (0.0, 1.0)
    elif how == "published":
        return ONE
    elif how == "random":
        if not note.startswith("48 / 32 / 20 %"):
            return Splits()  # few labels
        shares = SMALL_SHARES[0], 1 - sum(SMALL_SHARES)
    elif how == "full":
        shares = FULL_SHARES[0], 1 - sum(FULL_SHARES)
    else:
        shares = (0.9 if how in GIN_SPLITS else 0.8), 0.1
    train, test = shares
    return Splits(train, test / train if train else 0.0, None, count)


def measured(
    split: Callable[[int], Split], seeds: Collection[int], total: int, known: Splits
) -> Splits:
    """The same with the real sizes of the splits of some seeds, of ``total`` labelled items."""
    sizes = [(len(one.train), len(one.test)) for one in map(split, seeds)]
    return Splits(
        share=fmean(train for train, _ in sizes) / total,
        ratio=fmean(test / train for train, test in sizes),
        num_test=min(test for _, test in sizes),
        count=known.count,
    )
