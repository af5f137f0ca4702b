"""Seeds are added by the real engine, on a small graph, and the price is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphrelu.lab.record.results import Record
from tests.lab.fake_engine import invoke


def test_a_small_graph(
    tmp_path: Path, make_npz: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_npz()
    monkeypatch.chdir(tmp_path)
    command = f"compare {graph} --activations relu,grelu --layers 1 --hidden 4 --epochs 2"
    command += " --runs 20 --until-decided --device cpu --out runs.jsonl --json a.json"

    def compared(margin: float) -> dict[str, object]:
        done = invoke(*command.split(), "--margin", margin)
        assert done.exit_code == 0, done.stderr
        assert "activation test loss ECE s per epoch parameters" in " ".join(done.stdout.split())
        found: dict[str, object] = json.loads(Path("a.json").read_text())
        return found

    # A margin that no score can leave is decided at the first look, one of nothing never.
    first = compared(1_000)
    assert "no difference that matters here: keep ReLU" in str(first["verdict"])
    runs = Record("runs.jsonl").read()
    assert sorted(run.seed for run in runs) == sorted([*range(10)] * 2)
    relu, grelu = (next(r for r in runs if r.config.activation == n) for n in ("relu", "grelu"))
    assert relu.parameters is not None
    # GReLU adds 9C parameters; see docs/how_it_works.md.
    assert grelu.parameters == relu.parameters + 9 * 4
    assert 0 <= relu.calibration_error <= 1

    again = compared(1_000)
    assert (again["verdict"], again["rows"]) == (first["verdict"], first["rows"])
    assert Record("runs.jsonl").read() == runs
    assert "undecided" in str(compared(0)["verdict"])
    assert Record("runs.jsonl").read()[:10] == runs[:10]
    assert len(Record("runs.jsonl").read()) == 2 * 20
