"""Comparing activations on molecules from a file."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrelu.lab.compare_molecules import compare_molecules, is_molecules, show
from graphrelu.lab.data.graph import DataError
from graphrelu.lab.render import terminal
from tests.lab.molecule_sets import ring_set

SMALL = {"layers": 1, "hidden": 8}
SHORT = {"epochs": 2, "batch_size": 16}


def chains(path: Path, count: int, target: str) -> Path:
    lines = (f"{'C' * (i + 1)}{'O' * (i % 2)},{eval(target, {'i': i})}" for i in range(count))
    path.write_text("smiles,y\n" + "\n".join(lines) + "\n")
    return path


def test_what_it_reads() -> None:
    assert all(map(is_molecules, ("esol", "a.csv", "b/c.CSV.gz")))
    assert not any(map(is_molecules, ("cora", "my.npz", "pyg:TUDataset/ENZYMES")))


def test_values(tmp_path: Path) -> None:
    path, out = chains(tmp_path / "chains.csv", 40, "i / 3"), tmp_path / "runs.jsonl"
    arguments = {"runs": 5, "network": SMALL, "training": SHORT, "out": out, "processes": 1}
    found = compare_molecules(str(path), **arguments)
    assert [(row.activation, row.n, row.is_error) for row in found.rows] == [
        ("relu", 5, True),
        ("grelu", 5, True),
    ]
    lead = found.rows[1].over_relu
    assert lead is not None
    assert lead.low is not None
    assert lead.num_test == 4
    assert "corrected for the training data" in lead.about
    before = out.read_text()
    again = compare_molecules(str(path), **arguments)
    assert out.read_text() == before
    assert again.rows == found.rows
    second = compare_molecules(str(path), **arguments, look=2).rows[1].over_relu
    assert second is not None
    assert second.error == lead.error / 3  # 1 / (2 * 3) of alpha after 1 / (1 * 2)


def test_labels(tmp_path: Path) -> None:
    path = chains(tmp_path / "chains.csv", 40, "i % 2")
    found = compare_molecules(
        str(path), ["relu"], 1, metric="ap", network=SMALL, training=SHORT, processes=1
    )
    assert found.run.metric == "ap"
    assert 0 <= found.rows[0].mean <= 100
    assert not found.rows[0].is_error


def test_graphs_of_pyg() -> None:
    found = compare_molecules(
        replace(ring_set(), y=torch.arange(30).view(-1, 1) // 3 % 3),
        runs=1,
        network=SMALL,
        training=SHORT,
        processes=1,
    )
    assert found.run.metric == "accuracy"
    assert [row.n for row in found.rows] == [1, 1]


def test_the_table_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = chains(tmp_path / "chains.csv", 30, "i / 3")
    path.write_text(path.read_text() + "oops,1\n")
    found = compare_molecules(str(path), runs=2, network=SMALL, training=SHORT, processes=1)
    show(found, terminal.console())
    shown = capsys.readouterr().out
    assert "chains: 30 graphs; gcn, 1 x 8, 2 epochs; mae on test graphs." in shown
    assert "1 of 31 molecules was left out as unreadable (line 32)." in shown
    assert "GReLU" in shown
    assert "\nWhether GReLU is better than ReLU here is undecided" in shown


def test_esol_comes_with_the_package() -> None:
    found = compare_molecules("esol", ["relu"], 1, network=SMALL, training=SHORT, processes=1)
    assert len(found.molecules.y) == 1128
    assert (found.run.metric, found.note) == ("mae", "")


def test_bad_input_gets_one_sentence(tmp_path: Path) -> None:
    path = chains(tmp_path / "chains.csv", 4, "i % 2")
    with pytest.raises(ValueError, match=r"^metric must be one of rocauc, ap, accuracy for"):
        compare_molecules(str(path), metric="mae")
    with pytest.raises(DataError, match=r"^chains: the split leaves no graph for the val part"):
        compare_molecules(str(path))
