"""Signals, neighbours and clocks: a record takes no harm, and the same command continues."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import cli
from graphrelu.lab.record import machine
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.table import Request
from tests.lab import faults
from tests.lab.faults import COMMAND, at_the_second_batch, continues, finished

# Processes of their own that need not import everything anew.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["graphrelu.lab.cli", "graphrelu.lab.engine", "sklearn.datasets"])
YEARS = timedelta(days=3_650)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return faults.place(tmp_path, monkeypatch)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of :func:`graphrelu.lab.cli.run`, which listens to SIGTERM."""
    with monkeypatch.context() as patch:
        at_the_second_batch(patch, lambda: signal.raise_signal(number))
        patch.setattr(sys, "argv", ["graphrelu", *map(str, COMMAND)])
        assert cli.run() == code
    assert len(finished(Path("runs.jsonl"))) == 2
    assert Record("runs.jsonl").corrupt_lines == []
    continues()


def die(main: Callable[[list[str]], int], arguments: list[str], is_small: bool) -> None:
    """A command in a process of its own, which is killed in its second batch."""
    torch.set_num_threads(1)  # as the tests, since records tell
    patch = pytest.MonkeyPatch()
    if is_small:
        faults.place(Path.cwd(), patch)
    at_the_second_batch(patch, lambda: os.kill(os.getpid(), signal.SIGKILL))
    main(arguments)


def killed_at_the_second_batch(
    main: Callable[[list[str]], int], arguments: list[str], is_small: bool = False
) -> None:
    process = FORKS.Process(target=die, args=(main, arguments, is_small))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def test_kill_and_continue() -> None:
    killed_at_the_second_batch(cli.run, [str(argument) for argument in COMMAND], is_small=True)
    assert len(finished(Path("runs.jsonl"))) == 2
    continues()


class Jumping(datetime):
    """A clock that is set, ten years back or forth, between any two looks at it."""

    looks = 0

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        Jumping.looks += 1
        return datetime.now(tz) + (YEARS if Jumping.looks % 2 else -YEARS)


def test_a_clock_that_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "datetime", Jumping)
    monkeypatch.setattr(time, "time", lambda: Jumping.now().timestamp())
    assert Request(1, Path("runs.jsonl"), seconds=100).deadline == pytest.approx(
        time.monotonic() + 100, abs=5
    )
    continues()
    assert Jumping.looks >= 3  # one for each batch
    results = Record("runs.jsonl").read()
    assert {result.date[:3] for result in results} <= {"201", "202", "203", "204"}
    assert all(0 < result.seconds < 60 for result in results)
