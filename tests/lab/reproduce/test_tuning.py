"""Tuned rivals: the same grid for all, chosen on validation nodes, compared on test nodes."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab import data
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, NODE_DATASETS, node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import tuning
from graphrelu.lab.reproduce.experiment import Request
from graphrelu.lab.reproduce.tuning import (
    choices,
    grid,
    render_tuned,
    tuned_cells,
    tuned_rows,
)
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke, make_result
from tests.lab.reproduce.test_reproduce import small_graph

SMALL = ["--datasets", "cora", "--backbones", "gcn", "--activations", "relu,grelu"]
TEST_LEADS = {"relu": 0.0, "grelu": 0.01}


def run(config: Config, seed: int, validated: float) -> Result:
    """The worse a setting is on validation nodes, the better on test nodes: it must not matter."""
    score = 0.9 - validated / 2 + TEST_LEADS[config.activation] * (1 + seed / 50) + seed % 3 / 100
    return replace(make_result(config, seed, score), val_score=validated)


def runs(
    best: dict[str, int], seeds: Iterable[int] = range(10), places: Iterable[int] = range(8)
) -> list[Result]:
    """GCN on Cora; each activation has one setting that the validation nodes prefer."""
    return [
        run(grid(cell)[place], seed, 0.8 if place == best[cell.activation] else 0.7)
        for cell in node_table(["cora"], ["gcn"], best)
        for place in places
        for seed in seeds
    ]


def place_in_grid(config: Config) -> int | None:
    place = tuning.TABLE.place(config)
    return place and place[1][1]


def test_the_grid_by_hand() -> None:
    (cell,) = node_table(["cora"], ["gcn"], ["relu"])
    assert [(c.lr, c.weight_decay, c.dropout) for c in grid(cell)] == [
        *((0.01, 5e-4, 0.5), (0.01, 5e-4, 0.8), (0.01, 5e-3, 0.5), (0.01, 5e-3, 0.8)),
        *((0.003, 5e-4, 0.5), (0.003, 5e-4, 0.8), (0.003, 5e-3, 0.5), (0.003, 5e-3, 0.8)),
    ]
    assert grid(cell)[0] == cell
    for other in node_table():
        assert len(set(grid(other))) == tuning.SETTINGS
        assert [place_in_grid(config) for config in grid(other)] == list(range(8))
    assert place_in_grid(replace(cell, lr=0.1)) is None
    assert place_in_grid(replace(cell, activation_options=(("K", 3),))) is None
    assert place_in_grid(replace(cell, backbone="gin", split="folds")) is None


def test_every_activation_gets_the_same_and_the_tables_own_first(tmp_path: Path) -> None:
    request = Request(10, tmp_path / "a.jsonl")
    cells = tuned_cells(request, NODE_DATASETS, tuning.TUNED_BACKBONES, ACTIVATIONS)
    assert len(set(cells)) == len(cells) == 5 * 2 * 6 * 8
    assert cells[:60] == node_table(backbones=("gcn", "sage"))
    counts = Counter(replace(cell, activation="any", activation_options=()) for cell in cells)
    assert set(counts.values()) == {len(ACTIVATIONS)}


def test_validation_accuracy_chooses() -> None:
    (choice,) = choices(runs({"relu": 5, "grelu": 3})).values()
    assert choice.tried == tuple(range(8))
    chosen = {name: place_in_grid(rs[0].config) for name, rs in choice.chosen.items()}
    assert chosen == {"relu": 5, "grelu": 3}
    assert {place_in_grid(rs[0].config) for rs in choice.own.values()} == {0}
    (equal,) = choices(runs({"relu": -1, "grelu": -1})).values()
    assert {place_in_grid(rs[0].config) for rs in equal.chosen.values()} == {0}


def test_all_choose_from_the_same_settings_and_seeds() -> None:
    best = {"relu": 7, "grelu": 7}
    begun = runs({"relu": 7}, places=range(8)) + runs({"grelu": 7}, places=range(3))
    (choice,) = choices(begun).values()
    assert choice.tried == (0, 1, 2)
    more = runs(best) + runs(best, seeds=range(10, 20), places=[0])
    (choice,) = choices(more).values()
    assert choice.tried == tuple(range(8))
    assert {tuple(rs) for rs in choice.chosen.values()} == {tuple(range(10))}
    nothing = runs({"relu": 7}, places=[0]) + runs({"grelu": 7}, places=[1])
    assert choices(nothing) == {}
    apart = runs({"relu": 7}, seeds=[0]) + runs({"grelu": 7}, seeds=[1])
    assert choices(apart) == {}
    (without_own,) = choices(runs(best, places=[2, 7])).values()
    assert without_own.own == {}
    hasty = [replace(r, config=replace(r.config, epochs=30)) for r in runs(best)]
    with pytest.raises(ValueError, match=r"^The runs of cora with gcn have different settings\.$"):
        choices([*runs(best), *hasty])


def test_rows() -> None:
    relu, grelu = tuned_rows(runs({"relu": 5, "grelu": 0}))
    assert (relu.activation, relu.n, relu.tried) == ("relu", 10, 8)
    assert (relu.lr, relu.weight_decay, relu.dropout) == (0.003, 5e-4, 0.8)
    # Test accuracy: 0.5 where it is preferred, 0.55 elsewhere, and what the seeds add.
    assert relu.mean == pytest.approx(50.9)
    assert relu.untuned_mean == pytest.approx(55.9)
    assert grelu.untuned_mean == grelu.mean == pytest.approx(51.99)
    assert grelu.grelu_over_it is None
    assert relu.grelu_over_it.difference == pytest.approx(1.09)
    assert relu.grelu_over_it.p < 0.001
    assert relu.grelu_over_it.outcome == "better"


def test_files(tmp_path: Path) -> None:
    record = tmp_path / "tuned.jsonl"
    others = [make_result(c, 0, 0.5) for c in node_table(["cora"], ["sgc"])]
    Record(record).append([*runs({"relu": 5, "grelu": 0}), *others])
    page, table = render_tuned(record)
    text = page.read_text()
    assert "Made from `tuned.jsonl`: 160 runs (no device; torch 0).\n\n" in text
    assert "Every cell chose from all 8 settings.\n" in text
    assert (
        "| Cora | ReLU | 50.9 ± 0.9 (10) | 0.003 | 0.0005 | 0.8 | 55.9 ± 0.9 "
        "| +1.1 [+1.0, +1.1] * | < 0.001 |" in text
    )
    assert "| Cora | GReLU | **52.0 ± 0.9 (10)** | 0.01 | 0.0005 | 0.5 | 52.0 ± 0.9 |  |  |" in text
    # Tuned GReLU is ahead; untuned ReLU was trained with what its validation nodes did not choose.
    assert text.count("| ReLU | 1 | 0 | 0 | 0 | 1 |") == 1
    assert text.count("| ReLU | 0 | 0 | 0 | 1 | 0 |") == 1
    relu, grelu = csv.DictReader(table.read_text().splitlines())
    assert (relu["lr"], relu["tried"], relu["grelu_over_it_outcome"]) == ("0.003", "8", "better")
    assert grelu["grelu_over_it_p"] == ""


def test_a_page_of_what_is_there(tmp_path: Path) -> None:
    record = tmp_path / "tuned.jsonl"
    Record(record).append(runs({"relu": 1, "grelu": 1}, seeds=range(3), places=[1, 2]))
    text = render_tuned(record)[0].read_text()
    assert (
        "The grid is incomplete: some cells chose from 2 of the 8 settings. Nothing in this table "
        "is decided: that takes 5 seeds or more.\n" in text
    )
    assert "| Cora | ReLU | 51.0 ± 1.0 (3) | 0.01 | 0.0005 | 0.8 |  | +1.0 " in text


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    monkeypatch.setattr(data, "load", small_graph)
    return tmp_path


def test_the_command_in_pieces(fakes: Path) -> None:
    arguments = ["node", "--tuned", *SMALL]
    shown = invoke("reproduce", *arguments, "--runs", 2)
    assert "32 of these 32 runs are in results/tuned.jsonl." in shown.stdout
    shown = invoke("reproduce", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "160 of these 160 runs are in results/tuned.jsonl." in shown.stdout
    assert "Written: results/tuned.md, results/tuned.csv." in shown.stdout
    page = Path("results/tuned.md").read_bytes()
    assert invoke("reproduce", *arguments, "--render").exit_code == 0
    assert Path("results/tuned.md").read_bytes() == page
    assert not Path("results/node.jsonl").exists()


def test_before_the_first_cell_is_there(fakes: Path) -> None:
    shown = invoke("reproduce", "node", "--tuned", *SMALL, "--seconds", 1e-9)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == (
        "0 of these 160 runs are in results/tuned.jsonl; the same command continues.\n"
    )
