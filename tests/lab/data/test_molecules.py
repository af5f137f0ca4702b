"""Molecules from a CSV file: what is read, what is left out, how it is split, and bad input."""

import gzip
from pathlib import Path

import pytest
import torch
from torch_geometric.utils import from_smiles

from graphrelu.lab.data import files_of, holds_graphs, load, load_graphs
from graphrelu.lab.data.molecules import scaffold_split
from graphrelu.lab.data.splits import split_of
from graphrelu.lab.errors import DataError

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C", "c1ccccc1O", "C1CCCCC1", "CCN", "CCC", "N#N", "O=C=O"]


def table(path: Path, *rows: str) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_graphs_are_those_of_pyg(tmp_path: Path) -> None:
    rows = [f"{smiles},{i / 2}" for i, smiles in enumerate(SMILES)]
    name = table(tmp_path / "some.csv", "SMILES,value", *rows)
    assert holds_graphs(name)
    molecules = load_graphs(name)
    assert (molecules.name, molecules.targets, molecules.task) == ("some", ("value",), "values")
    assert molecules.y.view(-1).tolist() == [i / 2 for i in range(10)]
    nodes = molecules.nodes.table[molecules.nodes.kind].split(molecules.node_count.tolist())
    edges = molecules.edges.table[molecules.edges.kind].split(molecules.edge_count.tolist())
    ends = molecules.edge_index.split(molecules.edge_count.tolist(), dim=1)
    for i, smiles in enumerate(SMILES):
        data = from_smiles(smiles)
        assert torch.equal(nodes[i], data.x)
        assert torch.equal(ends[i], data.edge_index)
        assert torch.equal(edges[i], data.edge_attr)
    assert (molecules.nodes.table < torch.tensor(molecules.nodes.sizes)).all()


def test_unreadable_molecules_are_left_out_and_named(tmp_path: Path) -> None:
    rows = ["CCO,1,", "not a molecule,0,1", "", "CC,0,1", ",0,1", "C(C,1,0", "CCC,,0"]
    molecules = load_graphs(table(tmp_path / "gaps.csv", "smiles,a,b", *rows))
    assert molecules.note == "Left out as unreadable: 3 of 6 molecules (lines 3, 6, 7)."
    assert molecules.task == "labels"
    expected = torch.tensor([[1.0, torch.nan], [0, 1], [torch.nan, 0]])
    torch.testing.assert_close(molecules.y, expected, equal_nan=True)


def test_a_compressed_file_with_a_column_split(tmp_path: Path) -> None:
    pairs = zip(SMILES, 4 * ["train", "valid", "Test"], strict=False)
    rows = [f"{smiles},{i % 2},{part}" for i, (smiles, part) in enumerate(pairs)]
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress("\r\n".join(["\ufeffsmiles,y,split", *rows]).encode()))
    molecules = load_graphs(str(path))
    assert (molecules.name, molecules.targets) == ("small", ("y",))
    split = split_of(molecules, 0)
    assert [*map(len, (split.train, split.val, split.test))] == [4, 3, 3]


def test_scaffolds_stay_together(tmp_path: Path) -> None:
    # a and b fill 8 of 10 places; then the scaffold that came last.
    assert scaffold_split([*"aaaaaabbcd"], "set").tolist() == [0] * 8 + [2, 1]
    rows = [f"{smiles},{i}" for i, smiles in enumerate(2 * SMILES)]
    split = load_graphs(table(tmp_path / "a.csv", "smiles,y", *rows), split="scaffold").split
    assert split is not None
    # Fourteen molecules without a ring, four with benzene's, two with cyclohexane's.
    assert split.tolist() == [int(smiles.startswith("c1")) for smiles in 2 * SMILES]


BAD = [
    ("smiles,split", ["C,train"], {}, "has no column to predict."),
    ("smiles,y", ["C,1"], {"targets": ["z"]}, "has no column 'z' to predict."),
    ("smiles,y,y", ["C,1,2"], {}, "has two columns with the same name."),
    ("smiles,y", [], {}, "RDKit can read none of the 0 SMILES."),
    ("smiles,y", ["X,1", "Y1,0"], {}, "RDKit can read none of the 2 SMILES."),
    ("smiles,y", ["C,low", "CC,high"], {}, "bad.csv, line 2: y must hold numbers, not 'low'."),
    ("smiles,y", ["C,1", "CC,inf"], {}, "bad: y contains infinite values"),
    ("smiles,y", ["C,1", "CC,1"], {}, "target 'y' has fewer than two values."),
    ("smiles,a,b", ["C,1,", "CC,0,"], {}, "target 'b' has fewer than two values."),
    ("smiles,y", ["C,1", "CC,0"], {"split": "column"}, "has no column 'split'."),
    ("smiles,y,split", ["C,1,dev", "CC,0,val"], {}, "must hold train, val or test, not 'dev'."),
    ("smiles,y", ["C,1", "CC,0"], {"split": "scaffold"}, "have the same scaffold"),
]


@pytest.mark.parametrize(("header", "rows", "arguments", "sentence"), BAD)
def test_bad_files_get_one_sentence(
    header: str, rows: list[str], arguments: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as raised:
        load_graphs(table(tmp_path / "bad.csv", header, *rows), **arguments)  # type: ignore[arg-type]
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


# Without the time of its making: xdist compares the names of the cases.
CUT_OFF = gzip.compress(b"smiles,y\n" * 99, mtime=0)[:-9]


@pytest.mark.parametrize("content", [b"smiles,y\nC,1\n", CUT_OFF])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(content)
    assert holds_graphs(str(path))
    with pytest.raises(DataError, match=r"bad\.csv\.gz cannot be read as a table \(.*\)\.$"):
        load_graphs(str(path))


def test_a_table_of_molecules_and_one_of_edges(tmp_path: Path) -> None:
    """A column of SMILES makes the difference."""
    name = table(tmp_path / "edges.csv", '"smiles","a b"', '"C",1', '"CC",2')
    assert files_of(name) == (Path(name),)
    assert load_graphs(name).targets == ("a b",)
    with pytest.raises(DataError, match=r"edges\.csv holds many graphs; choose a dataset of one"):
        load(name)
    assert not holds_graphs(table(tmp_path / "edges.csv", "source,target", "0,1"))


def test_without_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrelu.lab.data.molecules.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"^esol\.csv needs RDKit; install it with: pip install '"):
        load_graphs("esol")
