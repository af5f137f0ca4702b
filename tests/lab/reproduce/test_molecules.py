"""The cells of the molecules' table, what they choose, and what the page says of a record."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.engine.graph_runs import append
from graphrelu.lab.engine.graph_training import GraphRun
from graphrelu.lab.reproduce.molecules import (
    CELLS,
    Point,
    by_key,
    chosen,
    collect,
    missing,
    prepare,
)
from graphrelu.lab.reproduce.molecules_table import rows, write


def entry(run: GraphRun, score: float, val: float, curve: list[float] | None = None) -> dict:
    return {
        "run": run.to_dict(),
        "score": score,
        "val_score": val,
        "best_epoch": len(curve or [val]) - 1,
        "parameters": 1000,
        "seconds": 20.0 if run.activation == "grelu" else 10.0,
        "steps": 1000,
        "processes": 4,
        "peak_memory": 2**30,
        "curves": {"train_loss": [], "val": curve or [val], "test": []},
        "device": "a GPU",
        "versions": {"torch": "2.11"},
        "commit": None,
        "date": "2026-11-18",
    }


def test_published_settings() -> None:
    gcn, gine = (CELLS[f"peptides-{conv}"].run("gelu", 0) for conv in ("gcn", "gine"))
    assert (gcn.network.layers, gcn.network.hidden, gcn.epochs, gcn.batch_size) == (
        6,
        235,
        250,
        200,
    )
    assert (gine.network.layers, gine.network.hidden, gine.network.inside) == (8, 160, True)
    for run in (gcn, gine):
        assert (run.network.walks, run.network.norm, run.network.dropout) == (20, "none", 0.1)
        assert (run.lr, run.weight_decay, run.warmup, run.network.head_layers) == (1e-3, 0, 5, 3)
    assert len(CELLS) == 22  # twenty, and those of GNN+ on Peptides-func


def test_columns_differ_in_what_they_name_alone() -> None:
    cell = CELLS["peptides-gcn"]
    relu = cell.run("relu", 3)
    assert cell.run("grelu", 3) == replace(relu, activation="grelu")
    assert cell.run("relu-4", 3) == replace(relu, epochs=1000)
    node = cell.run("relu+vn", 3)
    assert node == replace(relu, network=replace(relu.network, virtual_node=True))
    keys = {cell.run(rival, seed).key() for rival in cell.rivals for seed in range(5)}
    assert len(keys) == 5 * len(cell.rivals)


def test_wider_networks_have_the_parameters_of_a_virtual_node() -> None:
    wide = CELLS["esol-gcn"].run("relu-wide", 0).network
    assert not wide.virtual_node
    assert wide.hidden > 64


def test_the_grid_comes_first_and_then_what_it_chose() -> None:
    cell, names = CELLS["esol-gcn"], {"cells": ["esol-gcn"], "rivals": ["grelu"]}
    first = missing({}, **names)
    assert len(first) == 2 * 4
    assert {(run.network.dropout, run.epochs) for run in first} == set(cell.points("grelu"))
    best = Point(0.3, 30)
    entries = {
        run.key(): entry(run, 0.5, 0.4 if (run.network.dropout, run.epochs) == best else 0.6)
        for run in first
    }
    assert chosen(cell, "grelu", entries) == best
    assert chosen(cell, "relu", entries) is None
    assert cell.points("relu-4") == [Point(0.0, 100), Point(0.3, 100)]
    then = missing(entries, **names)
    assert [run.seed for run in then] == list(range(2, 10))
    assert all((run.network.dropout, run.epochs) == best for run in then)
    published = missing({}, **names, grid=False)
    assert [(run.seed, run.epochs) for run in published] == [(seed, 100) for seed in range(10)]


def test_the_page_and_the_table(tmp_path: Path) -> None:
    record = tmp_path / "molecules.jsonl"
    cell = CELLS["peptides-gcn"]
    for seed in range(5):
        wobble = 0.001 * seed
        append(record, entry(cell.run("gelu", seed), 0.686 + wobble, 0.68))
        append(record, entry(cell.run("relu", seed), 0.670 - wobble, 0.66, [0.2, 0.6, 0.65, 0.66]))
        append(record, entry(cell.run("grelu", seed), 0.705 + wobble, 0.7, [0.5, 0.66, 0.7]))
    paths = write(record)
    assert [path.name for path in paths] == [
        f"molecules.{end}" for end in ("md", "csv", "png", "svg")
    ]
    page = paths[0].read_text()
    assert "| peptides-gcn | GELU | 68.8 ± 0.2 | 68.6 | 5 | yes |" in page
    lead = "GReLU is +3.9 [+3.5, +4.3] * points ahead of ReLU over 5 seeds, better."
    assert f"- peptides-gcn, dropout 0.1, 250 epochs (published): {lead}" in page
    line = next(line for line in page.splitlines() if "| GReLU |" in line)
    assert "| 70.7 ± 0.2 | +3.9 [+3.5, +4.3] * |" in line
    # ReLU's best validation score took it 4 epochs and GReLU 2, each of twice the time.
    assert line.endswith("| 20.0 | 50 % | 100 % |")
    table = list(csv.DictReader(paths[1].read_text().splitlines()))
    grelu = next(row for row in table if row["rival"] == "grelu")
    assert grelu["over_relu_outcome"] == "better"
    assert float(grelu["nodes"]) == 150.9
    assert {row["setting"] for row in table} == {"published"}


def test_lower_errors_are_better(tmp_path: Path) -> None:
    record = tmp_path / "molecules.jsonl"
    cell = CELLS["esol-gcn"]
    for seed in range(6):
        append(record, entry(cell.run("relu", seed), 0.6 + 0.001 * seed, 0.6))
        append(record, entry(cell.run("grelu", seed), 0.54, 0.5))
    found = {row.rival: row for row in rows(by_key(record))}
    lead = found["grelu"].over_relu
    assert lead is not None
    assert lead.outcome == "better"
    assert lead.difference == pytest.approx(100 * (0.6025 - 0.54) / 0.6025)
    assert lead.unit == "% of ReLU's error"


def test_a_record_without_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no runs on sets of molecules yet\.$"):
        write(tmp_path / "molecules.jsonl")


def test_sets_are_prepared(tmp_path: Path) -> None:
    text = "smiles,logSolubility\n" + "".join(f"{'C' * i},{i}\n" for i in range(1, 30))
    (tmp_path / "esol.csv").write_text(text + "oops,3\n")
    told = list(prepare(tmp_path, tmp_path / "out", ["esol"]))
    expected = "1 of 30 molecules was left out as unreadable (line 31)."
    assert told == [f"esol: 29 molecules. {expected}"]
    assert (tmp_path / "out" / "esol.npz").exists()


def test_the_grid_is_done_and_then_what_it_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for the runs, of which the last of the grid is the best."""
    done: list[int] = []

    def perform_all(runs: list[GraphRun], data: Path, record: Path, *rest: object) -> int:
        assert (data / "esol.npz").exists()
        done.append(len(runs))
        for run in runs:
            append(record, entry(run, 0.5, 1 / run.epochs - run.network.dropout))
        return 0

    monkeypatch.setattr("graphrelu.lab.reproduce.molecules.perform_all", perform_all)
    (tmp_path / "esol.csv").write_text("smiles,y\nC,1\nCC,2\n")
    record = tmp_path / "molecules.jsonl"
    choice = {"cells": ["esol-gat"], "rivals": ["relu", "grelu"]}
    told = collect(record, tmp_path, tmp_path / "prepared", **choice)
    assert told == "All runs are there."
    assert done == [2 * 8, 2 * 8]
    found = rows(by_key(record))
    assert {(row.dropout, row.epochs) for row in found if row.setting == "chosen"} == {(0.3, 100)}
    assert {row.setting for row in found} == {"published", "chosen", "grid"}


def test_time_may_be_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrelu.lab.reproduce.molecules.perform_all", lambda runs, *_: len(runs))
    (tmp_path / "esol.csv").write_text("smiles,y\nC,1\nCC,2\n")
    choice = {"cells": ["esol-gat"], "rivals": ["relu"]}
    told = collect(tmp_path / "molecules.jsonl", tmp_path, tmp_path / "prepared", **choice)
    assert told == "8 runs are missing; the same command continues."
