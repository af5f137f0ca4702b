"""The engine's batches on the machines of a Ray cluster; this process alone writes the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine import PreparedCells, Progress, in_order, memory
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.output import complete
from graphrelu.lab.record.results import Batch, Record, Result

# A batch at which so many workers died, one after the other, is at fault itself.
MOST_TRIES = 4


def run(
    configs: Sequence[Config],
    seeds: Sequence[int],
    record: Record | None,
    *,
    root: str | Path | None = None,
    graphs: Mapping[str, Graph | GraphSet] | None = None,
    device: str = "auto",
    seeds_at_once: int | None = None,
    save: Path | None = None,
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    address: str | None = None,
) -> list[Result]:
    """:func:`graphrelu.lab.engine.run`, with the batches spread over a Ray cluster.

    The datasets are read here and sent to the workers, which send results and files back: only
    the package must be installed there. Where a worker dies, its batch is trained again elsewhere.
    What is not listed is as in the engine.

    Args:
        device: Of the workers; `auto` is a GPU for each where the cluster has any.
        progress: Called whenever a batch is finished.
        address: The cluster, by default that of `RAY_ADDRESS`, else one on this machine for the
            time of the call. A connection that is there already is used and left open.
    """
    with ExitStack() as stack:
        if not ray.is_initialized():
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="error")
            stack.callback(ray.shutdown)
        if record is None:
            folder = stack.enter_context(TemporaryDirectory())
            record = Record(Path(folder, "runs.jsonl"))
        sweep = _Sweep(configs, seeds, record, _worker_device(device), save)
        prepared = PreparedCells(graphs or {}, root, sweep.planning_device())
        batches = sweep.claimed(prepared, seeds_at_once, deadline)
        in_flight: dict[ray.ObjectRef[Any], Batch] = {}
        try:
            while True:
                while len(in_flight) < sweep.slots() and (batch := next(batches, None)):
                    in_flight[sweep.submit(batch, prepared)] = batch
                if not in_flight:
                    return sweep.results()
                (ready, *_), _ = ray.wait(list(in_flight))
                sweep.finish(ready, in_flight[ready])
                batch = in_flight.pop(ready)
                if progress is not None:
                    progress(sweep.progress(batch))
        except BaseException:
            for reference, batch in in_flight.items():
                ended, _ = ray.wait([reference], timeout=0)
                if not ended:  # Ray may abort this process when a task that has ended is cancelled
                    ray.cancel(reference, force=True)
                record.release(batch.config, batch.missing)
            raise


class _Sweep:
    """The batches of a run, as the driver process sees them."""

    def __init__(
        self,
        configs: Sequence[Config],
        seeds: Sequence[int],
        record: Record,
        device: str,
        save: Path | None,
    ) -> None:
        self.configs, self.seeds, self.record = configs, seeds, record
        self.device, self.save = device, save
        self.sent: dict[str, ray.ObjectRef[Graph | GraphSet]] = {}
        resource = {"num_gpus": 1} if device == "cuda" else {"num_cpus": 1}
        # Ray tries again only where a worker died, not where the training raised.
        self.task = ray.remote(max_retries=MOST_TRIES - 1, **resource)(_train)

    def slots(self) -> int:
        """How many batches the cluster can train at once, at this moment."""
        name = "GPU" if self.device == "cuda" else "CPU"
        return max(1, int(ray.cluster_resources().get(name, 0)))

    def planning_device(self) -> torch.device:
        """For the size of the batches: the memory of the workers' GPUs cannot be seen from here."""
        return engine.choose_device("cpu" if self.device == "cpu" else "auto")

    def claimed(
        self, prepared: PreparedCells, seeds_at_once: int | None, deadline: float | None
    ) -> Iterator[Batch]:
        """The missing batches; each batch is claimed when it is asked for."""
        for config in self.configs:
            if not self.record.plan([config], self.seeds, batch_size=1):
                continue  # before its dataset is read
            graph = prepared.graph(config)
            size = memory.runs_at_once(config, graph, prepared.device, seeds_at_once)
            for batch in self.record.plan([config], self.seeds, size):
                if deadline is not None and time.monotonic() > deadline:
                    return
                if self.record.claim(*batch):
                    yield batch

    def submit(self, batch: Batch, prepared: PreparedCells) -> ray.ObjectRef[Any]:
        name = batch.config.dataset
        if name not in self.sent:
            self.sent[name] = ray.put(prepared.graph(batch.config))
        inspected = self.record.path.name if self.seeds[0] in batch.missing else None
        saves = self.save is not None
        reference: ray.ObjectRef[Any] = self.task.options(name=f"train {name}").remote(
            batch, self.sent[name], self.device, inspected, saves
        )
        return reference

    def finish(self, reference: ray.ObjectRef[Any], batch: Batch) -> None:
        """Writes the results and files of a worker."""
        try:
            results, beside_record, models = ray.get(reference)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise MachineError(
                f"{MOST_TRIES} Ray workers died at {batch.config.activation} of "
                f"{batch.config.backbone} on {batch.config.dataset}, with {len(batch.seeds)} runs "
                "at once: try fewer at once, or workers with more memory."
            ) from error
        _write(beside_record, self.record.path.parent)
        if self.save is not None:
            _write(models, self.save)
        self.record.append(result for result in results if result.seed in batch.missing)

    def results(self) -> list[Result]:
        return in_order(self.record.read(), self.configs, self.seeds)

    def progress(self, batch: Batch) -> Progress:
        epochs, total = batch.config.epochs, len(self.configs) * len(self.seeds)
        return Progress(batch.config, batch.seeds, epochs, len(self.results()), total, epochs)


def _worker_device(name: str) -> str:
    if name not in ("auto", *memory.MOST_SEEDS):
        raise ValueError(f"There is no device {name!r} for Ray; known are auto, cpu and cuda.")
    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    if name == "cuda" and not has_gpu:
        raise ValueError("There is no device 'cuda' here: the Ray cluster has no GPU.")
    return "cuda" if has_gpu and name != "cpu" else "cpu"


Files = dict[Path, bytes]


def _train(
    batch: Batch, graph: Graph | GraphSet, device: str, inspected: str | None, saves: bool
) -> tuple[list[Result], Files, Files]:
    """One batch, in a worker: its results, the files beside the record and the saved models.

    Files travel by their contents, as the worker may share no file system with the driver. Those
    beside the record are named after it, and are there if its name is given by `inspected`.
    """
    with TemporaryDirectory() as name:
        folder, models = Path(name, "record"), Path(name, "models")
        results = engine.run(
            [batch.config],
            batch.seeds,
            None if inspected is None else Record(folder / inspected),
            graphs={batch.config.dataset: graph},
            device=device,
            seeds_at_once=len(batch.seeds),
            save=models if saves else None,
        )
        return results, _read(folder, "*/*"), _read(models, "*")


def _read(folder: Path, pattern: str) -> Files:
    return {path.relative_to(folder): path.read_bytes() for path in folder.glob(pattern)}


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        with complete(folder / name) as part:
            part.write_bytes(content)
