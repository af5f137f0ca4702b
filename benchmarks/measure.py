"""Time and peak memory of a callable, and where the record of them goes."""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from graphrelu.lab.engine.timing import captured, seconds

# Calls between two looks at the clock. A GPU works behind its host, in training as here: a look
# after every call would time the host's first step again and again.
BACK_TO_BACK = {"cpu": 1, "cuda": 10}
# Seconds for each, alone and where rivals take turns: a GPU's times hardly differ from each other.
BUDGET = {"cpu": 2.0, "cuda": 0.5}
IN_TURN = {"cpu": 12.0, "cuda": 0.5}


def milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    """The median of as many repetitions as fit the budget, at least three."""
    return milliseconds_in_turn({"alone": run}, device, BUDGET)["alone"]


def milliseconds_in_turn(
    runs: dict[str, Callable[[], Any]],
    device: torch.device,
    budget: dict[str, float] = IN_TURN,
    calls: int | None = None,
) -> dict[str, float]:
    """The medians of rivals that take turns: when a machine slows down, it does so for all."""
    for run in runs.values():
        run()  # first calls prepare, allocate and choose kernels
    calls = calls or BACK_TO_BACK[device.type]
    times: dict[str, list[float]] = {name: [] for name in runs}
    started, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - started < budget[device.type] * len(runs):
        for name, run in runs.items():
            times[name].append(1e3 * seconds(run, device, calls) / calls)
        rounds += 1
    return {name: statistics.median(values) for name, values in times.items()}


def replayed_milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    """The same from a CUDA graph: the device's own time, without its host's."""
    return milliseconds(captured(run, device), device)


def peak_mebibytes(run: Callable[[], Any], device: torch.device) -> float:
    """The most memory that torch held at once beyond what was there before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    activities = [torch.profiler.ProfilerActivity.CPU]
    with _quiet(), torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        run()
    held = peak = 0
    assert profiler.profiler is not None
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / 2**20


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the profiler's native code writes to standard error."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


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


def save(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"record: {path}")
