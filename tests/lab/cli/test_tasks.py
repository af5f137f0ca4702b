"""With real training: each task from a file to its table, page and summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphrelu.lab.record.results import Record
from tests.lab.fake_engine import invoke

OPTIONS = "--activations relu,grelu --runs 2 --epochs 4 --hidden 4 --layers 2 --device cpu"
NODE = torch.arange(60)
LABELS = torch.stack([NODE % 2, NODE % 3 // 2, NODE % 5 // 4], dim=1)
LABELS[:3] = -1
AREA = "area under the ROC curve in percent"
SEVERAL = "3 labels, any number of each node (multi-label classification), 3 nodes left out"
TASKS = {  # labels, and what is said of them, of the score and of its name
    "two classes": (NODE % 2, "2 classes", AREA, "rocauc"),
    "several labels": (LABELS, SEVERAL, AREA, "rocauc"),
    "values": (-NODE / 4, "values from -14.75 to 0 (regression)", "mean absolute error", "mae"),
}


@pytest.mark.parametrize("task", TASKS)
def test_from_a_file_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.chdir(tmp_path)
    y, first_line, score, metric = TASKS[task]
    edges = torch.stack([NODE, (NODE + 1) % 60])
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    torch.save(Data(x=torch.randn(60, 3), edge_index=edge_index, y=y), "mine.pt")
    files = "--json a.json --out a.jsonl --report a.html"
    result = invoke("compare", "mine.pt", *OPTIONS.split(), *files.split())
    assert (result.exit_code, result.stderr) == (0, "")
    shown = " ".join(result.stdout.split())
    assert shown.startswith(f"mine.pt: 60 nodes, 120 edges, 3 features, {first_line}")
    assert f"random split, test {score}" in shown
    assert ("A lower error is better" in shown) == (metric == "mae")
    content = json.loads(Path("a.json").read_text())
    assert content["metric"] == metric
    kept = Record("a.jsonl").read()  # an error is negative on record, and positive in the table
    factor = -1 if metric == "mae" else 100
    mean = sum(run.score for run in kept if run.config.activation == "relu") / 2
    assert content["rows"][0]["mean"] == pytest.approx(factor * mean)
    assert content["rows"][0]["mean"] >= 0
    name = "mine.pt" if metric != "mae" else "(lower is better)"
    assert name in Path("a.html").read_text(encoding="utf-8")
