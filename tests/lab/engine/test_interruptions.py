"""Signals, neighbours and clocks: a record takes no harm, and the same command continues."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import cli, engine
from graphrelu.lab.cli.options import INTERRUPTED
from graphrelu.lab.data import load
from graphrelu.lab.record import machine
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.table import Request
from tests.lab import faults
from tests.lab.fake_engine import invoke
from tests.lab.faults import COMMAND, RUNS, at_the_second_batch, continues, finished

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
    # This process lives on, and has given the batch back.
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


def compare_digits(record: Path, said: Path) -> None:
    """The command in a process of its own; what it says on stderr goes to a file."""
    for stream, path in ((1, os.devnull), (2, said)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    options = ["--epochs", "10", "--runs", "2", "--activations", "relu,prelu,grelu"]
    sys.exit(cli.run(["compare", *options, "--device", "cpu", "--out", str(record)]))


def test_two_commands_and_ctrl_c(folder: Path) -> None:
    """Real processes: two that share a record, one of which is interrupted."""
    record = folder / "runs.jsonl"
    said = [folder / "first", folder / "second"]
    processes = [FORKS.Process(target=compare_digits, args=(record, path)) for path in said]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 120
    while not record.exists() or not (lines := record.read_text().splitlines()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    first = json.loads(lines[0])
    os.kill(first["pid"], signal.SIGINT)
    for process, path in zip(processes, said, strict=True):
        process.join()
        code, sentence = (130, INTERRUPTED + "\n") if process.pid == first["pid"] else (0, "")
        assert (process.exitcode, path.read_text()) == (code, sentence)
    runs = finished(record)
    assert set(runs.values()) == {1}
    assert runs.total() in (4, 6)  # the other one may have been past that batch
    graphs = {"digits": load("digits", None)}
    config = Config.from_dict(first["config"])
    engine.run([config], range(2), Record(record), graphs=graphs, device="cpu")
    assert finished(record) == Counter(
        {(name, seed): 1 for name in ("relu", "prelu", "grelu") for seed in range(2)}
    )


def test_a_neighbour_at_work() -> None:
    """What a live process has claimed is left to it, and the table says that it is not whole."""
    config = faults.cell("elu")
    neighbour = Record("runs.jsonl")
    assert neighbour.claim(config, [0, 1])
    result = invoke(*COMMAND)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith(
        "4 of these 6 runs are in runs.jsonl; the same command continues.\n"
    )
    neighbour.release(config, [0, 1])
    continues()
    assert "of these" not in invoke(*COMMAND).stdout


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
    assert Jumping.looks >= RUNS
    results = Record("runs.jsonl").read()
    assert {result.date[:3] for result in results} <= {"201", "202", "203", "204"}
    assert all(0 < result.seconds < 60 for result in results)


@pytest.mark.parametrize("years", [-1, 0, 1])
def test_claims_by_clocks_that_were_wrong(years: int) -> None:
    """Of a process on this host the clock says nothing; of another host's, too much is too much."""
    config = faults.cell("relu")
    path = Path("runs.jsonl")

    def claimed(**changes: Any) -> bool:
        path.unlink(missing_ok=True)
        assert Record(path).claim(config, [0])
        entry = json.loads(path.read_text())
        entry["date"] = (datetime.now(timezone.utc) + years * YEARS).isoformat()
        path.write_text(json.dumps(entry | changes) + "\n")
        return not Record(path).claim(config, [0])

    assert claimed()  # by this process, which is alive
    assert not claimed(pid=2**22 + 1)
    assert claimed(host="elsewhere") == (years == 0)
