"""A pool of the workers of a Ray cluster; the process that asks for it alone writes the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.cells import PreparedCells, choose_device
from graphrelu.lab.engine.memory import MOST_SEEDS
from graphrelu.lab.engine.pools import Here, Pool, Spread, Trained
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.results import Batch
from graphrelu.lab.signals import Terminated, kept

# A batch at which so many workers died, one after the other, is at fault itself.
MOST_TRIES = 4


@contextmanager
def cluster(device: str) -> Iterator[Pool]:
    """The cluster of ``RAY_ADDRESS``, else one on this machine for the time of the block; a
    connection that is there already is used and left open.

    Where a worker dies, its batch is trained again elsewhere. ``auto`` is a GPU for each worker
    where the cluster has any.
    """
    with ExitStack() as stack:
        if not ray.is_initialized():
            with kept():
                quiet = {"log_to_driver": False, "logging_level": "error"}
                try:
                    ray.init(include_dashboard=False, **quiet)
                except SystemExit:  # what Ray makes of SIGTERM
                    raise Terminated from None
            stack.callback(ray.shutdown)
        workers = Cluster(_worker_device(device))
        stack.callback(workers.cancel)
        yield workers


class Cluster(Spread):
    """The datasets are sent to the workers, which send results back: only the package must be
    installed there."""

    def __init__(self, where: str) -> None:
        # The memory of the workers' GPUs cannot be seen from here.
        super().__init__(choose_device("cpu" if where == "cpu" else "auto"))
        # Ray tries again only where a worker died, not where the training raised.
        resource = {"num_gpus": 1} if where == "cuda" else {"num_cpus": 1}
        self._task = ray.remote(max_retries=MOST_TRIES - 1, **resource)(_train)
        self._where = where
        self._sent: dict[str, ray.ObjectRef[Graph | GraphSet]] = {}

    def slots(self) -> int:
        resource = "GPU" if self._where == "cuda" else "CPU"
        return max(1, int(ray.cluster_resources().get(resource, 0)))

    def submit(self, batch: Batch, graph: Graph | GraphSet, seed: int | None) -> Any:
        name = batch.config.dataset
        if name not in self._sent:
            self._sent[name] = ray.put(graph)
        task = self._task.options(name=f"train {name}")
        return task.remote(batch, self._sent[name], self._where, seed)

    def ready(self, handles: list[Any]) -> list[Any]:
        finished: list[Any] = ray.wait(handles, timeout=1)[0]
        return finished

    def outcome(self, handle: Any, batch: Batch) -> list[Trained]:
        try:
            trained: list[Trained] = ray.get(handle)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise MachineError(
                f"{MOST_TRIES} Ray workers died at {batch.config.activation} of "
                f"{batch.config.backbone} on {batch.config.dataset}, with {len(batch.seeds)} runs "
                "at once: try fewer at once, or workers with more memory."
            ) from error
        return trained

    def cancel(self) -> None:
        """End what is still being trained."""
        for reference in self.in_flight:
            ended, _ = ray.wait([reference], timeout=0)
            if not ended:  # Ray may abort this process when a task that has ended is cancelled
                ray.cancel(reference, force=True)


def _worker_device(name: str) -> str:
    if name not in ("auto", *MOST_SEEDS):
        raise ValueError(f"There is no device {name!r} for Ray; known are auto, cpu and cuda.")
    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    if name == "cuda" and not has_gpu:
        raise ValueError("There is no device 'cuda' here: the Ray cluster has no GPU.")
    return "cuda" if has_gpu and name != "cpu" else "cpu"


def _train(batch: Batch, graph: Graph | GraphSet, device: str, seed: int | None) -> list[Trained]:
    """One batch, in a worker."""
    here = Here(device)
    prepared = PreparedCells({batch.config.dataset: graph}, None, here.device)
    return list(here.train(iter([batch]), prepared, seed, lambda *progress: None))
