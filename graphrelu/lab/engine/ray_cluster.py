"""The engine's batches on the machines of a Ray cluster; this process alone writes the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import ray
from ray.exceptions import RayError, RayTaskError

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine import PreparedCells, Progress, in_order, missing_batches
from graphrelu.lab.engine.memory import MOST_SEEDS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.output import complete
from graphrelu.lab.record.results import Batch, Record, Result
from graphrelu.lab.signals import Terminated, held, kept

Files: TypeAlias = dict[Path, bytes]

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
            with kept():
                quiet = {"log_to_driver": False, "logging_level": "error"}
                try:
                    ray.init(address, include_dashboard=False, **quiet)
                except SystemExit:  # what Ray makes of SIGTERM
                    raise Terminated from None
            stack.callback(ray.shutdown)
        if record is None:
            folder = stack.enter_context(TemporaryDirectory())
            record = Record(Path(folder, "runs.jsonl"))
        where = _worker_device(device)
        # For the size of the batches: the memory of the workers' GPUs cannot be seen from here.
        planning = engine.choose_device("cpu" if where == "cpu" else "auto")
        prepared = PreparedCells(graphs or {}, root, planning)
        missing = missing_batches(configs, seeds, record, prepared, seeds_at_once, deadline)
        claimed = (batch for batch in missing if record.claim(*batch))
        # Ray tries again only where a worker died, not where the training raised.
        resource = {"num_gpus": 1} if where == "cuda" else {"num_cpus": 1}
        task = ray.remote(max_retries=MOST_TRIES - 1, **resource)(_train)
        sent: dict[str, ray.ObjectRef[Graph | GraphSet]] = {}
        in_flight: dict[ray.ObjectRef[Any], Batch] = {}
        try:
            while True:
                with held():  # inside of Ray an interruption becomes an error of Ray's
                    while len(in_flight) < _slots(where) and (batch := next(claimed, None)):
                        name = batch.config.dataset
                        if name not in sent:
                            sent[name] = ray.put(prepared.graph(batch.config))
                        inspected = record.path.name if seeds[0] in batch.missing else None
                        options = (where, inspected)
                        named = task.options(name=f"train {name}")
                        in_flight[named.remote(batch, sent[name], *options)] = batch
                    if not in_flight:
                        return in_order(record.read(), configs, seeds)
                    finished, _ = ray.wait(list(in_flight), timeout=1)
                    for ready in finished:
                        trained = in_flight[ready]
                        results, looks = _outcome(ready, trained)
                        _write(looks, record.path.parent)
                        record.append(run for run in results if run.seed in trained.missing)
                        del in_flight[ready]
                        if progress is not None:
                            done = len(in_order(record.read(), configs, seeds))
                            total, epochs = len(configs) * len(seeds), trained.config.epochs
                            how_far = (epochs, done, total, epochs)
                            progress(Progress(trained.config, trained.seeds, *how_far))
        except BaseException:
            for reference, batch in in_flight.items():
                ended, _ = ray.wait([reference], timeout=0)
                if not ended:  # Ray may abort this process when a task that has ended is cancelled
                    ray.cancel(reference, force=True)
                record.release(batch.config, batch.missing)
            raise


def _slots(device: str) -> int:
    """How many batches the cluster can train at once, at this moment."""
    return max(1, int(ray.cluster_resources().get("GPU" if device == "cuda" else "CPU", 0)))


def _outcome(reference: ray.ObjectRef[Any], batch: Batch) -> tuple[list[Result], Files]:
    """What :func:`_train` returned, or the error that ended it."""
    try:
        outcome: tuple[list[Result], Files] = ray.get(reference)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise MachineError(
            f"{MOST_TRIES} Ray workers died at {batch.config.activation} of "
            f"{batch.config.backbone} on {batch.config.dataset}, with {len(batch.seeds)} runs "
            "at once: try fewer at once, or workers with more memory."
        ) from error
    return outcome


def _worker_device(name: str) -> str:
    if name not in ("auto", *MOST_SEEDS):
        raise ValueError(f"There is no device {name!r} for Ray; known are auto, cpu and cuda.")
    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    if name == "cuda" and not has_gpu:
        raise ValueError("There is no device 'cuda' here: the Ray cluster has no GPU.")
    return "cuda" if has_gpu and name != "cpu" else "cpu"


def _train(
    batch: Batch, graph: Graph | GraphSet, device: str, inspected: str | None
) -> tuple[list[Result], Files]:
    """One batch, in a worker: its results, and the files beside the record.

    Files travel by their contents, as the worker may share no file system with the driver. Those
    beside the record are named after it, and are there if its name is given by `inspected`.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        results = engine.run(
            [batch.config],
            batch.seeds,
            None if inspected is None else Record(folder / inspected),
            graphs={batch.config.dataset: graph},
            device=device,
            seeds_at_once=len(batch.seeds),
        )
        return results, {p.relative_to(folder): p.read_bytes() for p in folder.glob("*/*")}


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        with complete(folder / name) as part:
            part.write_bytes(content)
