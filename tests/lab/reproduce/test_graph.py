"""Graph classification: what is chosen from the grid, and the table beside the paper's."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import graph_cell
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import graph
from graphrelu.lab.reproduce.graph import TABLE
from graphrelu.lab.reproduce.table import Request
from tests.lab import fake_engine
from tests.lab.graph_sets import rings_and_paths


def runs(
    config: Config, val_score: float, score: float = 0.8, val_loss: float = 0.5, n: int = 10
) -> list[Result]:
    return [
        replace(
            fake_engine.make_result(config, seed, score + seed % 10 / 100),
            val_score=val_score,
            val_loss=val_loss,
        )
        for seed in range(n)
    ]


def cell(activation: str, hidden: int, **overrides: object) -> Config:
    return graph_cell("mutag", "gin", activation, hidden, 3, **overrides)


def test_rows() -> None:
    """Validation folds of the first assignment choose; a lower loss decides between equals."""
    results = [
        *runs(cell("grelu", 32), 0.7, 0.85, val_loss=0.4, n=40),
        *runs(cell("relu", 64), 0.7, 0.82, n=40),
        *runs(cell("relu", 32), 0.6, 0.9),
        *(replace(r, seed=10 + r.seed) for r in runs(cell("relu", 32), 1.0, 0.9)),
        *runs(cell("grelu", 64), 0.7, 0.9),
        *runs(cell("elu", 32), 0.9),
        *runs(cell("elu", 64), 0.9, n=9),  # one fold is missing: nothing is chosen yet
    ]
    relu, grelu = TABLE.rows(results)
    assert (relu.name, relu["hidden"], relu["layers"], relu.n) == ("relu", 64, 3, 40)
    assert relu.mean == pytest.approx(86.5)
    assert relu["paper_mean"] == 89.0
    assert relu["difference"] == pytest.approx(relu.mean - 89.0)
    assert (grelu.name, grelu["hidden"]) == ("grelu", 32)
    assert grelu["over_relu"].difference == pytest.approx(3)
    assert grelu["over_relu"].n == 40
    assert grelu["over_relu"].outcome == "better"
    with pytest.raises(ValueError, match="The runs of mutag with gin have different settings"):
        TABLE.rows([*results, *runs(cell("grelu", 32, epochs=50), 0.7)])


def test_from_the_grid_to_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In pieces, on rings and paths in place of MUTAG: nothing in no time, the rest in a second
    call, nothing more in a third."""
    graphs = rings_and_paths(60, name="mutag")
    monkeypatch.setattr("graphrelu.lab.data.load_graphs", lambda name, root, split: graphs)
    monkeypatch.setattr(graph, "POINTS", ((4, 1), (4, 2)))
    monkeypatch.setattr(Request, "changes", {"epochs": 2})
    record = tmp_path / "graph.jsonl"
    only = {"dataset": ["mutag"], "backbone": ["gin"], "activation": ["relu", "grelu"]}
    request = Request(20, record, only=only, device="cpu")
    assert TABLE.collect(replace(request, seconds=1e-9)) == (
        f"0 of these 40 runs are in {record}; the same command continues."
    )
    assert TABLE.collect(request) == f"60 of these 60 runs are in {record}."
    lines = record.read_text()
    assert TABLE.collect(request) == f"60 of these 60 runs are in {record}."
    assert record.read_text() == lines
    page, table = TABLE.render(record)
    text = page.read_text()
    assert "| GIN | ReLU | 4 x " in text
    assert "/" not in text.split("Made from")[1].split(":")[0]  # no path of this machine
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 2
    assert {row["n"] for row in rows} == {"20"}
    assert rows[0]["paper_mean"] != ""


def test_no_page_before_the_grid_is_finished(tmp_path: Path) -> None:
    record = tmp_path / "graph.jsonl"
    Record(record).append(runs(cell("relu", 32), 0.7))
    with pytest.raises(ValueError, match="no activation yet that finished its grid"):
        TABLE.render(record)


@pytest.mark.usefixtures("folder")
def test_the_command() -> None:
    result = fake_engine.invoke("reproduce", "graph", "--quick", "--activations", "relu,grelu")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "20 of these 20 runs are in results/quick/graph.jsonl." in result.stdout
    assert "Written: results/quick/graph.md, results/quick/graph.csv." in result.stdout
