"""A table of the paper, or one of our own: a spec that lists its runs, and what its page shows.

Each experiment is a module of its own with a constant ``TABLE``, listed in
:mod:`graphrelu.lab.reproduce.command`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from graphrelu.lab import engine
from graphrelu.lab.cli import check_ending, check_runs
from graphrelu.lab.engine import Progress, check_pool, load_dataset, prepared
from graphrelu.lab.errors import check_name
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.results import Record, Result, check_record
from graphrelu.lab.render import percent
from graphrelu.lab.reproduce import figures, files
from graphrelu.lab.stats import (
    MARGIN,
    Decision,
    Scores,
    Splits,
    compared,
    relative_to_relu,
    splits_of,
)

QUICK_EPOCHS = 30
AXES = ("dataset", "backbone", "activation")

Place: TypeAlias = tuple[Any, Any]  # a cell, which begins with graph and backbone; a name in it
Runs: TypeAlias = Mapping[Config, Sequence[int]]  # the seeds of each configuration
Found: TypeAlias = dict[Any, dict[Any, dict[int, Result]]]  # cell -> name -> seed -> run


@dataclass(frozen=True)
class Request:
    """What a user asks of an experiment.

    Attributes:
        runs: The seeds of every cell are 0, ..., runs - 1.
        out: The record to continue or to begin, a ``.jsonl`` file.
        quick: A small version on the embedded graphs, for three minutes at most on two cores.
        only: Names of graphs, backbones or activations: nothing else is run.
        device: ``auto``, ``cpu`` or ``cuda``.
        root: Where the datasets are; see :func:`graphrelu.lab.data.data_root`.
        seconds: No run starts after this many seconds.
        progress: Called every few epochs.
        engine: ``local``, this process; a number of processes; or ``ray``, the workers of a
            Ray cluster.
        prepare: Where the missing runs are written instead of being trained.
    """

    runs: int
    out: Path
    quick: bool = False
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    device: str = "auto"
    root: str | Path | None = None
    seconds: float | None = None
    progress: Callable[[Progress], None] | None = None
    engine: str = "local"
    prepare: Path | None = None

    def __post_init__(self) -> None:
        check_runs(self.runs)
        check_ending(self.out, ".jsonl", "a record")
        check_pool(self.engine)
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"seconds must be a positive number, not {self.seconds}.")

    @cached_property
    def deadline(self) -> float:
        """The ``time.monotonic()`` after which no run starts, counted from the first call."""
        return math.inf if self.seconds is None else time.monotonic() + self.seconds

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the table's settings: a quick run has few epochs."""
        return {"epochs": QUICK_EPOCHS} if self.quick else {}


@dataclass(frozen=True)
class Pair:
    """A column of leads: of ``first`` over ``second``, where ``None`` is the row's own name.

    Attributes:
        field: The name of the column.
        first, second: Names in a cell.
        only: The row that has a lead; by default all but the other side's own.
        family: Of a cell and a name: the leads that are corrected together.
        value: What is compared of two runs: the score, unless another is given.
        margin: The largest difference that does not matter, where it is not the table's.
    """

    field: str
    first: Any
    second: Any
    only: Any = None
    family: Callable[[Any, Any], Any] = lambda cell, name: name
    value: Callable[[Result], float] = attrgetter("score")
    margin: float | None = None

    def sides(self, name: Any) -> tuple[Any, Any] | None:
        """Both names, for the row of a name."""
        first, second = (name if side is None else side for side in (self.first, self.second))
        return None if first == second or self.only not in (None, name) else (first, second)


@dataclass
class Row:
    """One name in one cell: its runs, and further columns, such as leads."""

    cell: Any
    name: Any
    runs: dict[int, Result]
    values: dict[str, Any]

    def __post_init__(self) -> None:
        self.dataset, self.backbone = map(str, self.cell[:2])
        self.scores = {seed: run.score for seed, run in self.runs.items()}
        self.mean, self.std, self.best, self.n = percent(self.scores, self.config.metric in ERRORS)

    @property
    def activation(self) -> str:
        return str(self.values.get("activation", self.name))

    def __getitem__(self, column: str) -> Any:
        """A further column, one of the row's own, a part of the cell or a setting."""
        if column in self.values:
            return self.values[column]
        owners = (self, self.cell, self.config)
        return next((getattr(one, column) for one in owners if hasattr(one, column)), None)

    @property
    def config(self) -> Config:
        return next(iter(self.runs.values())).config

    @property
    def splits(self) -> Splits:
        """What its splits share."""
        return splits_of(self.config, next(iter(self.runs.values())).note)


@dataclass(frozen=True)
class Table:
    """The runs of a table, where each of them stands, and what the page says.

    Attributes:
        name: Of the record, the page and its text in ``pages/``.
        datasets: The graphs of the table.
        cells: Takes the name of a graph and changes of the settings. Returns a configuration for
            each place: a cell, which begins with graph and backbone, and a name in the cell.
        runs, quick_runs: How many seeds, unless the user says otherwise.
        pairs: The columns of leads.
        columns: What the CSV file has beside names and scores; leads take several columns.
        page: Takes the rows, and returns the blanks of the page's text.
        values: Takes a row, and returns further columns; parts of the cell and settings are known.
        hidden: A name that the CSV file leaves out.
        seeds: The seeds of a configuration, by the number that the user asks for.
        figure: Draws the rows.
        load: Reads what a configuration is trained on.
        family: Which leads hold together, in words.
        margin: The largest difference that does not matter.
        quick: Graphs of a quick run, and whether it has a place.
    """

    name: str
    datasets: tuple[str, ...]
    cells: Callable[..., dict[Place, Config]]
    runs: int
    quick_runs: int
    pairs: tuple[Pair, ...]
    columns: tuple[str, ...]
    page: Callable[[list[Row]], dict[str, Any]]
    values: Callable[[Row], dict[str, Any]] = lambda row: {}
    hidden: Any = None
    seeds: Callable[[Config, int], range] = lambda config, runs: range(runs)
    figure: Callable[[list[Row]], figures.Figure] | None = None
    load: Callable[[Config, Any], Any] = load_dataset
    family: str = "a column"
    margin: float = MARGIN
    quick: tuple[tuple[str, ...], Callable[[Place], bool]] = (("digits",), lambda place: True)

    def wanted(self, datasets: Sequence[str] = (), **changes: Any) -> dict[Place, Config]:
        """The configurations of the whole table, or of some graphs."""
        parts = [self.cells(name, **changes) for name in datasets or self.datasets]
        return {place: config for part in parts for place, config in part.items()}

    def chosen(self, request: Request) -> dict[Place, Config]:
        """What a user asks for."""
        found, only = self.wanted(**request.changes), dict(request.only)
        if request.quick:
            graphs, has_place = self.quick
            found = self.wanted(graphs, **request.changes)
            found = {place: config for place, config in found.items() if has_place(place)}
            only.pop("dataset", None)  # it has the embedded graphs
        for axis, names in only.items():
            known = list(dict.fromkeys(getattr(config, axis) for config in found.values()))
            kept = {check_name(axis, name, known) for name in names}
            found = {place: c for place, c in found.items() if getattr(c, axis) in kept}
        return found

    def plan(self, request: Request) -> Runs:
        """The configurations to run, with their seeds."""
        return {c: self.seeds(c, request.runs) for c in self.chosen(request).values()}

    def collect(self, request: Request) -> str:
        """Train the missing runs; return a sentence on how much is on record."""
        return standing(*train_missing(self.plan(request), request, self.load), request.out)

    def place(self, config: Config) -> Place | None:
        """Cell and name of a run with any number of epochs; none for runs of other tables."""
        return _places(self.cells, config.dataset, config.epochs).get(config)

    def found(self, results: Iterable[Result]) -> Found:
        """The runs by cell, name and seed, in the order of the table; others are left out."""
        placed = [(run, place) for run in results if (place := self.place(run.config)) is not None]
        found: Found = {}
        full: set[Config] = set()
        for dataset in dict.fromkeys((*self.datasets, *(run.config.dataset for run, _ in placed))):
            for (cell, name), config in self.cells(dataset).items():
                found.setdefault(cell, {})[name] = {}
                full.add(config)
        haste: dict[Any, int] = {}
        for run, (cell, name) in placed:
            config = run.config
            epochs = 0 if config in full else config.epochs
            if haste.setdefault((cell, config.backbone), epochs) != epochs:
                told = f"{config.dataset} with {config.backbone}"
                raise ValueError(f"The runs of {told} have different settings.")
            found.setdefault(cell, {}).setdefault(name, {})[run.seed] = run
        known = {cell: {name: s for name, s in own.items() if s} for cell, own in found.items()}
        return {cell: own for cell, own in known.items() if own}

    def leads(self, found: Found, pair: Pair) -> dict[Place, Decision]:
        """The leads of a column; those of errors are in percent of ReLU's mean error."""
        margin = self.margin if pair.margin is None else pair.margin
        families: dict[Any, dict[Place, tuple[Scores, Scores]]] = {}
        splits: dict[Place, Splits] = {}
        for cell, own in found.items():
            runs = [run for by_seed in own.values() for run in by_seed.values()]
            several = next((run for run in runs if run.config.split != "published"), None)
            shared = splits_of(several.config, several.note) if several else Splits()
            values = {name: _values(by_seed, pair.value) for name, by_seed in own.items()}
            if runs and runs[0].config.metric in ERRORS:
                values = relative_to_relu(values)
            for name in own:
                if sides := pair.sides(name):
                    first, second = (values.get(side, {}) for side in sides)
                    family = families.setdefault(pair.family(cell, name), {})
                    family[cell, name], splits[cell, name] = (first, second), shared
        leads: dict[Place, Decision] = {}
        for family in families.values():
            leads |= compared(family, splits, margin)
        return leads

    def rows(self, results: Iterable[Result]) -> list[Row]:
        """A row for each cell and name that has runs."""
        return self.rows_of(self.found(results))

    def rows_of(self, found: Found) -> list[Row]:
        """The rows of some runs, with their leads and values."""
        leads = {pair.field: self.leads(found, pair) for pair in self.pairs}
        rows = []
        for cell, own in found.items():
            for name, runs in own.items():
                values = {field: by_place.get((cell, name)) for field, by_place in leads.items()}
                row = Row(cell, name, runs, values)
                row.values |= self.values(row)
                rows.append(row)
        return rows

    def on_record(self, record: Path) -> list[Result]:
        """The runs of this table."""
        return [run for run in Record(record).read() if self.place(run.config) is not None]

    def render(self, record: Path) -> list[Path]:
        """Writes the page, the CSV file and the figure beside the record."""
        results = self.on_record(record)
        if not results:
            raise ValueError(f"{record} has no runs of reproduce {self.name}.")
        rows = self.rows(results)
        if not rows:
            raise ValueError(f"{record} has no activation yet that finished its grid.")
        leads = [pair.field for pair in self.pairs]
        blanks = {
            "origin": files.provenance(results, record, self.wanted().values()),
            "rule": files.rule(
                self.family, ((row.dataset, row[leads[0]]) for row in rows), self.margin
            ),
            "figure": f"{record.stem}.png",
        }
        columns = (*AXES, "mean", "std", "best", "n", *self.columns)
        flat = [
            {column: row[column] for column in columns} for row in rows if row.name != self.hidden
        ]
        page = files.filled(self.name, **(blanks | self.page(rows)))
        draw = self.figure and partial(self.figure, rows)
        return files.write(record, page, files.csv(flat, columns, leads), draw)


def _values(runs: Mapping[int, Result], value: Callable[[Result], float]) -> Scores:
    found = {seed: value(run) for seed, run in runs.items()}
    return {seed: one for seed, one in found.items() if math.isfinite(one)}


@cache
def _places(
    cells: Callable[..., dict[Place, Config]], dataset: str, epochs: int
) -> dict[Config, Place]:
    return {config: place for place, config in cells(dataset, epochs=epochs).items()}


def beside_paper(source: str, row: Row) -> dict[str, Any]:
    """The paper's number of a row, and the difference to it."""
    paper = published(source, *(row.dataset, row.backbone, row.activation))
    if paper is None:
        return {}
    difference = row.mean - paper.mean
    return {"paper_mean": paper.mean, "paper_std": paper.std, "difference": difference}


def standing(finished: int, wanted: int, record: Path) -> str:
    """A sentence on how much of a table is in the record."""
    rest = "." if finished == wanted else "; the same command continues."
    return f"{finished:,} of these {wanted:,} runs are in {record}{rest}"


def train_missing(
    runs: Runs, request: Request, load: Callable[[Config, Any], Any] = load_dataset
) -> tuple[int, int]:
    """Train the runs that the record lacks; return the number of finished and of all runs. What
    they are trained on comes from ``load``, by the first of its configurations."""
    deadline = request.deadline
    if request.engine != "ray":
        engine.choose_device(request.device)
    record = Record(check_record(request.out), curves=False)
    left = {config: record.left(config, seeds) for config, seeds in runs.items()}
    left = {config: seeds for config, seeds in left.items() if seeds}
    # Load every graph before the first training, to find a damaged file at once.
    first = {config.dataset: config for config in reversed(left)}
    graphs = {name: load(config, request.root) for name, config in first.items()}
    total = sum(map(len, runs.values()))
    if request.prepare is not None:
        prepared.write(request.prepare, left, graphs)
        number = sum(map(len, left.values()))
        how = f"python -m {prepared.__name__} {request.prepare} RECORD.jsonl"
        print(f"{number:,} missing runs are in {request.prepare}. Train them with: {how}.")
        return total - number, total
    found = engine.run_all(
        runs,
        record,
        root=request.root,
        graphs=graphs,
        device=request.device,
        deadline=deadline,
        progress=request.progress,
        pool=request.engine,
    )
    return found, total


@dataclass(frozen=True)
class GridTable(Table):
    """A table whose names are those of an activation and of a point of its grid, from which each
    activation chooses: validation parts choose, test parts do not. The rows are those of the points
    that were chosen.

    Attributes:
        tuning: The seeds that choose. Only what was chosen is run with the others.
        fixed: Whether a place is run with all seeds, chosen or not.
    """

    tuning: tuple[int, ...] = ()
    fixed: Callable[[Place], bool] = lambda place: False

    def choices(self, found: Found) -> dict[Any, dict[Any, Any]]:
        """The point that each activation of a cell chose, once it has all of its grid: that of the
        highest mean validation score; of equal ones the lowest mean validation loss, then the
        first."""
        made: dict[Any, dict[Any, Any]] = {}
        for cell, own in found.items():
            grid: dict[Any, list[Any]] = {}
            for other, (name, point) in self.cells(cell[0]):
                if other == cell:
                    grid.setdefault(name, []).append(point)
            has_all = {
                name: all(own.get((name, one), {}).keys() >= set(self.tuning) for one in points)
                for name, points in grid.items()
            }
            made[cell] = {
                name: min(points, key=lambda point: self._rank(own[name, point]))
                for name, points in grid.items()
                if has_all[name]
            }
        return made

    def _rank(self, runs: Mapping[int, Result]) -> tuple[float, float]:
        own = [runs[seed] for seed in self.tuning]
        loss = fmean(run.val_loss for run in own)
        # Accuracies are whole counts: without rounding, equal means would not tie.
        score = round(fmean(run.val_score for run in own), 12)
        return -score, loss if math.isfinite(loss) else math.inf

    def plan(self, request: Request) -> Runs:
        """The grid, and the other seeds of what was chosen from it."""
        choices = self.choices(self.found(Record(request.out).read()))

        def is_chosen(place: Place) -> bool:
            cell, (name, point) = place
            return choices.get(cell, {}).get(name) == point

        return {
            config: self.seeds(config, request.runs)
            if self.fixed(place) or is_chosen(place)
            else self.tuning
            for place, config in self.chosen(request).items()
        }

    def collect(self, request: Request) -> str:
        """Train the grid, and then what was chosen from it."""
        if request.runs < len(self.tuning):
            least = len(self.tuning)
            raise ValueError(f"runs must be at least {least}, which choose, not {request.runs}.")
        for _ in ("the grid", "what was chosen"):
            finished, total = train_missing(self.plan(request), request, self.load)
            if finished < total:
                break
        return standing(finished, total, request.out)

    def rows(self, results: Iterable[Result]) -> list[Row]:
        found = self.found(results)
        chosen = {
            cell: {name: found[cell][name, point] for name, point in choice.items()}
            for cell, choice in self.choices(found).items()
        }
        return self.rows_of(chosen)
