"""Runs that are trained on another machine, with torch, PyG and NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphrelu.lab import engine
from graphrelu.lab.engine import prepared
from graphrelu.lab.record.recipes import graph_cell, on_sets, recipe
from graphrelu.lab.record.results import Record
from tests.helpers import ROOT
from tests.lab.engine.test_train import blocks
from tests.lab.molecule_sets import ring_set

BARE = """
import sys
for name in ("scipy", "sklearn", "pandas", "typer", "rich", "matplotlib", "rdkit"):
    sys.modules[name] = None
from graphrelu.lab.engine import prepared
sys.argv[1:] = ["runs.pt", "record.jsonl", "--device", "cpu"]
prepared.main()
"""


def test_on_a_bare_machine(tmp_path: Path) -> None:
    options = {"hidden": 4, "epochs": 3}
    cells = [recipe("blocks", "gcn", name, **options) for name in ("relu", "grelu")]
    cells += [on_sets("rings", "gine", "grelu", walks=3, walk_width=2, **options, metric="mae")]
    graphs = {"blocks": blocks(), "rings": ring_set(values=True)}
    prepared.write(tmp_path / "runs.pt", dict.fromkeys(cells, range(2)), graphs)
    command = [sys.executable, "-W", "ignore", "-c", BARE]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("6 of these 6 runs are in record.jsonl.\n")
    found = Record(tmp_path / "record.jsonl").read()
    expected = engine.run(cells, range(2), None, graphs=graphs, device="cpu")
    assert [(r.config, r.seed, r.score) for r in found] == [
        (r.config, r.seed, r.score) for r in expected
    ]


def test_sets_of_graphs_and_what_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs, path = {"rings": ring_set(120)}, tmp_path / "runs.pt"
    config = graph_cell("rings", "gin", "relu", 4, 1, epochs=2, metric="rocauc")
    prepared.write(path, {config: range(10)}, graphs)
    record = tmp_path / "record.jsonl"
    assert prepared.train(path, record, seconds=1e-9).startswith("0 of these 10 runs")
    assert prepared.train(path, record, "cpu").startswith("10 of these 10 runs are in")
    content = record.read_bytes()
    prepared.train(path, record, "cpu")
    assert record.read_bytes() == content
    record.write_text("my thesis\n")
    monkeypatch.setattr(sys, "argv", ["prepared", str(path), str(record)])
    with pytest.raises(SystemExit, match="2"):
        prepared.main()
    said = capsys.readouterr().err
    assert said.endswith("record.jsonl is not a record of runs; choose another file.\n")
