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
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import torch

from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.engine.cells import PreparedCells, Trained, choose_device
from graphrelu.lab.errors import MachineError, Terminated, held, kept
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Batch

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


@dataclass
class Workers:
    """Several workers, which train a batch each.

    Attributes:
        count: How many batches are trained at once.
        send: Makes a graph known to the workers, once for all batches.
        begin: Begins a batch on what was sent, with a look inside the model of a seed.
        deaths: The errors of a worker that ended without an answer.
        end: How such a worker ended, in words.
    """

    device: torch.device
    count: int
    send: Callable[[Graph | GraphSet], Any]
    begin: Callable[[Batch, Any, int | None], Future[list[Trained]]]
    deaths: type[Exception]
    end: str
    share: int = 1

    def train(
        self, batches: Iterator[Batch], prepared: PreparedCells, seed: int | None, report: Report
    ) -> Iterator[Trained]:
        sent: dict[str, Any] = {}
        in_flight: dict[Future[list[Trained]], Batch] = {}
        while True:
            finished: list[Trained] = []
            with held():  # an interruption inside Ray, or inside a lock, would be lost
                while len(in_flight) < self.count and (batch := next(batches, None)):
                    name = batch.config.dataset
                    if name not in sent:
                        sent[name] = self.send(prepared.graph(batch.config))
                    in_flight[self.begin(batch, sent[name], seed)] = batch
                if not in_flight:
                    return
                for future in wait(in_flight, 1, return_when=FIRST_COMPLETED).done:
                    finished += self._outcome(future, in_flight.pop(future))
            yield from finished

    def _outcome(self, future: Future[list[Trained]], batch: Batch) -> list[Trained]:
        """What was trained, or the error that ended it."""
        try:
            return future.result()
        except self.deaths as error:
            if (cause := getattr(error, "cause", None)) is not None:  # Ray's envelope of an error
                raise cause from error
            runs = f"{len(batch.seeds)} runs of {batch.config.title} at once"
            raise MachineError(f"{self.end} while training {runs}.") from error


@contextmanager
def processes(count: int, device: str) -> Iterator[Pool]:
    """Processes of this machine, for the time of the block; graphs reach them by files."""
    where, before = choose_device(device), set(multiprocessing.active_children())
    threads = max(1, torch.get_num_threads() // count)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        executor = ProcessPoolExecutor(count, spawn, _begin, (threads,))

        def send(graph: Graph | GraphSet) -> Path:
            path = Path(tempfile.mkdtemp(dir=folder), "graph.pt")
            torch.save(graph, path)
            return path

        def begin(batch: Batch, path: Path, seed: int | None) -> Future[Any]:
            return executor.submit(_train, batch, path, where.type, seed)

        try:
            yield Workers(
                where, count, send, begin, BrokenProcessPool, "A process ended", share=count
            )
        finally:  # what is still being trained is forgotten
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            executor.shutdown(cancel_futures=True)


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


def _train(
    batch: Batch, graph: Graph | GraphSet | Path, device: str, seed: int | None
) -> list[Trained]:
    """One batch, in a worker. What is prepared of a graph in a file serves the next batch, too."""
    name, where = batch.config.dataset, choose_device(device)
    if isinstance(graph, Path):
        prepared = _read(graph, name, where)
    else:
        prepared = PreparedCells({name: graph}, None, where)
    return list(prepared.train(batch, seed, lambda *progress: None))


@cache
def _read(path: Path, name: str, device: torch.device) -> PreparedCells:
    graph = torch.load(path, weights_only=False)  # of this very command
    return PreparedCells({name: graph}, None, device)


@contextmanager
def cluster(device: str) -> Iterator[Pool]:
    """The Ray cluster of ``RAY_ADDRESS``, else one on this machine for the time of the block; a
    connection that is there already is used and left open.

    The datasets are sent to the workers, which send results back: only the package must be
    installed there. Where a worker dies, its batch is trained again elsewhere. ``device`` is that
    of the workers; ``auto`` is a GPU for each where the cluster has any.
    """
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
        where = choose_device(device, ray.cluster_resources().get("GPU", 0) >= 1).type
        resource = "GPU" if where == "cuda" else "CPU"
        # Ray tries again only where a worker died, not where the training raised.
        options = {"max_retries": MOST_TRIES - 1, f"num_{resource.lower()}s": 1}
        task = ray.remote(**options)(_train)

        def begin(batch: Batch, graph: Any, seed: int | None) -> Future[Any]:
            named = task.options(name=f"train {batch.config.dataset}")
            future: Future[Any] = named.remote(batch, graph, where, seed).future()
            return future

        # The memory of the workers' GPUs cannot be seen from here.
        here = choose_device("cpu" if where == "cpu" else "auto")
        count = max(1, int(ray.cluster_resources().get(resource, 0)))
        ended = f"{MOST_TRIES} Ray workers died"
        yield Workers(here, count, ray.put, begin, ray.exceptions.RayError, ended)
