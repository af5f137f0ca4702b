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
def load(monkeypatch: pytest.MonkeyPatch):
    """Imports a benchmark that shall take no time."""
    monkeypatch.syspath_prepend(FOLDER)
    measure, complexity = map(importlib.import_module, ("measure", "complexity"))
    monkeypatch.setitem(measure.BUDGET, "cpu", 0.0)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # for the tests after these
    small = {
        "ALONE": 0.0,
        "SECONDS": 0.0,
        "GRAPHS": ["csbm:nodes=300"],
        "SWEEPS": [complexity.Sweep("edges", 100, 400, 3, nodes=30, channels=4)],
    }

    def imported(name: str) -> ModuleType:
        module = importlib.import_module(name)
        for constant, value in small.items():
            if name in SMALL and hasattr(module, constant):
                monkeypatch.setattr(module, constant, value)
        return module

    return imported


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
    """What is on record is not measured again, and an exponent that is known comes out."""
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
    linear = [entries[0] | {"value": 10**n, "seconds": 10.0**n / 1e6} for n in (6, 4, 5)]
    row = complexity.row_of(complexity.sweeps_of(linear)[0])
    assert (row["first"], row["exponent"], row["ratio"]) == (10**4, pytest.approx(1), 100)


def test_page_of_time_against_size_is_that_of_the_record(
    load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complexity = load("complexity")
    out = tmp_path / "complexity.jsonl"
    out.write_bytes(complexity.RECORD.read_bytes())
    monkeypatch.setattr("sys.argv", ["", "--render", "--out", str(out)])
    complexity.main()
    for ending in (".md", ".csv"):
        committed = complexity.RECORD.with_suffix(ending).read_text()
        assert out.with_suffix(ending).read_text() == committed


def test_a_power_law_by_hand(load) -> None:
    # log10: (0, 0), (1, 1.5), (2, 2): slope 1, residuals 1/6 (-1, 2, -1), their squares' sum 1/6,
    # standard error sqrt(1/6 / 1 / 2), and t = 12.7062 for one degree of freedom.
    half = 12.7062 * (1 / 12) ** 0.5
    power_law = load("measure").power_law
    found = power_law([1, 10, 100], [1, 10**1.5, 100])
    assert found == pytest.approx((1, 1 - half, 1 + half), abs=1e-4)
    assert power_law([1, 2], [1, 4]) == pytest.approx((2, None, None))
