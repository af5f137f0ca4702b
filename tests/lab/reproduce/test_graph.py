"""Graph classification: what is chosen from the grid, and the table beside the paper's."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import graph_cell
from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import graph
from graphrelu.lab.reproduce.graph import TABLE
from graphrelu.lab.reproduce.grid import by_name, choose
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


def test_the_same_points_for_every_activation() -> None:
    own = {
        ("relu", 16): runs(cell("relu", 16), 0.7),
        ("relu", 32): runs(cell("relu", 32), 0.9),
        ("relu", 64): runs(cell("relu", 64), 0.99, n=9),  # one fold is missing
        ("grelu", 16): runs(cell("grelu", 16), 0.8, val_loss=0.4),
        ("grelu", 32): runs(cell("grelu", 32), 0.8, val_loss=0.3),
        ("grelu", 64): runs(cell("grelu", 64), 0.95),
    }
    found = by_name({name: {run.seed: run for run in several} for name, several in own.items()})
    points, chosen = choose(found, range(10))
    assert points == (16, 32)
    assert chosen == {"relu": 32, "grelu": 32}  # as accurate, with a lower loss
    assert choose({"relu": {16: found["relu"][16]}, "grelu": {32: found["grelu"][32]}}) is None


def test_rows() -> None:
    """More fold assignments choose nothing."""
    results = [
        *runs(cell("grelu", 32), 0.7, 0.85, n=40),
        *runs(cell("relu", 64), 0.7, 0.82, n=40),
        *runs(cell("relu", 32), 0.6, 0.9),
        *(replace(r, seed=10 + r.seed) for r in runs(cell("relu", 32), 1.0, 0.9)),
        *runs(cell("grelu", 64), 0.6, 0.9),
    ]
    relu, grelu = TABLE.rows(results)
    assert (relu.name, relu["hidden"], relu["layers"], relu["tried"], relu.n) == (
        *("relu", 64, 3),
        *(2, 40),
    )
    assert relu.mean == pytest.approx(86.5)
    assert relu["paper_mean"] == 89.0
    assert relu["difference"] == pytest.approx(relu.mean - 89.0)
    assert grelu["over_relu"].difference == pytest.approx(3)
    assert grelu["over_relu"].n == 40
    assert grelu["over_relu"].outcome == "better"
    with pytest.raises(ValueError, match="The runs of mutag with gin have different settings"):
        TABLE.rows([*results, *runs(cell("grelu", 32, epochs=50), 0.7)])


def test_the_claim() -> None:
    """The wider network is chosen on validation folds, though the other has higher test scores."""
    results = []
    for name, score in (("relu", 0.70), ("grelu", 0.72)):
        results += runs(cell(name, 64), 0.6, score + 0.1, n=40)
        results += runs(cell(name, 32), 0.7, score, n=40)
    (found,) = graph.observations(TABLE.rows(results))
    assert (found.paper, found.outcome) == ("+0.5 to +1.6 points", "holds")
    assert found.ours == (
        "better in 1 of 1 comparisons, worse in 0, no difference in 0; leads from +2.0 to +2.0 "
        "points, over 40 seeds"
    )
    assert graph.observations([])[0].outcome == "not measured yet"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Rings and paths in place of MUTAG, and few points."""
    graphs = rings_and_paths(60, name="mutag")
    monkeypatch.setattr("graphrelu.lab.data.load_graphs", lambda name, root, split: graphs)
    monkeypatch.setattr(graph, "POINTS", ((4, 1), (4, 2)))
    monkeypatch.setattr(Request, "changes", {"epochs": 2})
    return {"dataset": ["mutag"], "backbone": ["gin"], "activation": ["relu", "grelu"]}


def test_from_the_grid_to_the_table(small: dict[str, list[str]], tmp_path: Path) -> None:
    """In pieces: nothing in no time, the rest in a second call, nothing more in a third."""
    record = tmp_path / "graph.jsonl"
    request = Request(20, record, only=small, device="cpu")
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
    assert {row["tried"] for row in rows} == {"2"}


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    result = fake_engine.invoke("reproduce", "graph", "--quick", "--activations", "relu,grelu")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "20 of these 20 runs are in results/quick/graph.jsonl." in result.stdout
    assert "Written: results/quick/graph.md, results/quick/graph.csv." in result.stdout
