"""How times are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run: Callable[[], Any], device: torch.device, calls: int = 1) -> float:
    """The time of some calls, one after the other, until the device has finished them."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(calls):
        run()
    synchronize(device)
    return time.perf_counter() - started


def captured(run: Callable[[], Any], device: torch.device) -> Callable[[], None]:
    """A call as one CUDA graph: its time is the device's alone, without the host's."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):  # what is prepared lazily must be there before the capture
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    return graph.replay
