"""The benchmarks run, on small graphs and for a moment: their times are for a quiet machine."""

import csv
import importlib
import json
from pathlib import Path
from unittest import mock

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SMALL = {
    "activation": ["--nodes", "60", "--edges", "200", "--channels", "4", "--device", "cpu"],
    "cases": ["--only", "alone on a batch", "--device", "cpu"],
}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """Imports a benchmark that shall take no time."""
    monkeypatch.syspath_prepend(FOLDER)
    measure, activation = map(importlib.import_module, ("measure", "activation"))
    monkeypatch.setitem(measure.BUDGET, "cpu", 0.0)
    monkeypatch.setattr(activation, "ALONE", 0.0)
    return importlib.import_module


@pytest.mark.parametrize("name", SMALL)
def test_benchmark_writes_a_record(
    name: str, load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "record.json"
    monkeypatch.setattr("sys.argv", ["", *SMALL[name], "--out", str(out)])
    load(name).main()
    record = json.loads(out.read_text())
    assert record.get("rows") or record["milliseconds"]
    assert record["commit"]


def test_time_against_size(load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on record is not measured again."""
    complexity = load("complexity")
    sweeps = (
        complexity.Sweep("edges", 40, 4_000, 3, nodes=20, channels=1),
        complexity.Sweep("heads", 1, 2, 2, nodes=20, edges=40),
    )
    monkeypatch.setitem(complexity.SWEEPS, "cpu", sweeps)
    out = tmp_path / "complexity.jsonl"
    monkeypatch.setattr("sys.argv", ["", "--runs", "2", "--device", "cpu", "--out", str(out)])
    complexity.main()
    entries = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(e["axis"], e["value"], e["what"]) for e in entries[:4]] == [
        *(("edges", n, "grelu") for n in (40, 400, 4_000)),
        ("heads", 1, "grelu"),
    ]
    assert len(entries) == 3 + 2 * 3
    assert all((e["preparation"] is None) == (e["what"] == "gat") for e in entries)
    monkeypatch.setattr(complexity, "measure", None)
    complexity.main()
    assert all(out.with_suffix(ending).stat().st_size > 0 for ending in (".md", ".csv", ".png"))


def test_runtimes_are_measured_once(load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = load("runtime")
    for name, value in (("BACKBONES", ("gcn",)), ("ACTIVATIONS", ("relu", "grelu")), ("EPOCHS", 6)):
        monkeypatch.setattr(runtime, name, value)
    monkeypatch.setitem(runtime.BUDGET, "cpu", 0.0)
    out = tmp_path / "runtime.jsonl"
    arguments = ["--dataset", "digits", "--runs", "2", "--device", "cpu", "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["", *arguments])
    runtime.main()
    entries = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(e["mode"], e["seeds"], e["activation"]) for e in entries] == [
        ("one", 1, "relu"),
        ("one", 1, "grelu"),
        ("batched", 10, "relu"),
        ("batched", 10, "grelu"),
    ]
    for entry in entries:  # 6 epochs, of which 3 are timed
        assert (entry["epochs"], entry["epochs_timed"], len(entry["repeats"])) == (6, 3, 2)
        assert min(entry["repeats"]) <= entry["seconds"] <= max(entry["repeats"])
    out.write_text("".join(out.read_text().splitlines(keepends=True)[1:]))
    in_turns = mock.Mock(return_value=(3, {"relu": [2.0, 4.0, 3.0]}))
    monkeypatch.setattr(runtime, "in_turns", in_turns)
    runtime.main()
    assert [[*call.args[0]] for call in in_turns.call_args_list] == [["relu"]]
    rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
    assert float(rows[0]["seconds"]) == 6.0
    assert float(rows[1]["relative"]) == pytest.approx(float(rows[1]["seconds"]) / 6, rel=1e-4)


@pytest.mark.parametrize("name", ["complexity", "runtime"])
def test_page_of_timings_is_that_of_the_record(
    name: str, load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = load(name)
    out = tmp_path / benchmark.RECORD.name
    out.write_bytes(benchmark.RECORD.read_bytes())
    monkeypatch.setattr("sys.argv", ["", "--render", "--out", str(out)])
    benchmark.main()
    for ending in (".md", ".csv"):
        committed = benchmark.RECORD.with_suffix(ending).read_text()
        assert out.with_suffix(ending).read_text() == committed


def test_a_power_law_by_hand(load) -> None:
    # log10: (0, 0), (1, 1.5), (2, 2): slope 1, residuals 1/6 (-1, 2, -1), their squares' sum 1/6,
    # standard error sqrt(1/6 / 1 / 2), and t = 12.7062 for one degree of freedom.
    half = 12.7062 * (1 / 12) ** 0.5
    power_law = load("measure").power_law
    found = power_law([1, 10, 100], [1, 10**1.5, 100])
    assert found == pytest.approx((1, 1 - half, 1 + half), abs=1e-4)
    assert power_law([1, 2], [1, 4]) == pytest.approx((2, None, None))
