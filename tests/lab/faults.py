"""A small comparison to be disturbed: what it says then, and that it continues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab import data, engine
from graphrelu.lab.cli.compare import DEFAULTS
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import modern
from graphrelu.lab.record.results import Record
from tests.lab.engine.test_train import blocks
from tests.lab.fake_engine import invoke

NAMES = ("relu", "elu", "grelu")
COMMAND = ["compare", "blocks", "--epochs", 3, "--hidden", 4, "--runs", 2, "--device", "cpu"]
COMMAND += ["--activations", ",".join(NAMES), "--out", "runs.jsonl"]
RUNS = 6


def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder the current one, and a small graph the only one."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(data, "load", lambda name, root=None: blocks())
    return folder


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


def fails(sentence: str, *arguments: object, code: int = 2) -> None:
    result = invoke(*COMMAND, *arguments)
    assert result.exit_code == code, result.output
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
    trained, train = [], engine.cells.train

    def act(config: Config, *arguments: Any) -> Any:
        trained.append(config)
        if len(trained) == 2:
            action()
        return train(config, *arguments)

    monkeypatch.setattr(engine.cells, "train", act)
