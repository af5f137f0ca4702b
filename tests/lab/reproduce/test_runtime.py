"""Runtimes: measured once, in turns, and shown from the record alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab.reproduce import runtime
from graphrelu.lab.reproduce.table import Request
from tests.lab.fake_engine import invoke


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two activations of a GCN on the embedded graph, a few epochs."""
    monkeypatch.delenv("GRAPHRELU_DATA", raising=False)
    monkeypatch.setattr(runtime, "BACKBONES", ("gcn",))
    monkeypatch.setattr(runtime, "ACTIVATIONS", ("relu", "grelu"))
    monkeypatch.setattr(runtime, "MODES", {"one": 1, "batched": 2})
    monkeypatch.setattr(runtime, "EPOCHS", 6)
    return tmp_path / "runtime.jsonl"


def fails(*arguments: object) -> None:
    raise AssertionError("nothing is to be measured")


def test_the_command(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["runtime", "--quick", "--runs", "2", "--device", "cpu", "--out", str(small)]
    shown = invoke("reproduce", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert f"4 of these 4 timings are in {small}." in shown.stdout
    entries = [json.loads(line) for line in small.read_text().splitlines()]
    assert [(e["mode"], e["seeds"], e["activation"]) for e in entries] == [
        (mode, seeds, name)
        for mode, seeds in (("one", 1), ("batched", 2))
        for name in ("relu", "grelu")
    ]
    for entry in entries:
        assert entry["event"] == "timed"
        assert (entry["dataset"], entry["backbone"], entry["epochs"]) == ("digits", "gcn", 6)
        assert len(entry["repeats"]) == 2
        assert min(entry["repeats"]) <= entry["seconds"] <= max(entry["repeats"])
        assert 3 <= entry["epochs_timed"] <= 6
        assert entry.keys() >= {"device", "versions", "commit", "date"}

    before = small.read_bytes()
    monkeypatch.setattr(runtime, "in_turns", fails)
    shown = invoke("reproduce", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert small.read_bytes() == before  # a measurement on record is not repeated
    assert "one at a time" in shown.stdout
    assert "Written: " in shown.stdout
    for ending in (".md", ".csv", ".png", ".svg"):
        assert small.with_suffix(ending).stat().st_size > 0


def test_only_what_is_missing_is_measured(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def in_turns(
        trainings: dict[str, runtime.Epochs], repeats: int, *_: object
    ) -> tuple[int, dict[str, list[float]]]:
        asked.append(tuple(trainings))
        return 3, {name: [2.0, 4.0, 3.0] for name in trainings}

    monkeypatch.setattr(runtime, "in_turns", in_turns)
    request = Request(3, small, quick=True, device="cpu")
    runtime.collect(request)
    lines = small.read_text().splitlines(keepends=True)
    # 6 epochs of which 3 were timed; of both seeds of a batch, one.
    assert [json.loads(line)["seconds"] for line in lines] == [6.0, 6.0, 3.0, 3.0]
    small.write_text("".join(lines[1:]))
    runtime.collect(request)
    assert asked == [("relu", "grelu"), ("relu", "grelu"), ("relu",)]
    late = Request(3, small.with_name("late.jsonl"), quick=True, device="cpu", seconds=1e-9)
    assert runtime.collect(late).startswith("0 of these 4 timings are in ")


def test_they_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    trainings = {
        name: lambda epochs, name=name: calls.append((name, epochs)) for name in ("relu", "grelu")
    }
    monkeypatch.setattr(runtime, "seconds", lambda run, device: run() or 1.0)
    epochs, times = runtime.in_turns(trainings, 2, 10.0, torch.device("cpu"))
    assert epochs == 20  # half a second each, in ten seconds
    assert calls[4:] == [("relu", 20), ("grelu", 20)] * 2
    assert times == {"relu": [1.0, 1.0], "grelu": [1.0, 1.0]}


def entry(activation: str, seconds: float, **changes: Any) -> dict[str, Any]:
    timing = {"dataset": "citeseer", "backbone": "gcn", "activation": activation, "mode": "one"}
    timing |= {"device": "no device", "seeds": 1, "seconds": seconds, "epochs": 200}
    timing |= {"repeats": [seconds, 2 * seconds], "epochs_timed": 200}
    return timing | {"versions": {"torch": "0"}, "commit": None, "date": "2026-11-01"} | changes


def test_the_page(tmp_path: Path) -> None:
    entries = [entry("grelu", 3.0), entry("maxout", 5.0), entry("relu", 2.0)]
    entries += [entry("relu", 8.0, backbone="cheb"), entry("grelu", 1.0, device="other")]
    rows = runtime.rows_of(entries)
    assert [(row["backbone"], row["activation"], row["relative"]) for row in rows] == [
        ("cheb", "relu", 1.0),
        ("gcn", "relu", 1.0),
        ("gcn", "maxout", 2.5),
        ("gcn", "grelu", 1.5),
        ("gcn", "grelu", None),
    ]
    runtime.record_of(tmp_path / "x.jsonl").append(entries)
    page = runtime.render(tmp_path / "x.jsonl")[0].read_text()
    assert "## CiteSeer, no device, one at a time" in page
    assert "| GCN | 2 (1.00) |  |  |  | 5 (2.50) | 3 (1.50) |" in page
    assert "GReLU takes 1.50 times as long as ReLU in the median" in page
    assert "less time than Maxout with 1 of 1 backbones" in page
