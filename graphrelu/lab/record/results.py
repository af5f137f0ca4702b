"""An append-only record: a JSON line for the runs of each batch, and for each look at them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from graphrelu.lab.record import kinds
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.journal import Journal, parse_line
from graphrelu.lab.record.looks import Look

LOSSES = ("train_loss", "val_loss", "test_loss")
FLOATS = ("score", "val_score", *LOSSES, "calibration_error", "seconds")
KINDS: dict[str, kinds.Kind] = {
    "seed": kinds.whole,
    **dict.fromkeys(FLOATS, kinds.optional(kinds.number)),
    "seconds": kinds.number,
    "best_epoch": kinds.whole,
    "epochs_run": kinds.whole,
    "parameters": kinds.optional(kinds.whole),
    "peak_memory": kinds.optional(kinds.whole),
    "class_accuracy": kinds.optional(kinds.listed(kinds.optional(kinds.number))),
    "diverged": kinds.optional(kinds.switch),
    "epochs_computed": kinds.optional(kinds.whole),
    "steps": kinds.optional(kinds.whole),
    "curves": kinds.named(kinds.listed(kinds.optional(kinds.number), least=0)),
    **kinds.SURROUNDINGS,
    "note": kinds.text,
}
# A line says once what its runs have in common; the rest are lists, a value for each run. The note
# is a list where the runs have different ones.
COMMON = ("config", *kinds.SURROUNDINGS)
OWN = tuple(name for name in KINDS if name not in COMMON)
# Not in older records.
LATER = (
    *("calibration_error", "parameters", "peak_memory", "class_accuracy"),
    *("diverged", "epochs_computed", "steps"),
)
SET_SCORES = "val"  # the curve of a set of graphs that tells how soon a score is reached


@dataclass(frozen=True)
class Result:
    """One finished run. Scores are shares in [0, 1], but for R², which has no lower bound, and for
    errors, which are negative: higher is better. All are the best epoch's.

    The best epoch is the one that ``config.select`` names, and ``score`` the metric on the test
    nodes, or graphs, then. ``curves`` are thinned (see :func:`thin`), but for :data:`SET_SCORES`;
    ``note`` says how the nodes were split.
    ``seconds``, of the epochs, and ``peak_memory``, the bytes that a GPU held at most, are those of
    the batch that the run was trained in, divided by the runs of the batch. ``class_accuracy`` is
    the share of each class's test nodes that are predicted right, ``None`` for a class without test
    nodes. ``diverged`` says whether the training loss was not finite in the last epoch.
    ``epochs_computed`` are the epochs that ``seconds`` were spent on: a run that has stopped is
    computed until its whole batch has. ``steps`` are those of the optimiser on mini-batches. Older
    records have seconds that include first calls, and none of :data:`LATER`; a CPU has no peak
    memory either, and many classes have no accuracy of their own.
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
    class_accuracy: list[float | None] | None = None
    diverged: bool | None = None
    epochs_computed: int | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int):
            raise ValueError(f"A seed is a whole number, not {self.seed!r}.")
        metric = self.config.metric
        low = -kinds.LARGEST if metric in (*ERRORS, "r2") else 0
        high = 0 if metric in ERRORS else 1
        if not low <= self.score <= high:
            raise ValueError(f"A score lies in [{low:g}, {high}], unlike {self.score!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a loss that is not finite becomes ``None``."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["config"] = self.config.to_dict()
        plain |= {name: _to_json(plain[name]) for name in FLOATS}
        plain["curves"] = {name: list(map(_to_json, c)) for name, c in self.curves.items()}
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Result:
        """The inverse of :meth:`to_dict`; ``None`` becomes NaN. A ``Config`` stays as it is."""
        kinds.check(plain, KINDS)
        if any(len(curve) > plain["epochs_run"] for curve in plain["curves"].values()):
            raise ValueError("A curve is longer than the run.")
        changed = dict(plain)
        if not isinstance(plain["config"], Config):
            changed["config"] = Config.from_dict(plain["config"])
        changed |= {name: _from_json(plain[name]) for name in FLOATS}
        changed["curves"] = {name: list(map(_from_json, c)) for name, c in plain["curves"].items()}
        return cls(**changed)


class Batch(NamedTuple):
    """Runs to train at once. They are recorded in one line: what a killed process was at is
    composed anew as it was, and comes out the same."""

    config: Config
    seeds: tuple[int, ...]


class Record:
    """A JSONL file of runs, which one command at a time writes and any number may read.

    A line that a killed process left incomplete is not data, and the next writer starts on a
    fresh one. A lock file, ``<path>.lock``, lies beside the record once it was written to. Without
    ``curves`` the training curves of runs are not written, but for :data:`SET_SCORES`.
    """

    def __init__(self, path: str | Path, curves: bool = True) -> None:
        self.path = Path(path)
        self._curves = curves
        self._journal = Journal(path)
        self._results: dict[str, dict[int, Result]] = {}
        self._looks: dict[str, list[Look]] = {}
        self._corrupt: list[int] = []

    @property
    def corrupt_lines(self) -> list[int]:
        """The numbers, from 1, of the lines that could not be read, at the last look."""
        return self._corrupt + ([self._journal.lines + 1] if self._journal.torn else [])

    def read(self) -> list[Result]:
        """All finished runs, cell by cell; of the same configuration and seed, the first."""
        self._refresh()
        return [result for cell in self._results.values() for result in cell.values()]

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other commands from writing; a ``ValueError`` where one does already."""
        return self._journal.exclusive()

    def append(self, results: Iterable[Result]) -> None:
        """Write finished runs; on return they are on the disk."""
        if not self._curves:
            results = [
                replace(run, curves={n: c for n, c in run.curves.items() if n == SET_SCORES})
                for run in results
            ]
        entries = list(together(results))
        with self.exclusive():
            self._journal.write("finished", entries)

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
                self._journal.write("looked", [asdict(look)])
        return self.looks(look.cell)

    def left(self, config: Config, seeds: Iterable[int]) -> list[int]:
        """The seeds of a cell that are not on record, each once."""
        self._refresh()
        finished = self._results.get(config.key(), {})
        return [seed for seed in dict.fromkeys(seeds) if seed not in finished]

    def _refresh(self) -> None:
        before = self._journal.lines
        for number, line in enumerate(self._journal.news(), start=before + 1):
            if not line.strip():
                continue
            try:
                self._take(parse_line(line))
            except (AttributeError, KeyError, TypeError, ValueError):
                self._corrupt.append(number)

    def _take(self, entry: dict[str, Any]) -> None:
        event = entry.pop("event")
        if event == "looked":
            look = Look.from_dict(entry)
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


def _apart(entry: Mapping[str, Any]) -> list[Result]:
    """The runs of an entry."""
    if isinstance(entry.get("note"), str):
        entry = {**entry, "note": [entry["note"]] * len(entry["seed"])}
    entry = {**{name: [None] * len(entry["seed"]) for name in LATER}, **entry}
    kinds.check(entry, {name: kinds.listed(KINDS[name]) for name in OWN})
    if entry.keys() != {*COMMON, *OWN}:
        raise ValueError("A field is missing, or unknown.")
    common = {name: entry[name] for name in COMMON}
    common["config"] = Config.from_dict(entry["config"])
    runs = zip(*(entry[name] for name in OWN), strict=True)
    return [Result.from_dict(common | dict(zip(OWN, run, strict=True))) for run in runs]


def _to_json(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _from_json(value: float | None) -> float:
    return math.nan if value is None else float(value)
