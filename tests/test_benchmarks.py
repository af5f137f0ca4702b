"""The benchmarks run, on small graphs and for a moment: their times are for a quiet machine."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from graphrelu.lab.reproduce.complexity import Sweep

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
    small = {
        "GRAPHS": ["csbm:nodes=300"],
        "SWEEPS": [Sweep("edges", 100, 400, 3, nodes=30, channels=4)],
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
