"""From configurations to results: the runs that are not on record are trained in batches, in this
process, in several of this machine, or in a Ray cluster.

A pool takes batches one by one and hands back what is finished; its caller alone writes to the
record.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.graph_training import DeviceGraphs, Training, network_of, split_set
from graphrelu.lab.engine.keep import inspect, inspect_set, inspection_path
from graphrelu.lab.engine.train import build, train_nodes
from graphrelu.lab.errors import MachineError, Terminated, held, kept
from graphrelu.lab.models.propagation import PreparedInputs, row_normalized
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import write_bytes
from graphrelu.lab.record.results import Batch, Record, Result

Pool: TypeAlias = "Here | Workers"
Report: TypeAlias = Callable[[Config, tuple[int, ...], int], None]  # with the epoch

# More runs at once gain nothing: two cores, or a GPU, are busy by then.
MOST_SEEDS = {"cpu": 10, "cuda": 100}
CPU_BUDGET = 2**31  # bytes for the activations of a batch
CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory"  # torch has no type for it
MOST_PROCESSES = 256
# A batch at which this many Ray workers died, one after the other, is at fault itself.
MOST_TRIES = 4


class Progress(NamedTuple):
    """How far the runs of `config` are, and how many runs of all are finished."""

    config: Config
    seeds: tuple[int, ...]
    epoch: int
    runs_done: int
    runs_total: int


def run(
    configs: Sequence[Config],
    seeds: Sequence[int],
    record: Record | None,
    *,
    root: str | Path | None = None,
    graphs: Mapping[str, Graph | GraphSet] | None = None,
    device: str = "auto",
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    pool: str = "local",
    inspects: bool = True,
) -> list[Result]:
    """Trains the missing runs and returns all results of these configurations and seeds.

    Args:
        configs: The cells, those of one graph and backbone best together.
        seeds: The runs of each cell.
        record: Where finished runs are, and are added; without one all are trained.
        root: The folder of the datasets.
        graphs: Graphs that are loaded already, by the name of their dataset.
        device: `auto`, `cpu` or `cuda`.
        deadline: A value of `time.monotonic()` after which no batch is begun.
        progress: Called every few epochs; of a cluster, whenever a batch is finished.
        pool: `local`, this process; a number of processes; or `ray`, the workers of a
            Ray cluster.
        inspects: Whether a look inside a model of each cell is kept beside the record.
    """
    wanted = [(config.key(), seed) for config in configs for seed in seeds]
    known = [] if record is None else record.read()
    on_record = {(result.config.key(), result.seed): result for result in known}
    done = {key: on_record[key] for key in wanted if key in on_record}
    total = len(set(wanted))

    def report(config: Config, own: tuple[int, ...], epoch: int, kept: bool = False) -> None:
        # What is finished is reported once it is on record.
        if progress is not None and (kept or epoch < config.epochs):
            progress(Progress(config, own, epoch, len(done), total))

    def missing(prepared: PreparedCells, share: int) -> Iterator[Batch]:
        """What is not on record, in batches that fit into memory, until the deadline."""
        for config in dict.fromkeys(configs):
            left = list(seeds) if record is None else record.left(config, seeds)
            while left and (deadline is None or time.monotonic() <= deadline):
                size = runs_at_once(config, prepared.graph(config), prepared.device, share)
                yield Batch(config, tuple(left[:size]))
                left = left[size:]

    with ExitStack() as stack:
        if record is not None and len(done) < total:
            stack.enter_context(record.exclusive())
        workers = stack.enter_context(pool_of(pool, device))
        prepared = PreparedCells(graphs or {}, root, workers.device)
        batches = missing(prepared, workers.share)
        seed = seeds[0] if inspects and record is not None else None
        for (config, own), results, look in workers.train(batches, prepared, seed, report):
            if record is not None:
                if look is not None:
                    write_bytes(inspection_path(record.path, config.key()), look)
                record.append(results)
            done |= {(config.key(), result.seed): result for result in results}
            report(config, own, config.epochs, kept=True)
    return [done[key] for key in wanted if key in done]


def run_all(runs: Mapping[Config, Sequence[int]], record: Record, **how: Any) -> int:
    """:func:`run` for the cells of a table, which have seeds of their own, without looks inside
    models; returns how many of the runs are on record."""
    how |= {"inspects": False}
    by_seeds: dict[tuple[int, ...], list[Config]] = {}
    for config, seeds in runs.items():
        by_seeds.setdefault(tuple(seeds), []).append(config)
    return sum(len(run(configs, own, record, **how)) for own, configs in by_seeds.items())


class Trained(NamedTuple):
    """A batch, or a part of one that did not fit into memory; and a look inside one model of it."""

    batch: Batch
    results: list[Result]
    look: bytes | None


def choose_device(name: str = "auto", has_gpu: bool | None = None) -> torch.device:
    """The device by name; `auto` is the GPU where there is one, by default on this machine."""
    if name not in ("auto", *MOST_SEEDS):
        raise ValueError(f"There is no device {name!r}; choose from auto, cpu and cuda.")
    if has_gpu is None:
        has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ValueError("There is no device 'cuda' here: no GPU is found.")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def features_of(config: Config, graph: Graph) -> Tensor:
    """The graph's features, normalised if the cell asks for it; sparse features stay sparse."""
    return row_normalized(graph.x) if config.normalize_features else graph.x


def prepare_inputs(config: Config, graph: Graph, device: torch.device) -> PreparedInputs:
    """Features and graph in the form that the models of a cell take, for any activation."""
    weight = graph.edge_weight
    return build(config, graph, 0).prepare(
        features_of(config, graph).to(device, getattr(torch, config.dtype)),
        graph.edge_index.to(device),
        None if weight is None else weight.to(device),
    )


def load_dataset(config: Config, root: str | Path | None) -> Graph | GraphSet:
    """The graph, or the set of graphs, of a configuration."""
    if not data.holds_graphs(config.dataset):
        return data.load(config.dataset, root)
    return data.load_graphs(config.dataset, root, split=config.split)  # type: ignore[arg-type]


def split_for(config: Config, graph: Graph | GraphSet, seed: int) -> Split:
    """The training, validation and test nodes, or graphs, of a run."""
    if isinstance(graph, GraphSet):
        return split_set(config, graph, seed)
    return make_split(graph, seed, config.split)


class PreparedCells:
    """The graph and the prepared inputs of the current cell, shared with the next cells."""

    def __init__(
        self,
        graphs: Mapping[str, Graph | GraphSet],
        root: str | Path | None,
        device: torch.device,
    ) -> None:
        self.graphs, self.root, self.device = dict(graphs), root, device
        self.key: tuple[Any, ...] | None = None
        self.inputs: Any = None

    def graph(self, config: Config) -> Graph | GraphSet:
        name = config.dataset
        if name not in self.graphs:
            self.graphs[name] = load_dataset(config, self.root)
        return self.graphs[name]

    def train(
        self, batch: Batch, seed: int | None, report: Callable[[tuple[int, ...], int], None]
    ) -> Iterator[Trained]:
        """Trains the runs of a batch at once or, if memory runs out, half by half; the
        look is inside the model of ``seed``."""
        config, seeds = batch
        try:
            trained = self._train(batch, seed, partial(report, seeds))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(seeds) == 1:
                few = f"There is too little memory for one run of {config.title}."
                raise MachineError(few) from error
        else:
            yield trained
            return
        gc.collect()  # only now, as the error kept everything alive
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        middle = len(seeds) // 2
        for part in (seeds[:middle], seeds[middle:]):
            yield from self.train(Batch(config, part), seed, report)

    def _train(self, batch: Batch, seed: int | None, progress: Callable[[int], None]) -> Trained:
        config, graph, inputs = batch.config, self.graph(batch.config), self.inputs_of(batch.config)
        if isinstance(graph, GraphSet):
            (own,) = batch.seeds
            run = Training(config, graph, inputs, own)
            run.train(progress)
            is_shown = own == seed and config.activation == "grelu"
            return Trained(batch, [run.result()], inspect_set(run) if is_shown else None)
        models, results = train_nodes(config, graph, inputs, batch.seeds, self.device, progress)
        look = None
        if seed in batch.seeds and graph.task == "classes":
            look = inspect(models, seed)
        return Trained(batch, results, look)

    def inputs_of(self, config: Config) -> Any:
        graph, network = self.graph(config), (config.backbone, config.backbone_options)
        key = (config.dataset, *network, config.normalize_features, config.dtype)
        if key == self.key:
            return self.inputs
        self.key = self.inputs = None  # free the old ones before the new ones come
        if isinstance(graph, GraphSet):
            self.inputs = DeviceGraphs(graph, self.device, network_of(config).walks)
        else:
            self.inputs = prepare_inputs(config, graph, self.device)
        self.key = key
        return self.inputs


def runs_at_once(
    config: Config, graph: Graph | GraphSet, device: torch.device, share: int = 1
) -> int:
    """The size of a cell's batches: as many as fit, by a generous estimate, where ``share`` batches
    are trained at once. Runs on a set of graphs are not stacked."""
    if isinstance(graph, GraphSet):
        return 1
    available = CPU_BUDGET // share
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0] // (2 * share)
    parameters = sum(p.numel() for p in build(config, graph, 0).parameters())
    size = 8 if config.dtype == "float64" else 4
    fitting = available // size // (_numbers_kept(config, graph) + 8 * parameters)
    return max(1, min(MOST_SEEDS[device.type], fitting))


def _numbers_kept(config: Config, graph: Graph) -> int:
    """How many numbers the layers of a run keep of a graph."""
    options = dict(config.backbone_options)
    layers, heads, stacks = (
        int(options.get(name) or usual)
        for name, usual in (("layers", 3), ("heads", 1), ("num_stacks", 1))
    )
    nodes, edges = graph.num_nodes, graph.num_edges + graph.num_nodes
    width = max(config.hidden, graph.num_classes) * stacks
    if not config.is_deep:
        width *= heads
    numbers = 12 * layers * nodes * width
    if config.backbone == "gat":  # the attention of each layer, and once the messages
        numbers += edges * (12 * layers * heads + 4 * width)
    if config.activation == "undecomposed":  # four coefficients for each node and channel
        numbers += 12 * layers * nodes * 4 * width
    return numbers


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether there was too little memory, on a GPU or not.

    While a CUDA graph is captured, another error may follow from it and hide it.
    """
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or CPU_MESSAGE in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


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
        executor = ProcessPoolExecutor(count, spawn, _begin_process, (threads,))

        def send(graph: Graph | GraphSet) -> Path:
            path = Path(tempfile.mkdtemp(dir=folder), "graph.pt")
            torch.save(graph, path)
            return path

        def begin(batch: Batch, path: Path, seed: int | None) -> Future[Any]:
            return executor.submit(_train_elsewhere, batch, path, where.type, seed)

        try:
            yield Workers(
                where, count, send, begin, BrokenProcessPool, "A process ended", share=count
            )
        finally:  # what is still being trained is forgotten
            for worker in set(multiprocessing.active_children()) - before:
                worker.terminate()
            executor.shutdown(cancel_futures=True)


def _begin_process(threads: int) -> None:
    """In a new process: it ends with the one that began it, which alone hears Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _train_elsewhere(
    batch: Batch, graph: Graph | GraphSet | Path, device: str, seed: int | None
) -> list[Trained]:
    """One batch, in a worker. What is prepared of a graph in a file serves the next batch, too."""
    name, where = batch.config.dataset, choose_device(device)
    if isinstance(graph, Path):
        prepared = _prepared_in(graph, name, where)
    else:
        prepared = PreparedCells({name: graph}, None, where)
    return list(prepared.train(batch, seed, lambda *progress: None))


@cache
def _prepared_in(path: Path, name: str, device: torch.device) -> PreparedCells:
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
        task = ray.remote(**options)(_train_elsewhere)

        def begin(batch: Batch, graph: Any, seed: int | None) -> Future[Any]:
            named = task.options(name=f"train {batch.config.dataset}")
            future: Future[Any] = named.remote(batch, graph, where, seed).future()
            return future

        # The memory of the workers' GPUs cannot be seen from here.
        here = choose_device("cpu" if where == "cpu" else "auto")
        count = max(1, int(ray.cluster_resources().get(resource, 0)))
        ended = f"{MOST_TRIES} Ray workers died"
        yield Workers(here, count, ray.put, begin, ray.exceptions.RayError, ended)
