"""The verdict on the runs of a record, which counts how often they were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.looks import Look, in_ranges, numbers
from graphrelu.lab.record.machine import now
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.stats.comparison import over_relu
from graphrelu.lab.stats.decision import Decision
from graphrelu.lab.stats.splits import Splits


@dataclass(frozen=True)
class Judged:
    """The decisions by activation, and the command that goes on, but for the number of runs and the
    record. A look that could not be written to the record is not ``counted``."""

    decisions: dict[str, Decision]
    command: str
    counted: bool = True


def begin(record: Record, config: Config, margin: float, splits: Splits, command: str) -> None:
    """Announce a comparison before its runs are there; ``config`` is that of any activation."""
    names = (config.cell_key(), config.dataset, config.backbone)
    record.add_look(Look(*names, margin, asdict(splits), command, {}, now()))


def judge(record: Record, results: Sequence[Result], must_count: bool = True) -> Judged:
    """The decisions on the runs of a comparison that was announced.

    The look is written before anything is returned. Where it cannot be written, that is an error
    or, if it need not count, the decisions are those of this look all the same.
    """
    config = results[0].config
    before = record.looks(config.cell_key())
    scores: dict[str, dict[int, float]] = {}
    for result in results:
        scores.setdefault(result.config.variant, {})[result.seed] = result.score
    relu = scores.get("relu", {}).keys()
    pairs = {name: in_ranges(own.keys() & relu) for name, own in scores.items() if name != "relu"}
    look = replace(before[-1], pairs={name: own for name, own in pairs.items() if own}, date=now())
    counted = True
    try:
        before = record.add_look(look) if look.pairs else before
    except OSError:
        if must_count:
            raise
        counted = False
    looks = numbers(before, look.pairs)
    splits, is_error = Splits(**look.splits), config.metric == "mae"
    return Judged(over_relu(scores, splits, look.margin, looks, is_error), look.command, counted)
