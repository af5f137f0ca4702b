"""Graph classification: what is chosen from the grid, and the table beside the paper's."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from graphrelu.lab import engine
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, graph_cell
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.experiment import Request
from graphrelu.lab.reproduce.graph import (
    GraphGrid,
    choices,
    collect_graphs,
    graph_rows,
    grid_sentence,
    point,
    render_graphs,
)
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


def cell(activation: str, hidden: int, layers: int = 2, **overrides: object) -> Config:
    return graph_cell("mutag", "gin", activation, hidden, layers, **overrides)


def test_the_same_points_for_every_activation() -> None:
    results = [
        *runs(cell("relu", 16), 0.7),
        *runs(cell("relu", 32), 0.9),
        *runs(cell("relu", 64), 0.99, n=9),  # one fold is missing
        *runs(cell("grelu", 16), 0.8, val_loss=0.4),
        *runs(cell("grelu", 32), 0.8, val_loss=0.3),
        *runs(cell("grelu", 64), 0.95),
        *runs(cell("relu", 16, split="gin_folds"), 0.9),
    ]
    found = choices(results)
    paper, gin = found["folds", "mutag", "gin"], found["gin_folds", "mutag", "gin"]
    assert paper.points == ((16, 2, 0.5), (32, 2, 0.5))
    assert {name: point(config) for name, config in paper.configs.items()} == {
        "relu": (32, 2, 0.5),
        "grelu": (32, 2, 0.5),  # as accurate, with a lower loss
    }
    assert gin.points == ((16, 2, 0.5),)
    assert choices([*runs(cell("relu", 16), 0.7), *runs(cell("grelu", 32), 0.7)]) == {}


def test_what_is_not_chosen_from() -> None:
    """More fold assignments choose nothing; other settings are refused."""
    first = [*runs(cell("relu", 16), 0.7), *runs(cell("relu", 32), 0.6)]
    later = [replace(r, seed=10 + r.seed, val_score=1.0) for r in runs(cell("relu", 32), 1.0)]
    assert choices([*first, *later])["folds", "mutag", "gin"].configs["relu"].hidden == 16
    with pytest.raises(ValueError, match="The runs of mutag with gin have different settings"):
        choices([*first, *runs(cell("grelu", 16, epochs=50), 0.7)])


def test_rows() -> None:
    results = [
        *runs(cell("grelu", 16), 0.7, 0.85, n=40),
        *runs(cell("relu", 32), 0.7, 0.82, n=40),
        *runs(cell("relu", 16), 0.6, 0.9),
        *runs(cell("grelu", 32), 0.6, 0.9),
    ]
    relu, grelu = graph_rows(results)
    assert (relu.activation, relu.hidden, relu.layers, relu.tried, relu.n) == ("relu", 32, 2, 2, 40)
    assert relu.mean == pytest.approx(86.5)
    assert relu.paper_mean == 89.0
    assert relu.difference == pytest.approx(relu.mean - 89.0)
    assert grelu.over_relu.difference == pytest.approx(3)
    assert grelu.over_relu.n == 40
    assert grelu.over_relu.outcome == "better"


def test_the_grid_is_named() -> None:
    def sentence(points: list[tuple[int, int]]) -> str:
        found = choices([r for h, n in points for r in runs(cell("relu", h, n), 0.7)])
        return grid_sentence("folds", found.values())

    full = [(h, n) for h in (16, 32, 64, 128) for n in (2, 3, 4, 5)]
    assert sentence(full) == (
        "Chosen from the full grid: hidden {16, 32, 64, 128} x layers {2, 3, 4, 5}, "
        "16 configurations, the same for every activation."
    )
    assert sentence([(16, 2), (16, 3), (32, 2), (32, 3)]) == (
        "Chosen from a subset of the grid: hidden {16, 32} x layers {2, 3}, 4 of the 16 "
        "configurations, the same for every activation."
    )
    assert "subset of the grid: 16 x 2, 16 x 3, 32 x 2, 3 of" in sentence(
        [(16, 2), (16, 3), (32, 2)]
    )
    other = [
        replace(r, config=replace(r.config, dataset="proteins"))
        for r in runs(cell("relu", 64), 0.7)
    ]
    found = choices([*runs(cell("relu", 16), 0.7), *runs(cell("relu", 32), 0.7), *other])
    assert "1 to 2 points of it, by cell" in grid_sentence("folds", found.values())


@pytest.mark.parametrize(
    ("grid", "points", "epochs"),
    [
        (GraphGrid(), 2 * 16, 100),
        (GraphGrid(protocols=["gin_paper"]), 4, 350),
    ],
)
def test_every_activation_is_given_the_same_grid(grid: GraphGrid, points: int, epochs: int) -> None:
    cells = grid.cells()
    assert len(set(cells)) == len(cells) == 2 * 3 * 6 * points
    same = {"activation": "any", "activation_options": ()}
    counts = Counter(replace(config, **same) for config in cells)
    assert set(counts.values()) == {len(ACTIVATIONS)}
    assert {(c.lr, c.epochs, c.weight_decay) for c in cells} == {(0.01, epochs, 0.0)}
    if points == 4:
        assert {point(config) for config in cells} == set(product((16, 32), (4,), (0.0, 0.5)))


def test_whether_the_printed_numbers_come_out(tmp_path: Path) -> None:
    """MUTAG with GIN has 89.0 ± 6.0 with ReLU and 89.5 ± 7.4 with GReLU; ours are 88.5 and 80.5."""
    record = tmp_path / "graph.jsonl"
    for name, score in (("relu", 0.84), ("grelu", 0.76)):
        for dropout in (0.0, 0.5):
            config = cell(name, 32, 4, split="gin_paper", dropout=dropout)
            Record(record).append(runs(config, 0.9 - dropout, score))
    text = render_graphs(record)[0].read_text()
    assert "## The GIN paper's protocol, networks and budget\n" in text
    assert "hidden {32} x layers {4} x dropout {0, 0.5}, 2 of the 4 configurations" in text
    assert "Epochs here: 350." in text
    assert config.title == "mutag gin grelu 32 x 4 gin_paper, dropout 0.5"
    assert "| GIN | ReLU | 32 x 4, dropout 0 | **88.5 ± " in text
    within = "our mean lies within two standard errors of the printed one in"
    assert f"ReLU, as in the GIN paper: {within} 1 of 1 cells" in text
    assert f"The other activations: {within} 0 of 1 cells; the differences go from -9.0 to" in text


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> GraphGrid:
    """Rings and paths in the place of MUTAG."""
    graphs = rings_and_paths(60, name="mutag")
    monkeypatch.setattr("graphrelu.lab.data.load_graphs", lambda name, root: graphs)
    return GraphGrid(
        ["mutag"], ["gin"], ["relu", "grelu"], (4,), (1, 2), ["folds", "gin_folds"], 1, 2
    )


def test_from_the_grid_to_the_table(small: GraphGrid, tmp_path: Path) -> None:
    """In pieces: nothing in no time, the rest in a second call, nothing more in a third."""
    record = tmp_path / "graph.jsonl"
    request = Request(20, record, device="cpu")
    assert collect_graphs(small, replace(request, seconds=1e-9)) == (
        f"0 of these 120 runs are in {record}; the same command continues."
    )
    assert collect_graphs(small, request) == f"120 of these 120 runs are in {record}."
    lines = record.read_text()
    assert collect_graphs(small, request) == f"120 of these 120 runs are in {record}."
    assert record.read_text() == lines
    page, table = render_graphs(record)
    text = page.read_text()
    assert "networks and budget" not in text
    assert text.index("## The paper's protocol") < text.index("## The GIN paper's protocol")
    assert "a subset of the grid: hidden {4} x layers {1, 2}, 2 of the 16" in text
    assert "| GIN | ReLU | 4 x " in text
    assert "/" not in text.split("Made from")[1].split(":")[0]  # no path of this machine
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 2 * 2
    assert {row["n"] for row in rows} == {"20"}
    assert rows[0]["paper_mean"] != ""
    assert {row["tried"] for row in rows} == {"2"}


def test_the_gin_papers_table_in_parts(
    small: GraphGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphrelu.lab.engine.fold_train.GIN_STEPS", 2)
    record = tmp_path / "graph.jsonl"
    grid = replace(small, protocols=["gin_paper"], layers=(1,), repeats=0)
    for activations, told in ((["relu"], "20 of these 20"), (["relu", "grelu"], "40 of these 40")):
        said = collect_graphs(replace(grid, activations=activations), Request(10, record))
        assert said == f"{told} runs are in {record}."
    assert [row.tried for row in graph_rows(Record(record).read())] == [2, 2]


def test_what_is_repeated_is_what_the_table_chooses(small: GraphGrid, tmp_path: Path) -> None:
    """Of all points on record, though the second call asks for one of them."""
    record = tmp_path / "graph.jsonl"
    few = replace(small, activations=["relu"], protocols=["folds"])
    collect_graphs(replace(few, repeats=0), Request(10, record, device="cpu"))
    collect_graphs(replace(few, layers=(1,)), Request(20, record, device="cpu"))
    (row,) = graph_rows(Record(record).read())
    assert (row.tried, row.n) == (2, 20)


def test_the_engine_keeps_whole_assignments(tmp_path: Path) -> None:
    graphs = {"rings": rings_and_paths(60)}
    config = graph_cell("rings", "gin", "relu", 4, 1, split="gin_folds", epochs=2)
    record = Record(tmp_path / "runs.jsonl")
    found = engine.run([config], range(20), record, graphs=graphs, device="cpu", seeds_at_once=7)
    assert len(found) == 20


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    assert GraphGrid(protocols=["gin_paper"]).small().epochs == 1  # 50 updates
    result = fake_engine.invoke("reproduce", "graph", "--quick", "--activations", "relu,grelu")
    assert result.exit_code == 0
    assert "120 of these 120 runs are in results/quick/graph.jsonl." in result.stdout
    assert "GIN paper's protocol" in result.stdout
    assert "Written: results/quick/graph.md, results/quick/graph.csv." in result.stdout
    few = ["--quick", "--seconds", "1e-9", "--out", "few.jsonl"]
    result = fake_engine.invoke("reproduce", "graph", *few)
    assert result.exit_code == 0
    assert result.stdout == "0 of these 360 runs are in few.jsonl; the same command continues.\n"


def test_compare_on_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    result = fake_engine.invoke(
        "compare", "digit-graphs", "--backbone", "gin", "--json", "out.json"
    )
    assert result.exit_code == 0
    assert "digit-graphs: 200 graphs, 6,363 nodes" in result.stdout
    assert "GIN: 4 layers of 64 hidden units" in result.stdout
    assert "10 stratified folds: one for testing" in " ".join(result.stdout.split())
    assert '"graphs": 200' in (tmp_path / "out.json").read_text()
    for arguments, sentence in (
        (["--backbone", "gat"], "There is no backbone for sets of graphs 'gat'; known are gcn"),
        (["--split", "masks"], "digit-graphs is a set of graphs, whose splits are folds, gin"),
        (["--split", "gin_folds", "--runs", 5], "runs must be a multiple of 10"),
        (["--split", "gin_paper", "--runs", 5], "a multiple of 10 for the split gin_paper, which"),
        (["--split", "gin_paper", "--norm", "batch"], "networks of the split gin_paper take no no"),
    ):
        result = fake_engine.invoke("compare", "digit-graphs", *arguments)
        assert result.exit_code == 2
        assert sentence in result.stderr
