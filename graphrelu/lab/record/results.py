"""An append-only record: a JSON line for the runs of each batch, and for each look at them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from graphrelu.lab.record import kinds
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.journal import Journal
from graphrelu.lab.record.looks import Look

# A line says once what its runs have in common; the rest are lists, a value for each run. The note
# is a list where the runs have different ones.
COMMON = ("config", "device", "versions", "commit", "date")
SET_SCORES = "val"  # the curve of a set of graphs that tells how soon a score is reached


@dataclass(frozen=True)
class Result:
    """One finished run. Scores are shares in [0, 1], but for R², which has no lower bound, and for
    errors, which are negative: higher is better. All are the best epoch's.

    The best epoch is the one that ``config.select`` names, and ``score`` the metric on the test
    nodes, or graphs, then. ``curves`` are thinned (see :func:`thin`), but for :data:`SET_SCORES`;
    ``note`` says how the nodes were split.
    ``seconds``, of the epochs, and ``peak_memory``, the bytes that a GPU held at most, are those of
    the batch that the run was trained in, divided by the runs of the batch. ``diverged`` says
    whether the training loss was not finite in the last epoch. ``epochs_computed`` are the epochs
    that ``seconds`` were spent on: a run that has stopped is computed until its whole batch has.
    ``steps`` are those of the optimiser on mini-batches. Older records have seconds that include
    first calls, and none of the fields with a default; a CPU has no peak memory either.
    """

    config: Config
    seed: int
    score: float
    val_score: float
    best_epoch: int
    epochs_run: int
    train_loss: float
    val_loss: float
    test_loss: float
    curves: dict[str, list[float]]
    seconds: float
    device: str
    versions: dict[str, str]
    date: str
    commit: str | None
    note: str
    calibration_error: float = math.nan
    parameters: int | None = None
    peak_memory: int | None = None
    diverged: bool | None = None
    epochs_computed: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        metric = self.config.metric
        low = -kinds.LARGEST if metric in (*ERRORS, "r2") else 0
        high = 0 if metric in ERRORS else 1
        if not low <= self.score <= high:
            raise ValueError(f"A score lies in [{low:g}, {high}], unlike {self.score!r}.")
        if math.isnan(self.seconds):
            raise ValueError("A run took a number of seconds.")
        if any(len(curve) > self.epochs_run for curve in self.curves.values()):
            raise ValueError("A curve is longer than the run.")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a number that is not finite becomes ``None``."""
        return kinds.plain(vars(self) | {"config": self.config.to_dict()})


OWN = tuple(field.name for field in fields(Result) if field.name not in COMMON)


class Batch(NamedTuple):
    """Runs to train at once. They are recorded in one line: what a killed process was at is
    composed anew as it was, and comes out the same."""

    config: Config
    seeds: tuple[int, ...]


class Record(Journal):
    """A JSONL file of runs, which one command at a time writes and any number may read.

    A line that a killed process left incomplete is not data, and the next writer starts on a
    fresh one. A lock file, ``<path>.lock``, lies beside the record once it was written to. Without
    ``curves`` the training curves of runs are not written, but for :data:`SET_SCORES`.
    """

    def __init__(self, path: str | Path, curves: bool = True) -> None:
        super().__init__(path)
        self._curves = curves
        self._results: dict[str, dict[int, Result]] = {}
        self._looks: dict[str, list[Look]] = {}
        self._corrupt: list[int] = []

    @property
    def corrupt_lines(self) -> list[int]:
        """The numbers, from 1, of the lines that could not be read, at the last look."""
        return self._corrupt + ([self.lines + 1] if self.torn else [])

    def read(self) -> list[Result]:
        """All finished runs, cell by cell; of the same configuration and seed, the first."""
        self._refresh()
        return [result for cell in self._results.values() for result in cell.values()]

    def append(self, results: Iterable[Result]) -> None:
        """Write finished runs; on return they are on the disk."""
        if not self._curves:
            results = [
                replace(run, curves={n: c for n, c in run.curves.items() if n == SET_SCORES})
                for run in results
            ]
        entries = list(together(results))
        with self.exclusive():
            self.write("finished", entries)

    def looks(self, cell: str) -> list[Look]:
        """The looks at a comparison, in their order."""
        self._refresh()
        return list(self._looks.get(cell, []))

    def add_look(self, look: Look) -> list[Look]:
        """All looks up to this one, which is written, unless it says nothing new: on return it is
        on the disk."""
        if not look.says_nothing_new(self.looks(look.cell)):
            with self.exclusive():
                self._refresh()
                self.write("looked", [asdict(look)])
        return self.looks(look.cell)

    def left(self, config: Config, seeds: Iterable[int]) -> list[int]:
        """The seeds of a cell that are not on record, each once."""
        self._refresh()
        finished = self._results.get(config.key(), {})
        return [seed for seed in dict.fromkeys(seeds) if seed not in finished]

    def _refresh(self) -> None:
        first = self.lines + 1
        for number, entry in enumerate(self.news(), start=first):
            try:
                self._take(entry or {})
            except (AttributeError, KeyError, TypeError, ValueError):
                self._corrupt.append(number)

    def _take(self, entry: dict[str, Any]) -> None:
        event = entry.pop("event")
        if event == "looked":
            look: Look = kinds.read(Look, entry)
            self._looks.setdefault(look.cell, []).append(look)
        elif event == "finished":
            for result in _apart(entry):
                self._results.setdefault(result.config.key(), {}).setdefault(result.seed, result)
        elif event not in ("started", "released"):  # of version 0.2
            raise ValueError(f"There is no event {event!r}.")


def kept_positions(length: int, at_most: int = 50) -> list[int]:
    """Where the values lie that :func:`thin` keeps: evenly spaced, first and last included."""
    if length <= at_most:
        return list(range(length))
    return [round(i * (length - 1) / (at_most - 1)) for i in range(at_most)]


def thin(values: Sequence[float], at_most: int = 50) -> list[float]:
    """A curve with fewer points, of four digits each: enough to draw it."""
    return [float(f"{float(values[i]):.4g}") for i in kept_positions(len(values), at_most)]


def together(results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Runs as entries; runs with the same surroundings share an entry."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        plain = result.to_dict()
        groups.setdefault(json.dumps([plain[name] for name in COMMON]), []).append(plain)
    for runs in groups.values():
        entry = {name: runs[0][name] for name in COMMON}
        entry |= {name: [run[name] for run in runs] for name in OWN}
        if len(set(entry["note"])) == 1:
            entry["note"] = entry["note"][0]
        yield entry


def _apart(entry: dict[str, Any]) -> list[Result]:
    """The runs of an entry; those of an older one lack fields that have a default, and may have the
    accuracy of each class."""
    entry.pop("class_accuracy", None)
    if isinstance(entry["note"], str):
        entry["note"] = [entry["note"]] * len(entry["seed"])
    common: dict[str, Any] = {"config": Config.from_dict(entry.pop("config"))}
    common |= kinds.read_fields(Result, {name: entry.pop(name) for name in COMMON[1:]})
    if not all(isinstance(values, list) for values in entry.values()):
        raise ValueError("A field is no list of a value for each run.")
    runs = (zip(entry, run, strict=True) for run in zip(*entry.values(), strict=True))
    return [Result(**common, **kinds.read_fields(Result, dict(run))) for run in runs]
