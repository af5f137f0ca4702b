"""Where batches are trained: a pool takes them one by one, and hands back what is finished."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.cells import PreparedCells, choose_device
from graphrelu.lab.engine.keep import inspect
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.results import Batch, Result
from graphrelu.lab.signals import held

Report: TypeAlias = Callable[[Config, tuple[int, ...], int], None]  # with the epoch


class Trained(NamedTuple):
    """A batch, or a part of one that did not fit into memory; and a look inside one model of it."""

    batch: Batch
    results: list[Result]
    look: bytes | None


class Pool(Protocol):
    """``device`` is that by whose memory batches are sized, which ``share`` of them share."""

    device: torch.device
    share: int

    def train(
        self, batches: Iterator[Batch], prepared: PreparedCells, seed: int | None, report: Report
    ) -> Iterator[Trained]:
        """Trains the batches; the look is inside the model of ``seed``."""


class Here:
    """This process, one batch after the other."""

    share = 1

    def __init__(self, device: str) -> None:
        self.device = choose_device(device)

    def train(
        self, batches: Iterator[Batch], prepared: PreparedCells, seed: int | None, report: Report
    ) -> Iterator[Trained]:
        for batch in batches:
            for trained, results in prepared.train(batch, partial(report, batch.config)):
                look = None
                graph = trained.graph
                has_classes = isinstance(graph, Graph) and graph.task == "classes"
                if has_classes and seed in trained.seeds:
                    look = inspect(trained, seed)
                yield Trained(Batch(batch.config, trained.seeds), results, look)
                del trained  # before the next part takes its memory


class Spread(ABC):
    """Several workers, which train a batch each and are asked again and again."""

    share = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.in_flight: dict[Any, Batch] = {}

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
                for handle in self.ready(list(self.in_flight)):
                    finished += self.outcome(handle, self.in_flight.pop(handle))
            yield from finished

    @abstractmethod
    def slots(self) -> int:
        """How many batches can be trained at once, at this moment."""

    @abstractmethod
    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Any:
        """Begin a batch; returns a handle."""

    @abstractmethod
    def ready(self, handles: list[Any]) -> Iterable[Any]:
        """Those that are finished, after a second at most."""

    @abstractmethod
    def outcome(self, handle: Any, batch: Batch) -> list[Trained]:
        """What was trained, or the error that ended it."""


class Processes(Spread):
    """So many processes of this machine; graphs reach them by files in a folder."""

    def __init__(self, count: int, device: str, folder: Path) -> None:
        super().__init__(choose_device(device))
        self.share, self._folder = count, folder
        self._files: dict[str, Path] = {}
        threads = max(1, torch.get_num_threads() // count)
        context = multiprocessing.get_context("spawn")
        self._workers = ProcessPoolExecutor(count, context, _begin, (threads,))

    def slots(self) -> int:
        return self.share

    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Future[Any]:
        name = batch.config.dataset
        if name not in self._files:
            self._files[name] = self._folder / f"{len(self._files)}.pt"
            torch.save(graph, self._files[name])
        return self._workers.submit(_train, batch, self._files[name], str(self.device), seed)

    def ready(self, handles: list[Future[Any]]) -> Iterable[Future[Any]]:
        return wait(handles, timeout=1, return_when=FIRST_COMPLETED).done

    def outcome(self, handle: Future[Any], batch: Batch) -> list[Trained]:
        try:
            trained: list[Trained] = handle.result()
        except BrokenProcessPool as error:
            raise MachineError(f"A process ended while it trained {batch.config.title}.") from error
        return trained

    def shut(self) -> None:
        """Forget what is still being trained."""
        self._workers.shutdown(cancel_futures=True)


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


def _train(batch: Batch, path: Path, device: str, seed: int | None) -> list[Trained]:
    """One batch, in a process of the pool."""
    prepared = _cells(path, batch.config.dataset, device)
    return list(Here(device).train(iter([batch]), prepared, seed, lambda *progress: None))


@contextmanager
def this_process(device: str) -> Iterator[Pool]:
    """A pool without workers."""
    yield Here(device)


@contextmanager
def processes(count: int, device: str) -> Iterator[Pool]:
    """Processes of this machine, for the time of the block."""
    before = set(multiprocessing.active_children())
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        pool = Processes(count, device, Path(folder))
        try:
            yield pool
        finally:
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            pool.shut()
