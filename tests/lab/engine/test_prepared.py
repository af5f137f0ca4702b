"""Runs that are trained on another machine, with torch, PyG and NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from graphrelu.lab import engine
from graphrelu.lab.engine import prepared
from graphrelu.lab.record.recipes import graph_cell, recipe
from graphrelu.lab.record.results import Record
from tests.helpers import ROOT
from tests.lab.engine.test_train import blocks
from tests.lab.graph_sets import rings_and_paths

BARE = """
import sys
for name in ("scipy", "sklearn", "pandas", "typer", "rich", "matplotlib"):
    sys.modules[name] = None
from graphrelu.lab.engine import prepared
sys.argv[1:] = ["runs.pt", "record.jsonl", "--device", "cpu"]
prepared.main()
"""


def test_on_a_bare_machine(tmp_path: Path) -> None:
    options = {"hidden": 4, "epochs": 3}
    cells = [recipe("blocks", "other", "gcn", name, **options) for name in ("relu", "grelu")]
    graphs = {"blocks": blocks()}
    prepared.write(tmp_path / "runs.pt", dict.fromkeys(cells, range(2)), graphs)
    command = [sys.executable, "-W", "ignore", "-c", BARE]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("4 of these 4 runs are in record.jsonl.\n")
    found = Record(tmp_path / "record.jsonl").read()
    expected = engine.run(cells, range(2), None, graphs=graphs, device="cpu")
    assert [(r.config, r.seed, r.score) for r in found] == [
        (r.config, r.seed, r.score) for r in expected
    ]


def test_sets_of_graphs_and_what_is_there_already(tmp_path: Path) -> None:
    graphs, path = {"rings": rings_and_paths(60)}, tmp_path / "runs.pt"
    config = graph_cell("rings", "gin", "relu", 4, 1, epochs=2)
    prepared.write(path, {config: range(10)}, graphs)
    record = tmp_path / "record.jsonl"
    assert prepared.train(path, record, seconds=1e-9).startswith("0 of these 10 runs")
    assert prepared.train(path, record, "cpu").startswith("10 of these 10 runs are in")
    content = record.read_bytes()
    prepared.train(path, record, "cpu")
    assert record.read_bytes() == content
