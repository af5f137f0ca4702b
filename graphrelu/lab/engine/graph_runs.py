"""Many runs on sets of graphs: a few processes side by side on one device, and a record.

The parent alone writes the record, a JSON line for each finished run; a run that is there is not
done again. ``python -m graphrelu.lab.engine.graph_runs runs.jsonl --data FOLDER --record FILE``
needs torch, PyG and NumPy only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from graphrelu.lab.data.molecules import Molecules
from graphrelu.lab.engine.graph_training import DeviceGraphs, GraphRun, Training
from graphrelu.lab.record.output import sentence

EVENT = "graph_run"


def read_record(path: Path) -> list[dict[str, Any]]:
    """The finished runs; of the same run, the first. An incomplete last line, of a killed process,
    is not data."""
    entries: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") == EVENT:
            entries.setdefault(GraphRun.from_dict(entry["run"]).key(), entry)
    return list(entries.values())


def append(path: Path, entry: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + json.dumps({"event": EVENT} | entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


@lru_cache(maxsize=1)
def _load(path: Path) -> Molecules:
    return Molecules.load(path)


@lru_cache(maxsize=1)
def _on_device(path: Path, device: torch.device, walks: int) -> DeviceGraphs:
    return DeviceGraphs(_load(path), device, walks)


def perform(
    run: GraphRun, data: Path, states: Path | None, device: str, until: float
) -> dict[str, Any] | None:
    """The result of a run; ``None`` where time was up: what was begun is then in ``states``."""
    if time.time() > until:
        return None
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    where = torch.device(device)
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    path = data / f"{run.dataset}.npz"
    training = Training(run, _load(path), _on_device(path, where, run.network.walks))
    state = None if states is None else states / f"{run.key()}.pt"
    if state is not None and state.exists():
        training.resume(state)
    if training.train(until):
        if state is not None:
            state.unlink(missing_ok=True)
        return training.result()
    if state is not None:
        training.save(state)
    return None


def perform_all(
    runs: Sequence[GraphRun],
    data: Path,
    record: Path,
    processes: int = 1,
    seconds: float = float("inf"),
    states: Path | None = None,
    device: str = "cpu",
    tell: Callable[[str], object] = print,
) -> int:
    """Do the runs that the record lacks, in this order; returns how many are still missing. A
    sentence on each goes to ``tell``."""
    until = time.time() + seconds
    done = {GraphRun.from_dict(entry["run"]).key() for entry in read_record(record)}
    missing = [run for run in runs if run.key() not in done]
    left = len(missing)
    for run, result in _results(missing, processes, (data, states, device, until)):
        if result is None:
            continue
        append(record, result | {"processes": processes})
        left -= 1
        seconds, step = result["seconds"], 1e3 * result["seconds"] / result["steps"]
        score = f"{run.metric} {result['score']:.4f}"
        tell(f"{run.title}: {score} ({seconds:.0f} s, {step:.1f} ms a step)")
    return left


def _results(
    runs: Sequence[GraphRun], processes: int, arguments: tuple[Any, ...]
) -> Iterator[tuple[GraphRun, dict[str, Any] | None]]:
    if processes == 1:
        for run in runs:
            yield run, perform(run, *arguments)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(perform, run, *arguments): run for run in runs}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except RuntimeError as error:  # such as too little memory: the others go on
                print(f"{futures[future].title}: {error}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--states", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = vars(parser.parse_args())
    try:
        lines = options.pop("runs").read_text().splitlines()
        left = perform_all([GraphRun.from_dict(json.loads(line)) for line in lines], **options)
    except (OSError, ValueError) as error:
        parser.error(sentence(error))
    print(f"{left} of {len(lines)} runs are missing.")


if __name__ == "__main__":
    main()
