"""From configurations to results: the runs that are not on record are trained in batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.engine.cells import (
    PreparedCells,
    choose_device,
    features_of,
    load_dataset,
    prepare_inputs,
    runs_at_once,
)
from graphrelu.lab.engine.keep import inspection_path
from graphrelu.lab.engine.pool import check_pool, pool_of
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import write_bytes
from graphrelu.lab.record.results import Batch, Record, Result

__all__ = ["PreparedCells", "Progress", "check_pool", "choose_device", "load_dataset"]
__all__ += ["features_of", "prepare_inputs", "run", "run_all"]


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
