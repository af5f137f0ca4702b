"""Tuned rivals: the same grid for all, chosen on validation nodes, compared on test nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import tuned
from graphrelu.lab.reproduce.table import Row
from graphrelu.lab.reproduce.tuned import grid
from tests.lab.fake_engine import make_result

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
    place = tuned.TABLE.place(config)
    return place and place[1][1]


def test_the_grid_by_hand() -> None:
    (cell,) = node_table(["cora"], ["gcn"], ["relu"])
    assert [(c.lr, c.weight_decay, c.dropout) for c in grid(cell)] == [
        *((0.01, 5e-4, 0.5), (0.01, 5e-4, 0.8), (0.01, 5e-3, 0.5), (0.01, 5e-3, 0.8)),
        *((0.003, 5e-4, 0.5), (0.003, 5e-4, 0.8), (0.003, 5e-3, 0.5), (0.003, 5e-3, 0.8)),
    ]
    assert grid(cell)[0] == cell
    for other in node_table():
        assert len(set(grid(other))) == tuned.SETTINGS
        assert [place_in_grid(config) for config in grid(other)] == list(range(8))


def chosen(results: list[Result]) -> dict[str, Row]:
    return {row.name: row for row in tuned.TABLE.rows(results)}


def test_validation_accuracy_chooses() -> None:
    found = chosen(runs({"relu": 5, "grelu": 3}))
    assert {row["tried"] for row in found.values()} == {8}
    assert {name: place_in_grid(row.config) for name, row in found.items()} == {
        "relu": 5,
        "grelu": 3,
    }
    equal = chosen(runs({"relu": -1, "grelu": -1}))
    assert {place_in_grid(row.config) for row in equal.values()} == {0}


def test_all_choose_from_the_same_settings_and_seeds() -> None:
    best = {"relu": 7, "grelu": 7}
    begun = runs({"relu": 7}, places=range(8)) + runs({"grelu": 7}, places=range(3))
    assert {row["tried"] for row in chosen(begun).values()} == {3}
    nothing = runs({"relu": 7}, places=[0]) + runs({"grelu": 7}, places=[1])
    assert chosen(nothing) == {}
    apart = runs({"relu": 7}, seeds=[0]) + runs({"grelu": 7}, seeds=[1])
    assert chosen(apart) == {}
    without_own = chosen(runs(best, places=[2, 7]))
    assert {row["untuned_mean"] for row in without_own.values()} == {None}


def test_rows() -> None:
    relu, grelu = tuned.TABLE.rows(runs({"relu": 5, "grelu": 0}))
    assert (relu.activation, relu.n, relu["tried"]) == ("relu", 10, 8)
    assert (relu["lr"], relu["weight_decay"], relu["dropout"]) == (0.003, 5e-4, 0.8)
    # Test accuracy: 0.5 where it is preferred, 0.55 elsewhere, and what the seeds add.
    assert relu.mean == pytest.approx(50.9)
    assert relu["untuned_mean"] == pytest.approx(55.9)
    assert grelu["untuned_mean"] == grelu.mean == pytest.approx(51.99)
    # Tuned GReLU is ahead; untuned ReLU was trained with what its validation nodes did not choose.
    assert grelu["grelu_over_it"] is None
    assert relu["grelu_over_it"].difference == pytest.approx(1.09)
    assert relu["grelu_over_it"].outcome == "better"
    assert relu["untuned_over_it"].outcome == "worse"


def test_a_page_of_what_is_there(tmp_path: Path) -> None:
    record = tmp_path / "tuned.jsonl"
    Record(record).append(runs({"relu": 1, "grelu": 1}, seeds=range(3), places=[1, 2]))
    text = tuned.TABLE.render(record)[0].read_text()
    assert "The grid is incomplete: some cells chose from 2 of the 8 settings.\n" in text
    assert "| Cora | ReLU | 51.0 ± 1.0 (3) | 0.01 | 0.0005 | 0.8 |  | +1.0 " in text
