"""Where batches are trained: in this process, in several of this machine, or in a Ray cluster.

A pool takes batches one by one and hands back what is finished; its caller alone writes to the
record.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine.cells import MOST_SEEDS, PreparedCells, Trained, choose_device
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.results import Batch
from graphrelu.lab.signals import Terminated, held, kept

Pool: TypeAlias = "Here | Workers"
Report: TypeAlias = Callable[[Config, tuple[int, ...], int], None]  # with the epoch

MOST_PROCESSES = 256
# A batch at which this many Ray workers died, one after the other, is at fault itself.
MOST_TRIES = 4


def check_pool(name: str) -> str:
    """The name of a pool, or a number of processes; a `ValueError` for anything else."""
    if name == "ray":
        import_module("ray")  # an error here, and not after the datasets were read
    if name in ("local", "ray") or (name.isdecimal() and 0 < int(name) <= MOST_PROCESSES):
        return name
    raise ValueError(f"The engine must be local, ray or a number of processes, not {name!r}.")


def pool_of(name: str, device: str) -> AbstractContextManager[Pool]:
    """The pool of that name, for the time of the block."""
    if check_pool(name) == "ray":
        return cluster(device)
    return nullcontext(Here(device)) if name == "local" else processes(int(name), device)


class Here:
    """This process, one batch after the other.

    Every pool has a ``device``, by whose memory batches are sized, which ``share`` of them share.
    What it trains comes with a look inside the model of ``seed``.
    """

    share = 1

    def __init__(self, device: str) -> None:
        self.device = choose_device(device)

    def train(
        self, batches: Iterator[Batch], prepared: PreparedCells, seed: int | None, report: Report
    ) -> Iterator[Trained]:
        for batch in batches:
            yield from prepared.train(batch, seed, partial(report, batch.config))


class Workers(ABC):
    """Several workers, which train a batch each. ``deaths`` are the errors of a worker that ended
    without an answer, and ``end`` says so."""

    share = 1
    deaths: type[Exception]
    end: str

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.in_flight: dict[Future[list[Trained]], Batch] = {}

    def train(
        self, batches: Iterator[Batch], prepared: PreparedCells, seed: int | None, report: Report
    ) -> Iterator[Trained]:
        while True:
            finished: list[Trained] = []
            with held():  # an interruption inside Ray, or inside a lock, would be lost
                while len(self.in_flight) < self.slots() and (batch := next(batches, None)):
                    graph = prepared.graph(batch.config)
                    self.in_flight[self.submit(batch, graph, seed)] = batch
                if not self.in_flight:
                    return
                for future in wait(self.in_flight, 1, return_when=FIRST_COMPLETED).done:
                    finished += self.outcome(future, self.in_flight.pop(future))
            yield from finished

    @abstractmethod
    def slots(self) -> int:
        """How many batches can be trained at once, at this moment."""

    @abstractmethod
    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Future[Any]:
        """Begin a batch."""

    def outcome(self, future: Future[list[Trained]], batch: Batch) -> list[Trained]:
        """What was trained, or the error that ended it."""
        try:
            return future.result()
        except self.deaths as error:
            if (cause := getattr(error, "cause", None)) is not None:  # Ray's envelope of an error
                raise cause from error
            runs = f"{len(batch.seeds)} runs of {batch.config.title} at once"
            raise MachineError(f"{self.end} while training {runs}.") from error


class Processes(Workers):
    """Processes of this machine; graphs reach them by files in a folder."""

    deaths, end = BrokenProcessPool, "A process ended"

    def __init__(self, count: int, device: str, folder: Path) -> None:
        super().__init__(choose_device(device))
        self.share, self._folder = count, folder
        self._files: dict[str, Path] = {}
        threads = max(1, torch.get_num_threads() // count)
        context = multiprocessing.get_context("spawn")
        self.workers = ProcessPoolExecutor(count, context, _begin, (threads,))

    def slots(self) -> int:
        return self.share

    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Future[Any]:
        name = batch.config.dataset
        if name not in self._files:
            self._files[name] = self._folder / f"{len(self._files)}.pt"
            torch.save(graph, self._files[name])
        return self.workers.submit(_train_here, batch, self._files[name], str(self.device), seed)


@contextmanager
def processes(count: int, device: str) -> Iterator[Pool]:
    """Processes of this machine, for the time of the block."""
    before = set(multiprocessing.active_children())
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        pool = Processes(count, device, Path(folder))
        try:
            yield pool
        finally:  # what is still being trained is forgotten
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            pool.workers.shutdown(cancel_futures=True)


def _begin(threads: int) -> None:
    """In a new process: it ends with the one that began it, which alone hears Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@cache
def _cells(path: Path, dataset: str, device: str) -> PreparedCells:
    graph = torch.load(path, weights_only=False)  # of this very command
    return PreparedCells({dataset: graph}, None, choose_device(device))


def _train_here(batch: Batch, path: Path, device: str, seed: int | None) -> list[Trained]:
    """One batch, in a process of the pool."""
    prepared = _cells(path, batch.config.dataset, device)
    return list(prepared.train(batch, seed, lambda *progress: None))


class Cluster(Workers):
    """A Ray cluster. The datasets are sent to the workers, which send results back: only the
    package must be installed there. Where a worker dies, its batch is trained again elsewhere.

    ``device`` is that of the workers; ``auto`` is a GPU for each where the cluster has any.
    """

    def __init__(self, device: str) -> None:
        self._ray = ray = import_module("ray")
        self.deaths, self.end = ray.exceptions.RayError, f"{MOST_TRIES} Ray workers died"
        if device not in ("auto", *MOST_SEEDS):
            raise ValueError(
                f"There is no device {device!r} for Ray; choose from auto, cpu and cuda."
            )
        has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
        if device == "cuda" and not has_gpu:
            raise ValueError("There is no device 'cuda' here: the Ray cluster has no GPU.")
        self._where = "cuda" if has_gpu and device != "cpu" else "cpu"
        # The memory of the workers' GPUs cannot be seen from here.
        super().__init__(choose_device("cpu" if self._where == "cpu" else "auto"))
        resource = {"num_gpus": 1} if self._where == "cuda" else {"num_cpus": 1}
        # Ray tries again only where a worker died, not where the training raised.
        self._task = ray.remote(max_retries=MOST_TRIES - 1, **resource)(_train_there)
        self._sent: dict[str, Any] = {}
        self._references: WeakKeyDictionary[Future[Any], Any] = WeakKeyDictionary()

    def slots(self) -> int:
        resource = "GPU" if self._where == "cuda" else "CPU"
        return max(1, int(self._ray.cluster_resources().get(resource, 0)))

    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Future[Any]:
        name = batch.config.dataset
        if name not in self._sent:
            self._sent[name] = self._ray.put(graph)
        task = self._task.options(name=f"train {name}")
        reference = task.remote(batch, self._sent[name], self._where, seed)
        future: Future[Any] = reference.future()
        self._references[future] = reference
        return future

    def cancel(self) -> None:
        """End what is still being trained."""
        for future in self.in_flight:
            if not future.done():  # Ray may abort this process when a finished task is cancelled
                self._ray.cancel(self._references[future], force=True)


@contextmanager
def cluster(device: str) -> Iterator[Pool]:
    """The cluster of ``RAY_ADDRESS``, else one on this machine for the time of the block; a
    connection that is there already is used and left open."""
    ray = import_module("ray")
    with ExitStack() as stack:
        if not ray.is_initialized():
            with kept():
                quiet = {"log_to_driver": False, "logging_level": "error"}
                try:
                    ray.init(include_dashboard=False, **quiet)
                except SystemExit:  # what Ray makes of SIGTERM
                    raise Terminated from None
            stack.callback(ray.shutdown)
        workers = Cluster(device)
        stack.callback(workers.cancel)
        yield workers


def _train_there(
    batch: Batch, graph: Graph | GraphSet, device: str, seed: int | None
) -> list[Trained]:
    """One batch, in a worker of the cluster."""
    prepared = PreparedCells({batch.config.dataset: graph}, None, choose_device(device))
    return list(prepared.train(batch, seed, lambda *progress: None))
