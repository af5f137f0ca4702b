"""Disks and folders that fail: one sentence, nothing lost, and the same command continues."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import engine
from graphrelu.lab.record import journal, output
from graphrelu.lab.record.results import Record
from tests.lab import fake_engine, faults
from tests.lab.fake_engine import invoke
from tests.lab.faults import (
    COMMAND,
    RUNS,
    at_the_second_batch,
    continues,
    fails,
    finished,
    losses,
    undisturbed,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return faults.place(tmp_path, monkeypatch)


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


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_disk_that_is_full_when_it_is_asked_to_write(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) >= call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "fsync", fsync)
        fails("runs.jsonl: No space left on device.")
    continues()


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
        patch.setattr(output.os, "access", lambda path, mode: False)
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
        patch.setattr(engine.cells, "train", train)
        fails("There is too little memory for one run of blocks gcn grelu 4 x 4.")
        assert fake_engine.reproduce(["segments", "--quick", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert said == "There is too little memory for one run of digits gcn grelu.\n"
    continues()
