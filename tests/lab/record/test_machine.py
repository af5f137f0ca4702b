"""What a record says about the machine and the code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

import graphrelu
from graphrelu.lab.record.machine import commit, device_name


def test_device_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = device_name(torch.device("cpu"))
    assert name.endswith(f", {torch.get_num_threads()} threads")
    assert not name.startswith(",")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert device_name(torch.device("cuda", 1)) == "GPU 1"
    assert device_name(torch.device("mps")) == "mps"


def test_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    def find(package: str = "graphrelu") -> str | None:
        path = tmp_path / package / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        monkeypatch.setattr(graphrelu, "__file__", str(path))
        return commit.__wrapped__()

    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert find() is None
    git("init")
    assert find() is None
    git("add", ".")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD")
    assert find() == head
    # A growing record does not make the code another one; a new module does.
    (tmp_path / "results.jsonl").write_text("{}")
    assert find() == head
    (tmp_path / "graphrelu" / "new.py").touch()
    assert find() == head + "+dirty"
    assert find("env/graphrelu") is None  # installed into a folder of someone else's repository
    monkeypatch.setenv("PATH", "")
    assert find() is None
