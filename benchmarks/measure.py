"""What the benchmarks share: random graphs, time and peak memory, power laws, and the records."""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from graphrelu.lab.engine.timing import synchronize
from graphrelu.lab.record.machine import surroundings

Entry = dict[str, Any]

# Calls between two looks at the clock. A GPU works behind its host, in training as here: a look
# after every call would time the host's first step again and again.
BACK_TO_BACK = {"cpu": 1, "cuda": 10}
BUDGET = {"cpu": 12.0, "cuda": 0.5}  # seconds for each rival: a GPU's times hardly differ


def random_graph(nodes: int, edges: int, device: torch.device | str = "cpu") -> Tensor:
    """An undirected graph with ``edges`` directed edges between uniformly drawn nodes."""
    ends = torch.randint(nodes, (2, edges // 2), device=device)
    return torch.cat([ends, ends.flip(0)], dim=1)


def leave_start(act: torch.nn.Module) -> None:
    """As after some training: zeros would hide a part of the work."""
    for parameter in act.parameters():
        torch.nn.init.normal_(parameter, std=0.1)


def seconds(run: Callable[[], Any], device: torch.device, calls: int = 1) -> float:
    """The time of some calls, one after the other, until the device has finished them."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        run()
    synchronize(device)
    return time.perf_counter() - started


def milliseconds(
    rivals: Mapping[str, Callable[[], Any]],
    device: torch.device,
    budget: float | None = None,
    calls: int | None = None,
) -> dict[str, float]:
    """The medians of rivals that take turns: when a machine slows down, it does so for all."""
    for run in rivals.values():
        run()  # first calls prepare, allocate and choose kernels
    calls = calls or BACK_TO_BACK[device.type]
    budget = BUDGET[device.type] if budget is None else budget
    times: dict[str, list[float]] = {name: [] for name in rivals}
    started, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - started < budget * len(rivals):
        for name, run in rivals.items():
            times[name].append(1e3 * seconds(run, device, calls) / calls)
        rounds += 1
    return {name: statistics.median(values) for name, values in times.items()}


def peak_mebibytes(run: Callable[[], Any], device: torch.device) -> float:
    """The most memory that torch held at once beyond what was there before."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:  # the profiler's native code writes to stderr
        os.dup2(nowhere.fileno(), 2)
    try:
        with torch.profiler.profile(profile_memory=True) as profiler:
            run()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    held = peak = 0
    assert profiler.profiler is not None
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / 2**20


def power_law(
    sizes: Sequence[float], times: Sequence[float]
) -> tuple[float, float | None, float | None]:
    """The exponent of a power law, by least squares on logarithms, with its 95 % interval."""
    line = stats.linregress(np.log(sizes), np.log(times))
    exponent = float(line.slope)
    if len(sizes) < 3:
        return exponent, None, None
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return exponent, exponent - half, exponent + half


def save(path: Path | None, device: torch.device, record: dict[str, Any]) -> None:
    """Keep a record, with the machine and the versions; nothing without a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(surroundings(device) | record, indent=1) + "\n")
        print(f"record: {path}")


@dataclass(frozen=True)
class Timings:
    """A record with a JSON line for each timing; those with the same ``identity`` are the same."""

    path: Path
    identity: Sequence[str]

    def read(self) -> list[Entry]:
        """All timings in the order of the file; of the same identity, the first."""
        found: dict[tuple[Any, ...], Entry] = {}
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for entry in map(json.loads, lines):
            found.setdefault(self.key(entry), entry)
        return list(found.values())

    def append(self, entries: Iterable[Entry]) -> None:
        with self.path.open("a") as file:
            for entry in entries:
                line = json.dumps({"event": "timed", **entry}, separators=(",", ":"))
                file.write(f"{line}\n")

    def key(self, entry: Entry) -> tuple[Any, ...]:
        """The values that identify a timing."""
        return tuple(entry[name] for name in self.identity)


def origin(entries: Sequence[Entry], source: str) -> str:
    """Where the numbers of a page come from."""
    devices = ", ".join(sorted({entry["device"] for entry in entries}))
    versions = ", ".join(sorted({f"torch {entry['versions']['torch']}" for entry in entries}))
    return f"Made from `{source}`: {len(entries):,} timings ({devices}; {versions})."
