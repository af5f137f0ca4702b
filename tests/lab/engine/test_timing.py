"""A time is that of one call."""

from __future__ import annotations

import time

import pytest
import torch

from graphrelu.lab.engine.timing import seconds


def test_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    calls: list[str] = []
    assert seconds(lambda: calls.append("called"), torch.device("cpu")) == 2.5
    assert calls == ["called"]
