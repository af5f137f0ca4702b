"""The common part of all experiments: a request, a record to continue, and pages.

Each experiment is a module of its own with a constant ``EXPERIMENT``, listed in
:data:`EXPERIMENTS`; :mod:`graphrelu.lab.reproduce.command` is their command line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine import check_pool
from graphrelu.lab.record import output
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export
from graphrelu.lab.stats.splits import Splits, splits_of

if TYPE_CHECKING:
    from graphrelu.lab.engine import Progress

QUICK_EPOCHS = 30

# Name -> what it is; the module of that name is imported when the experiment is started.
EXPERIMENTS: dict[str, str] = {
    "ablation": "the ablation tables: GReLU's variants on Flickr, with GCN",
    "segments": "the effect of the number of segments K on the citation graphs, with GCN",
    "structure": "where topology matters: generated graphs of every homophily, GCN and SAGE",
    "runtime": "seconds for 200 epochs on CiteSeer, for every backbone and activation",
    "deep": "networks as people train them: 4 and 10 layers, norm, skips, all labels",
    "strong": "GCN, SAGE and GAT with published settings, tuned for ReLU on each graph",
    "complexity": "time against edges, nodes, channels and segments, and against GAT's heads",
}


@dataclass(frozen=True)
class Request:
    """What a user asks of an experiment.

    Attributes:
        runs: The seeds of every cell, or the repetitions of every timing, are 0, ..., runs - 1.
        out: The record to continue or to begin, a ``.jsonl`` file.
        quick: A small version on the embedded graphs, for three minutes at most on two cores.
        device: ``auto``, ``cpu`` or ``cuda``.
        root: Where the datasets are; see :func:`graphrelu.lab.data.data_root`.
        seconds: No run starts after this many seconds.
        progress: Called every few epochs.
        engine: ``local``, this process; a number, so many processes; or ``ray``, the workers of a
            Ray cluster.
        prepare: Where the missing runs are written instead of being trained.
    """

    runs: int
    out: Path
    quick: bool = False
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

    def stays_here(self) -> None:
        """Raise a ``ValueError`` unless this process is to do the work: a timing needs it."""
        if self.engine != "local" or self.prepare is not None:
            raise ValueError("A timing is taken in this process, without engine and prepare.")

    def datasets(self, *names: str) -> tuple[str, ...]:
        """The datasets to use; a quick run has the embedded graph only, which is small."""
        return ("digits",) if self.quick else names

    @property
    def changes(self) -> dict[str, Any]:
        """What differs from the table's settings: a quick run has few epochs."""
        return {"epochs": QUICK_EPOCHS} if self.quick else {}

    def announce(self, expected: Callable[[], float]) -> None:
        """Say how many seconds the work takes here; nothing is measured if nobody watches."""
        if self.progress is not None and self.engine == "local" and (seconds := expected()) > 0:
            print(f"This takes about {duration(seconds)} on this machine.", flush=True)


def check_runs(runs: int) -> None:
    """Raise a ``ValueError`` unless there is something to run."""
    if runs < 1:
        raise ValueError(f"runs must be a whole number from 1, not {runs}.")


def check_ending(path: Path, ending: str, what: str) -> None:
    """Raise a ``ValueError`` unless the name of a file to write has the ending of its kind."""
    if path.suffix != ending:
        raise ValueError(f"The name of {what} must end in {ending}, unlike {path}.")


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes:
        runs: How many seeds or repetitions, unless the user says otherwise.
        quick_runs: The same with ``--quick``.
        collect: Trains or measures what is missing, and returns a sentence on how much is on
            record. Needs torch, PyG and numpy only.
        render: Writes tables and figures beside the record, from the record alone, and returns
            their paths, the page first. Needs the plotting packages.
        has_page: Whether the record is complete enough to be rendered.
    """

    runs: int
    quick_runs: int
    collect: Callable[[Request], str]
    render: Callable[[Path], list[Path]]
    has_page: Callable[[Path], bool] = lambda record: True


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    found: Experiment = import_module(f"graphrelu.lab.reproduce.{name}").EXPERIMENT
    return found


def default_record(name: str, quick: bool = False) -> Path:
    """Where the record is unless the user says otherwise; quick runs are kept apart."""
    return Path("results", *(["quick"] if quick else []), f"{name}.jsonl")


def duration(seconds: float) -> str:
    """A time in its usual unit: ``40 minutes``."""
    units = {"days": 86_400, "hours": 3_600, "minutes": 60}
    for unit, size in units.items():
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds))} seconds" if seconds >= 1.5 else "a second"


def filled(page: str, **blanks: Any) -> list[str]:
    """The text of a page: its Markdown file in ``pages/``, with texts and numbers filled in."""
    template = files(__package__).joinpath("pages", f"{page}.md").read_text(encoding="utf-8")
    texts = {name: own.rstrip("\n") for name, own in blanks.items() if isinstance(own, str)}
    return [template.format(**blanks | texts)]


Place: TypeAlias = tuple[Any, Any]  # a cell, and a name in the cell


@dataclass(frozen=True)
class Table:
    """The runs of a table, and where each of them stands in the table.

    Attributes:
        page: The name of the page's text in ``pages/``.
        what: The runs in words, for a record that has none of them.
        datasets: The graphs of the table; a quick run has the embedded graph in their place.
        cells: Takes the name of a graph and changes of the settings. Returns a configuration for
            each place: a cell, such as a graph and a backbone, and a name in the cell.
    """

    page: str
    what: str
    datasets: tuple[str, ...]
    cells: Callable[..., dict[Place, Config]]

    def wanted(self, datasets: Iterable[str] | None = None, **changes: Any) -> dict[Place, Config]:
        """The configurations of these graphs, by default of the whole table."""
        parts = [self.cells(name, **changes) for name in datasets or self.datasets]
        return {place: config for part in parts for place, config in part.items()}

    def collect(self, request: Request) -> str:
        """Train the missing runs; return a sentence on how much is on record."""
        wanted = self.wanted(request.datasets(*self.datasets), **request.changes)
        return trained(wanted.values(), request)

    def place(self, config: Config) -> Place | None:
        """Cell and name of a run with any number of epochs; none for runs of other tables."""
        return _places(self.cells, config.dataset, config.epochs).get(config)

    def read(self, record: Path) -> list[Result]:
        """The runs on record; a ``ValueError`` where there are none."""
        return Record(record).required(lambda config: self.place(config) is not None, self.what)

    def scores(
        self, results: Iterable[Result], value_of: Callable[[Result], Any] = attrgetter("score")
    ) -> dict[Any, dict[Any, dict[int, Any]]]:
        """Cell -> name -> seed -> score, or another value of the run, in the order of the table.

        Runs without a place are left out.
        """
        placed = [(run, place) for run in results if (place := self.place(run.config)) is not None]
        found: dict[Any, dict[Any, dict[int, Any]]] = {}
        for dataset in dict.fromkeys((*self.datasets, *(run.config.dataset for run, _ in placed))):
            for cell, name in self.cells(dataset):
                found.setdefault(cell, {})[name] = {}
        epochs: dict[Any, int] = {}
        for run, (cell, name) in placed:
            config = run.config
            if epochs.setdefault((cell, config.backbone), config.epochs) != config.epochs:
                told = f"{config.dataset} with {config.backbone}"
                raise ValueError(f"The runs of {told} have different settings.")
            found[cell].setdefault(name, {})[run.seed] = value_of(run)
        known = {cell: {name: s for name, s in own.items() if s} for cell, own in found.items()}
        return {cell: own for cell, own in known.items() if own}

    def splits(self, results: Iterable[Result]) -> dict[Any, Splits]:
        """What the splits of each cell share."""
        return {
            place[0]: splits_of(run.config, run.note)
            for run in results
            if run.config.split != "published" and (place := self.place(run.config)) is not None
        }

    def protocol(self, results: Sequence[Result]) -> set[Config]:
        """The full settings: a run with other settings was made in haste."""
        return set(self.wanted().values())

    def text(self, results: Sequence[Result], record: Path, /, **blanks: Any) -> list[str]:
        """The text of the page, with its origin."""
        origin = export.provenance(results, record, self.protocol(results))
        return filled(self.page, origin=origin, figure=f"{record.stem}.png", **blanks)


@cache
def _places(
    cells: Callable[..., dict[Place, Config]], dataset: str, epochs: int
) -> dict[Config, Place]:
    return {config: place for place, config in cells(dataset, epochs=epochs).items()}


Runs: TypeAlias = Mapping[Config, Sequence[int]]  # the seeds of each cell


def train_missing(runs: Runs, request: Request, then: Runs | None = None) -> tuple[int, int]:
    """Train the runs that the record lacks; return the number of finished and of all runs.

    ``then`` are as many runs as will be chosen once these are finished, for the expected time.
    """
    from graphrelu.lab import engine
    from graphrelu.lab.engine import prepared

    deadline = request.deadline
    if request.engine != "ray":
        engine.choose_device(request.device)
    record = Record(output.check_record(request.out), curves=False)
    finished = {(result.config, result.seed) for result in record.read()}
    missing = {c: sum((c, seed) not in finished for seed in seeds) for c, seeds in runs.items()}
    missing = {config: number for config, number in missing.items() if number > 0}
    if missing and then:
        for config, seeds in then.items():
            missing[config] = missing.get(config, 0) + len(seeds)
    # Load every graph before the first training, to find a damaged file at once.
    graphs: dict[str, Graph | GraphSet] = {}
    for name, split in {config.dataset: config.split for config in missing}.items():
        read = data.load_graphs if split in FOLD_SPLITS else data.load
        graphs[name] = read(name, request.root)

    def expected() -> float:
        return engine.expected_seconds(missing, graphs, request.device)

    total = sum(map(len, runs.values()))
    if request.prepare is not None:
        left = {config: record.left(config, seeds) for config, seeds in runs.items()}
        prepared.write(request.prepare, {c: s for c, s in left.items() if s}, graphs)
        number = sum(map(len, left.values()))
        module = prepared.__name__
        how = f"python -m {module} {request.prepare} RECORD.jsonl"
        print(f"{number:,} missing runs are in {request.prepare}. Train them with: {how}.")
        return total - number, total
    request.announce(expected)
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


def trained(configs: Iterable[Config], request: Request) -> str:
    """Train the missing runs of these cells; return a sentence on how much is on record."""
    runs = dict.fromkeys(configs, range(request.runs))
    return standing(*train_missing(runs, request), request.out)


def standing(finished: int, wanted: int, record: Path, what: str = "runs") -> str:
    """A sentence on how much of a table is in the record."""
    rest = "." if finished == wanted else "; the same command continues."
    return f"{finished:,} of these {wanted:,} {what} are in {record}{rest}"
