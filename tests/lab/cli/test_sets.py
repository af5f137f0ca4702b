"""``graphrelu compare`` on sets of graphs, with real training and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from graphrelu.lab.cli import compare
from graphrelu.lab.data import load, load_graphs
from graphrelu.lab.record.results import Record
from tests.lab.fake_engine import invoke

FAST = ["--epochs", "2", "--hidden", "8", "--layers", "1", "--device", "cpu", "--engine", "local"]


@pytest.fixture
def my_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [f"{'C' * (i % 9 + 1)}{'O' * (i % 4)},{i % 9},{i % 2}" for i in range(60)]
    lines = ["smiles,length,even", *rows, "oops,1,1"]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_a_file_to_table_page_and_record(my_set: Path) -> None:
    files = ["--json", "a.json", "--out", "a.jsonl", "--report", "a.html", "--runs", "2"]
    options = ["--target", "length", "--metric", "rmse", "--activations", "relu,grelu"]
    result = invoke("compare", "mine.csv", *options, *FAST, *files)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = " ".join(result.stdout.split())
    assert shown.startswith("mine: 60 graphs, ")
    assert "Left out as unreadable: 1 of 61 molecules (line 62)." in shown
    assert "GCN: 1 layers of 8 hidden units, batch norm, skips, dropout 0" in shown
    assert "random split, test root mean squared error" in shown
    assert "Split: 80 / 10 / 10 % of the graphs, at random." in shown
    assert "A lower error is better" in shown
    content = json.loads(Path("a.json").read_text())
    assert (content["graphs"], content["task"], content["metric"]) == (60, "values", "rmse")
    assert all(row["mean"] > 0 for row in content["rows"])
    kept = Record("a.jsonl").read()
    assert [run.score < 0 for run in kept] == [True] * 4
    assert kept[0].config.dataset.startswith("length of mine@")
    assert '["graphs","60"]' in Path("a.html").read_text(encoding="utf-8")
    again = invoke("compare", "mine.csv", *options, *FAST, *files)
    assert Record("a.jsonl").read() == kept
    assert again.stdout == result.stdout
    shown = invoke("report", "a.jsonl", "-o", "b.html")
    assert (shown.exit_code, shown.stderr) == (0, "")


def test_settings(my_set: Path) -> None:
    network = {"pooling": "sum", "head-layers": 1, "rwse": 4, "norm": "none", "hidden": 32}
    given = {"backbone": "gine", "batch-size": 16, "split": "folds"} | network
    options = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    options += ["--virtual-node", "--no-residual"]
    rest = ["--target", "even", "--runs", "1", "--activations", "grelu"]
    result = invoke("compare", "mine.csv", *FAST, *options, *rest, "--json", "a.json")
    assert (result.exit_code, result.stderr) == (0, "")
    config = json.loads(Path("a.json").read_text())["configs"]["grelu"]
    assert config["backbone_options"] == {
        "layers": 1,
        "norm": None,
        "residual": False,
        "pooling": "sum",
        "head_layers": 1,
        "walks": 4,
        "virtual_node": True,
    }
    assert config["training_options"] == {"batch_size": 16, "warmup": 5}
    assert (config["backbone"], config["split"], config["metric"]) == ("gine", "folds", "rocauc")
    assert config["activation_options"]["dropout"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sets:", "--target", "y"], "sets: has no columns to choose targets from."),
        (["mine.csv", "--target", "width"], "mine.csv has no column 'width' to predict."),
        (["mine.csv", "--rwse", 60], "hidden must be above 28, the width of random walks."),
    ],
)
def test_bad_input_costs_one_sentence(my_set: Path, arguments: list[object], sentence: str) -> None:
    result = invoke("compare", *arguments, *FAST)
    assert result.exit_code == 2
    assert sentence in result.stderr


@pytest.mark.usefixtures("folder")
def test_looks_are_counted() -> None:
    command = ["compare", "sets:graphs=100,nodes=10", "--out", "a.jsonl", "--json", "a.json"]
    command += ["--engine", "local"]
    assert "sets:nodes=10,graphs=100: 100 graphs, 1,023 nodes" in invoke(*command).stdout
    found = json.loads(Path("a.json").read_text())
    assert [row["activation"] for row in found["rows"]] == ["relu", "gelu", "grelu"]
    assert found["rows"][2]["over_relu"]["look"] == 1
    invoke(*command, "--runs", 12)
    assert json.loads(Path("a.json").read_text())["rows"][2]["over_relu"]["look"] == 2


def test_processes_for_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    cpu, graphs = torch.device("cpu"), load_graphs("esol")
    assert [compare.pool_for(graphs, cpu, runs) for runs in (30, 1)] == ["8", "local"]
    assert compare.pool_for(load("digits"), cpu, 30) == "local"
