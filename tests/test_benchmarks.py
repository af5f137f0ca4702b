"""The benchmarks run, on small graphs and for a moment: their times are for a quiet machine."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SMALL = {
    "activation": ["--nodes", "60", "--edges", "200", "--channels", "4", "--device", "cpu"],
    "cases": ["--only", "batch of", "--device", "cpu"],
    "diffusion": [],
    "hetero": [],
}


@pytest.fixture
def benchmark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    measure = importlib.import_module("measure")
    for budget in (measure.BUDGET, measure.IN_TURN):
        monkeypatch.setitem(budget, "cpu", 0.0)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # for the tests after these
    module = importlib.import_module(request.param)
    sweep = importlib.import_module("complexity").Sweep
    small = {
        "GRAPHS": ["csbm:nodes=300"],
        "SWEEPS": [sweep("edges", 100, 400, 3, nodes=30, channels=4)],
    }
    for name, value in small.items():
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)
    return module


@pytest.mark.parametrize("benchmark", SMALL, indirect=True)
def test_benchmark_writes_a_record(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "record.json"
    monkeypatch.setattr("sys.argv", ["", *SMALL[benchmark.__name__], "--out", str(out)])
    benchmark.main()
    record = json.loads(out.read_text())
    assert record.get("rows") or record["milliseconds"]
    assert record["commit"]


def test_time_against_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on record is not measured again, and an exponent that is known comes out."""
    monkeypatch.syspath_prepend(FOLDER)
    complexity = importlib.import_module("complexity")
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
    linear = [entries[0] | {"value": 10**n, "seconds": 10.0**n / 1e6} for n in (6, 4, 5)]
    row = complexity.row_of(complexity.sweeps_of(linear)[0])
    assert (row["first"], row["exponent"], row["ratio"]) == (10**4, pytest.approx(1), 100)


def test_page_of_time_against_size_is_that_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    complexity = importlib.import_module("complexity")
    out = tmp_path / "complexity.jsonl"
    out.write_bytes(complexity.RECORD.read_bytes())
    monkeypatch.setattr("sys.argv", ["", "--render", "--out", str(out)])
    complexity.main()
    for ending in (".md", ".csv"):
        committed = complexity.RECORD.with_suffix(ending).read_text()
        assert out.with_suffix(ending).read_text() == committed


def test_a_power_law_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    power_law = importlib.import_module("measure").power_law
    # log10: (0, 0), (1, 1.5), (2, 2): slope 1, residuals 1/6 (-1, 2, -1), their squares' sum 1/6,
    # standard error sqrt(1/6 / 1 / 2), and t = 12.7062 for one degree of freedom.
    half = 12.7062 * (1 / 12) ** 0.5
    found = power_law([1, 10, 100], [1, 10**1.5, 100])
    assert found == pytest.approx((1, 1 - half, 1 + half), abs=1e-4)
    assert power_law([1, 2], [1, 4]) == pytest.approx((2, None, None))
