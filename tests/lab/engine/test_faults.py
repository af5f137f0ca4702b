"""Disks and signals that disturb a small comparison: one sentence, nothing lost, and the
same command continues."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import cli, data, engine
from graphrelu.lab.cli.compare import DEFAULTS
from graphrelu.lab.record import machine
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record
from tests.lab import fake_engine
from tests.lab.engine.test_train import blocks
from tests.lab.fake_engine import invoke

NAMES = ("relu", "elu", "grelu")
COMMAND = ["compare", "blocks", "--epochs", 3, "--hidden", 4, "--runs", 2, "--device", "cpu"]
COMMAND += ["--activations", ",".join(NAMES), "--out", "runs.jsonl"]
RUNS = 6


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; a small graph is the only one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "load", lambda name, root=None: blocks())
    return tmp_path


@cache
def undisturbed() -> dict[tuple[str, int], float]:
    """The losses of the runs where nothing happens."""
    configs = [cell(name) for name in NAMES]
    results = engine.run(configs, range(2), None, graphs={"blocks": blocks()}, device="cpu")
    return {(r.config.activation, r.seed): r.test_loss for r in results}


def cell(activation: str) -> Config:
    return modern("blocks", "gcn", activation, **DEFAULTS | {"epochs": 3, "hidden": 4})


def losses(path: Path) -> dict[tuple[str, int], float]:
    return {(r.config.activation, r.seed): r.test_loss for r in Record(path).read()}


def finished(path: Path) -> Counter[tuple[str, int]]:
    """How often each run is on record, in lines that can be read."""
    found: Counter[tuple[str, int]] = Counter()
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["event"] == "finished":
            found.update((entry["config"]["activation"], seed) for seed in entry["seed"])
    return found


def fails(sentence: str, *arguments: object) -> None:
    result = invoke(*COMMAND, *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(f"{sentence}\n")
    assert "Traceback" not in result.output


def continues() -> None:
    """The same command finishes: no run twice, and each as if nothing had happened."""
    before = finished(Path("runs.jsonl"))
    result = invoke(*COMMAND)
    assert (result.exit_code, result.stderr) == (0, "")
    after = finished(Path("runs.jsonl"))
    assert before <= after
    assert set(after.values()) == {1}
    assert losses(Path("runs.jsonl")) == undisturbed()
    assert list(Path().rglob("*.part")) == []


def at_the_second_batch(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    trained, train = [], engine.train_nodes

    def act(config: Config, *arguments: Any) -> Any:
        if config.patience:  # else it is the trial that tells how long a comparison may take
            trained.append(config)
            if len(trained) == 2:
                action()
        return train(config, *arguments)

    monkeypatch.setattr(engine, "train_nodes", act)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond this: the system's own way to be out of space."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_fills_up() -> None:
    record, chance = Path("runs.jsonl"), random.Random(0)
    for size in sorted(chance.sample(range(6_000), 7)):
        # The looks inside models lie beside the record; they may be what does not fit.
        with largest_file(size):
            fails(": File too large.")
        kept = finished(record)
        assert set(kept.values()) <= {1}
        assert all(losses(record)[run] == undisturbed()[run] for run in kept)
    assert 0 < len(finished(record)) < RUNS
    continues()
    reader = Record(record)
    reader.read()
    assert len(reader.corrupt_lines) > 0, "no line was torn, so that nothing was shown"


def test_tables_and_pages_on_a_full_disk() -> None:
    continues()
    with largest_file(2_000):
        fails("a.json: File too large.", "--json", "a.json")
        fails("a.html: File too large.", "--report", "a.html")
    assert not Path("a.json").exists()
    assert not Path("a.html").exists()


def test_a_folder_that_cannot_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the system's answers are simulated."""
    with monkeypatch.context() as patch:
        patch.setattr(machine.os, "access", lambda path, mode: False)
        fails(f"cannot be written to (permission denied in {folder}).", "--out", "new/runs.jsonl")
    assert not (folder / "new").exists()

    opened = Path.open

    def read_only(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "a" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, mode, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", read_only)
        fails("runs.jsonl.lock: Read-only file system.")
    continues()


def test_a_record_that_is_taken_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ["--out", "results/runs.jsonl"]
    with monkeypatch.context() as patch:
        at_the_second_batch(patch, lambda: shutil.rmtree(folder / "results"))
        fails("results/runs.jsonl was replaced or cut short while it was in use.", *out)
    assert invoke(*COMMAND, *out).exit_code == 0
    assert losses(folder / "results" / "runs.jsonl") == undisturbed()


def test_too_little_memory_for_one_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB.")

    with monkeypatch.context() as patch:
        patch.delenv("GRAPHRELU_DATA", raising=False)
        patch.setattr(engine, "train_nodes", train)
        fails("There is too little memory for one run of blocks gcn grelu 4 x 4.")
        assert fake_engine.reproduce(["segments", "--quick", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert said == "There is too little memory for one run of digits gcn grelu.\n"
    continues()


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
