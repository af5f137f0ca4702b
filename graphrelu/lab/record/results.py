"""The record: a file of JSON lines, for the runs of each batch and for each look at them.

Lines are only added, by one command at a time, and what is there survives a kill in mid-write. A
look is a verdict on a set of runs. The same set again is the same look, so that the same runs
always get the same verdict.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from graphrelu.lab.record.config import ERRORS, LARGEST, Config, fits, types_of
from graphrelu.lab.record.machine import check_file, named, now

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


# A line says once what its runs have in common; the rest are lists, a value for each run. The note
# is a list where the runs have different ones.
COMMON = ("config", "device", "versions", "commit", "date")
SET_SCORES = "val"  # the curve of a set of graphs that tells how soon a score is reached
PRIMARY = "grelu"
FEWEST = 5  # runs, or splits, that an interval takes
# Two splits share most of their training data from here on: a training part has this share of all
# labelled nodes or graphs. Folds, 80 / 10 / 10, 60 / 20 / 20 and 48 / 32 / 20 % have it; 20 nodes
# per class have a twentieth.
MOSTLY_SHARED = 0.4


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
        low = -LARGEST if metric in (*ERRORS, "r2") else 0
        high = 0 if metric in ERRORS else 1
        if not low <= self.score <= high:
            raise ValueError(f"A score lies in [{low:g}, {high}], unlike {self.score!r}.")
        if math.isnan(self.seconds):
            raise ValueError("A run took a number of seconds.")
        if any(len(curve) > self.epochs_run for curve in self.curves.values()):
            raise ValueError("A curve is longer than the run.")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a number that is not finite becomes ``None``."""
        return _to_json(vars(self) | {"config": self.config.to_dict()})


OWN = tuple(field.name for field in fields(Result) if field.name not in COMMON)


class Batch(NamedTuple):
    """Runs to train at once. They are recorded in one line: what a killed process was at is
    composed anew as it was, and comes out the same."""

    config: Config
    seeds: tuple[int, ...]


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
        return self.share >= MOSTLY_SHARED and (self.count is None or self.count >= FEWEST)

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


class Journal:
    """Lines are only added. A line is complete once its newline is written.

    Attributes:
        lines: How many complete lines were read so far.
        torn: Whether there was an incomplete one after them, at the last look.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lines = 0
        self.torn = False
        self._offset = 0
        self._held = False

    def news(self) -> list[dict[str, Any] | None]:
        """The complete lines that were added since the last look; ``None`` for one that is no
        JSON object."""
        content, size = b"", 0
        if self.path.exists():
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(self._offset)
                content = file.read()
        if size < self._offset:
            raise ValueError(f"{self.path} was replaced or cut short while it was in use.")
        *complete, rest = content.split(b"\n")
        self._offset += len(content) - len(rest)
        self.lines += len(complete)
        self.torn = bool(rest)
        return [_object(line) for line in complete]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other commands from writing until the end of the block; a ``ValueError`` where one
        does already.

        The system releases the lock when a process ends, however it ends.
        """
        if self._held:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock_path = self.path.with_name(self.path.name + ".lock")
        with named(self.path), lock_path.open("ab") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(f"Another command is writing to {self.path}.") from None
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def write(self, event: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add a line for each entry, under :meth:`exclusive`; on return they are on the disk."""
        content = b"".join(
            json.dumps({"event": event, **entry}, separators=(",", ":"), allow_nan=False).encode()
            + b"\n"
            for entry in entries
        )
        with self.path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a torn line ends before this one begins
                    content = b"\n" + content
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


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
            look: Look = _from_json(Look, entry)
            self._looks.setdefault(look.cell, []).append(look)
        elif event == "finished":
            for result in _apart(entry):
                self._results.setdefault(result.config.key(), {}).setdefault(result.seed, result)
        elif event not in ("started", "released"):  # of version 0.2
            raise ValueError(f"There is no event {event!r}.")


def check_record(path: Path) -> Path:
    """The path, if runs can be added there: nothing is added to a file of another kind."""
    check_file(path)
    if path.exists():
        content = path.read_bytes()
        if content and not any(line.startswith(b'{"event":') for line in content.splitlines()):
            raise ValueError(f"{path} is not a record of runs; choose another file.")
    return path


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


def look_numbers(looks: Sequence[Look], pairs: Mapping[str, str]) -> tuple[int, int]:
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


def _apart(entry: dict[str, Any]) -> list[Result]:
    """The runs of an entry; those of an older one lack fields that have a default, and may have the
    accuracy of each class."""
    entry.pop("class_accuracy", None)
    if isinstance(entry["note"], str):
        entry["note"] = [entry["note"]] * len(entry["seed"])
    common: dict[str, Any] = {"config": Config.from_dict(entry.pop("config"))}
    common |= _fields_from_json(Result, {name: entry.pop(name) for name in COMMON[1:]})
    if not all(isinstance(values, list) for values in entry.values()):
        raise ValueError("A field is no list of a value for each run.")
    runs = (zip(entry, run, strict=True) for run in zip(*entry.values(), strict=True))
    return [Result(**common, **_fields_from_json(Result, dict(run))) for run in runs]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _from_json(kind: Any, value: Any) -> Any:
    """A value of a declared type from JSON, where null stands for NaN; else a ``ValueError``."""
    parts, origin, has_fields = get_args(kind), get_origin(kind), is_dataclass(kind)
    if value is None and (kind is float or NoneType in parts):
        return math.nan if kind is float else None
    if NoneType in parts:
        return _from_json(parts[0], value)
    if origin is list and isinstance(value, list):
        return [_from_json(parts[0], one) for one in value]
    if origin is dict and isinstance(value, dict):
        name, own = parts
        return {_from_json(name, key): _from_json(own, one) for key, one in value.items()}
    if has_fields and isinstance(value, dict):
        return kind(**_fields_from_json(kind, value))
    if origin in (list, dict) or has_fields or not fits(kind, value):
        raise ValueError(f"{value!r} is not what was expected.")
    return float(value) if kind is float else value


def _fields_from_json(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass, from JSON."""
    types = types_of(kind)
    return {name: _from_json(types[name], value) for name, value in values.items()}


def _to_json(value: Any) -> Any:
    """The JSON value that :func:`_from_json` takes back."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_to_json(one) for one in value]
    if isinstance(value, dict):
        return {name: _to_json(one) for name, one in value.items()}
    return value
