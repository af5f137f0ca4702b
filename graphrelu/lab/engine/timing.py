"""Waiting for a GPU, and keeping it busy: calls captured as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures: a stream that has multiplied matrices keeps memory for it."""
    return torch.cuda.Stream(device)


def captured(run: Callable[[], T], device: torch.device, warm_up: int = 3) -> Callable[[], T]:
    """A call as one CUDA graph: its time is the device's alone, without the host's. The next call
    overwrites its result. A few plain calls come first: some things are prepared lazily."""
    stream = _side_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = run()

    def replay() -> T:
        graph.replay()
        return out

    return replay


@contextmanager
def undone(changed: Callable[[], list[Tensor]]) -> Iterator[None]:
    """Afterwards these tensors have their values from before again, in place, as a captured call
    keeps the addresses. Those that are there only then, an optimiser's own, are zero."""
    before = [value.detach().to("cpu", copy=True) for value in changed()]
    yield
    now = changed()
    with torch.no_grad():
        for value, kept in zip(now, before, strict=False):
            value.copy_(kept)
        for value in now[len(before) :]:
            value.zero_()
