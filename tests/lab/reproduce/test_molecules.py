"""The cells of the molecules' table, what they choose, and what the page says of a record."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.utils.smiles import e_map, x_map

from graphrelu.lab.data.graph import Features
from graphrelu.lab.engine.graph_training import network_of, schedule_of
from graphrelu.lab.models.graph_networks import GraphNetwork, Network
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import molecules
from graphrelu.lab.reproduce.molecules import CELLS, RIVALS, TABLE, Point
from graphrelu.lab.reproduce.table import Request
from tests.lab import fake_engine

PEPTIDES, ESOL = CELLS["peptides_func", "gcn"], CELLS["esol", "gcn"]


def run_of(config: Config, seed: int, score: float, curve: list[float]) -> Result:
    note = "80 / 10 / 10 % of the graphs, at random"
    return replace(
        fake_engine.make_result(config, seed, score, note),
        val_score=max(curve),
        best_epoch=1 + curve.index(max(curve)),
        epochs_run=config.epochs,
        curves={"val": curve},
    )


def test_published_settings() -> None:
    gine = CELLS["peptides_func", "gine"]
    config = gine.config("gelu", Point(0.1, 250))
    assert (config.hidden, schedule_of(config).batch_size, config.lr) == (160, 200, 1e-3)
    assert (gine.usual, PEPTIDES.usual) == (Point(0.1, 250), Point(0.1, 250))
    assert [TABLE.seeds(config, runs) for runs in (3, 10)] == [range(3), range(5)]
    assert len(CELLS) == 22  # twenty, and those of GNN+ on Peptides-func
    assert ESOL.points("relu") == [Point(*own) for own in product((0.0, 0.3), (30, 100))]
    assert ESOL.points("relu-4") == [Point(0.0, 100), Point(0.3, 100)]


def test_the_architecture_survives_the_configuration() -> None:
    for cell in CELLS.values():
        assert network_of(cell.config("relu", cell.usual)) == cell.network


def test_rows_differ_in_what_they_name_alone() -> None:
    relu = PEPTIDES.config("relu", PEPTIDES.usual)
    grelu = PEPTIDES.config("grelu", PEPTIDES.usual)
    assert replace(grelu, activation="relu", activation_options=()) == relu
    assert PEPTIDES.config("relu-4", PEPTIDES.usual) == replace(relu, epochs=1000)
    node = network_of(PEPTIDES.config("relu+vn", PEPTIDES.usual))
    assert node == replace(network_of(relu), virtual_node=True)
    places = TABLE.wanted()
    assert all(TABLE.place(config) == place for place, config in places.items())


@pytest.mark.parametrize("place", [place for place in CELLS if place[1] in ("gcn", "gcn+")])
def test_wider_has_the_parameters_of_a_virtual_node(place: tuple[str, str]) -> None:
    """But for a hair: neither one hidden unit more nor one less is closer."""
    features = (
        Features(torch.zeros(1, len(names)), torch.zeros(1), tuple(map(len, names.values())))
        for names in (x_map, e_map)
    )
    sizes = dict(zip(("nodes", "edges"), features, strict=True))

    def count(network: Network) -> int:
        with torch.device("meta"):
            made = GraphNetwork(network, outputs=1, activation="relu", **sizes)
        return sum(parameter.numel() for parameter in made.parameters())

    cell = CELLS[place]
    wide = network_of(cell.config("relu-wide", cell.usual))
    wanted = count(network_of(cell.config("relu+vn", cell.usual)))
    apart = [abs(count(replace(wide, hidden=wide.hidden + i)) - wanted) for i in (-1, 0, 1)]
    assert apart[1] == min(apart)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, int]]:
    """A stand-in that trains nothing; in the second half of the grid the scores are higher."""
    trained: list[tuple[Config, int]] = []

    def run_all(runs: Any, record: Record, **how: Any) -> int:
        for config, seeds in runs.items():
            left = record.left(config, seeds)
            trained.extend((config, seed) for seed in left)
            curve = [1 / config.epochs - config.dropout - 1]
            record.append(run_of(config, seed, -0.5 - seed / 100, curve) for seed in left)
        return sum(map(len, runs.values()))

    monkeypatch.setattr("graphrelu.lab.engine.run_all", run_all)
    monkeypatch.setattr("graphrelu.lab.data.load_graphs", lambda name, root, split: None)
    return trained


def test_the_grid_and_then_what_it_chose(tmp_path: Path, engine: list[tuple[Config, int]]) -> None:
    only = {"dataset": ["esol"], "backbone": ["gat"], "activation": ["gelu", "grelu"]}
    request = Request(10, tmp_path / "molecules.jsonl", only=only)
    # Four points with two seeds, and ten seeds for those published and chosen.
    assert TABLE.collect(request).startswith("48 of these 48 runs are in ")
    assert len(engine) == len(set(engine)) == 48
    rows = TABLE.rows(Record(request.out).read())
    of_grelu = [row for row in rows if row.name == "grelu"]
    assert {(row["setting"], row["dropout"], row["epochs"], row.n) for row in of_grelu} == {
        ("published", 0.0, 100, 10),
        ("chosen", 0.0, 30, 10),
        ("grid", 0.0, 30, 10),
        ("grid", 0.3, 30, 2),
        ("grid", 0.3, 100, 2),
    }


def test_a_quick_run(tmp_path: Path, engine: list[tuple[Config, int]]) -> None:
    request = Request(TABLE.quick_runs, tmp_path / "molecules.jsonl", quick=True)
    assert TABLE.collect(request).startswith("12 of these 12 runs are in")
    assert {config.activation for config, _ in engine} == {"relu", "gelu", "grelu"}
    assert {config.epochs for config, _ in engine} == {30}


def test_sets_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "Molecules").mkdir()
    text = "smiles,y,split\n" + "".join(f"{'C' * i},{i},train\n" for i in range(1, 30))
    (tmp_path / "Molecules" / "lipo.csv").write_text(text)
    config = CELLS["lipo", "gcn"].config("relu", Point(0.0, 30))
    graphs = molecules.load(config, tmp_path)
    assert (graphs.num_graphs, graphs.split) == (29, None)
    assert {rival.activation for rival in RIVALS.values()} >= {"relu", "grelu", "digraf"}
