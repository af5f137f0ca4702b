"""Graph classification: what is chosen from the grid, and the table beside the paper's."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from graphrelu.lab import engine
from graphrelu.lab.choice import fold_choices, fold_point
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, GraphAxes, graph_cell
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import graph
from graphrelu.lab.reproduce.graph import TABLE, grid_sentence
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
    found = fold_choices(results)
    paper, gin = found["mutag", "gin", "folds"], found["mutag", "gin", "gin_folds"]
    assert paper[0].points == ((16, 2, 0.5), (32, 2, 0.5))
    assert {name: fold_point(config) for name, config in paper[1].items()} == {
        "relu": (32, 2, 0.5),
        "grelu": (32, 2, 0.5),  # as accurate, with a lower loss
    }
    assert gin[0].points == ((16, 2, 0.5),)
    assert fold_choices([*runs(cell("relu", 16), 0.7), *runs(cell("grelu", 32), 0.7)]) == {}


def test_what_is_not_chosen_from() -> None:
    """More fold assignments choose nothing; other settings are refused."""
    first = [*runs(cell("relu", 16), 0.7), *runs(cell("relu", 32), 0.6)]
    later = [replace(r, seed=10 + r.seed, val_score=1.0) for r in runs(cell("relu", 32), 1.0)]
    _, configs = fold_choices([*first, *later])["mutag", "gin", "folds"]
    assert configs["relu"].hidden == 16
    with pytest.raises(ValueError, match="The runs of mutag with gin have different settings"):
        fold_choices([*first, *runs(cell("grelu", 16, epochs=50), 0.7)])


def test_rows() -> None:
    results = [
        *runs(cell("grelu", 16), 0.7, 0.85, n=40),
        *runs(cell("relu", 32), 0.7, 0.82, n=40),
        *runs(cell("relu", 16), 0.6, 0.9),
        *runs(cell("grelu", 32), 0.6, 0.9),
    ]
    relu, grelu = TABLE.rows(results)
    assert (relu.name, relu["hidden"], relu["layers"], relu["tried"], relu.n) == (
        *("relu", 32, 2),
        *(2, 40),
    )
    assert relu.mean == pytest.approx(86.5)
    assert relu["paper_mean"] == 89.0
    assert relu["difference"] == pytest.approx(relu.mean - 89.0)
    assert grelu["over_relu"].difference == pytest.approx(3)
    assert grelu["over_relu"].n == 40
    assert grelu["over_relu"].outcome == "better"


def test_the_grid_is_named() -> None:
    def sentence(points: list[tuple[int, int]]) -> str:
        return grid_sentence(
            TABLE.rows(r for h, n in points for r in runs(cell("relu", h, n), 0.7))
        )

    full = [(h, n) for h in (16, 32, 64, 128) for n in (2, 3, 4, 5)]
    assert sentence(full) == (
        "Chosen from hidden {16, 32, 64, 128} x layers {2, 3, 4, 5}, all of the 16 configurations "
        "of the grid, the same for every activation."
    )
    assert sentence([(16, 2), (16, 3), (32, 2), (32, 3)]).startswith(
        "Chosen from hidden {16, 32} x layers {2, 3}, 4 of the 16 configurations"
    )
    other = [
        replace(r, config=replace(r.config, dataset="proteins"))
        for r in runs(cell("relu", 64), 0.7)
    ]
    rows = TABLE.rows([*runs(cell("relu", 16), 0.7), *runs(cell("relu", 32), 0.7), *other])
    assert "chose from 1 to 2 of the 16" in grid_sentence(rows)


@pytest.mark.parametrize(
    ("only", "points", "epochs"), [({}, 2 * 2, 100), ({"split": ["gin_paper"]}, 4, 350)]
)
def test_every_activation_is_given_the_same_grid(
    only: dict[str, list[str]], points: int, epochs: int, tmp_path: Path
) -> None:
    cells = list(TABLE.chosen(Request(40, tmp_path / "a.jsonl", only=only)).values())
    assert len(set(cells)) == len(cells) == 2 * 3 * 6 * points
    same = {"activation": "any", "activation_options": ()}
    counts = Counter(replace(config, **same) for config in cells)
    assert set(counts.values()) == {len(ACTIVATIONS)}
    assert {(c.lr, c.epochs, c.weight_decay) for c in cells} == {(0.01, epochs, 0.0)}
    if only:
        assert {fold_point(config) for config in cells} == set(product((16, 32), (4,), (0.0, 0.5)))


def test_whether_the_printed_numbers_come_out(tmp_path: Path) -> None:
    """MUTAG with GIN has 89.0 ± 6.0 with ReLU and 89.5 ± 7.4 with GReLU; ours are 88.5 and 80.5."""
    record = tmp_path / "graph.jsonl"
    for name, score in (("relu", 0.84), ("grelu", 0.76)):
        for dropout in (0.0, 0.5):
            config = cell(name, 32, 4, split="gin_paper", dropout=dropout)
            Record(record).append(runs(config, 0.9 - dropout, score))
    text = TABLE.render(record)[0].read_text()
    assert "## The GIN paper's protocol, networks and budget\n" in text
    assert "hidden {32} x layers {4} x dropout {0, 0.5}, 2 of the 4 configurations" in text
    assert "Epochs here: 350." in text
    assert config.title == "mutag gin grelu 32 x 4 gin_paper, dropout 0.5"
    assert "| GIN | ReLU | 32 x 4, dropout 0 | **88.5 ± " in text
    within = "our mean lies within two standard errors of the printed one in"
    assert f"ReLU, as in the GIN paper: {within} 1 of 1 cells" in text
    assert f"The other activations: {within} 0 of 1 cells; the differences go from -9.0 to" in text


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Rings and paths in the place of MUTAG, and few points."""
    graphs = rings_and_paths(60, name="mutag")
    monkeypatch.setattr("graphrelu.lab.reproduce.table.load_fold_set", lambda name, root: graphs)
    points = {name: GraphAxes((4,), (1, 2)) for name in ("folds", "gin_folds")}
    monkeypatch.setattr(graph, "POINTS", points)
    monkeypatch.setattr(Request, "changes", {"epochs": 2})
    return {"dataset": ["mutag"], "backbone": ["gin"], "activation": ["relu", "grelu"]}


def test_from_the_grid_to_the_table(small: dict[str, list[str]], tmp_path: Path) -> None:
    """In pieces: nothing in no time, the rest in a second call, nothing more in a third."""
    record = tmp_path / "graph.jsonl"
    request = Request(20, record, only=small, device="cpu")
    assert TABLE.collect(replace(request, seconds=1e-9)) == (
        f"0 of these 120 runs are in {record}; the same command continues."
    )
    assert TABLE.collect(request) == f"120 of these 120 runs are in {record}."
    lines = record.read_text()
    assert TABLE.collect(request) == f"120 of these 120 runs are in {record}."
    assert record.read_text() == lines
    page, table = TABLE.render(record)
    text = page.read_text()
    assert "networks and budget" not in text
    assert text.index("## The paper's protocol") < text.index("## The GIN paper's protocol")
    assert "hidden {4} x layers {1, 2}, 2 of the 16" in text
    assert "| GIN | ReLU | 4 x " in text
    assert "/" not in text.split("Made from")[1].split(":")[0]  # no path of this machine
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 2 * 2
    assert {row["n"] for row in rows} == {"20"}
    assert rows[0]["paper_mean"] != ""
    assert {row["tried"] for row in rows} == {"2"}


def test_the_engine_keeps_whole_assignments(tmp_path: Path) -> None:
    graphs = {"rings": rings_and_paths(60)}
    config = graph_cell("rings", "gin", "relu", 4, 1, split="gin_folds", epochs=2)
    record = Record(tmp_path / "runs.jsonl")
    found = engine.run([config], range(20), record, graphs=graphs, device="cpu", seeds_at_once=7)
    assert len(found) == 20


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    result = fake_engine.invoke("reproduce", "graph", "--quick", "--activations", "relu,grelu")
    assert (result.exit_code, result.stderr) == (0, "")
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
