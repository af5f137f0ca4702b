"""Molecules from a CSV file: what is read, what is left out, how it is split, and bad input."""

import gzip
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles

from graphrelu.lab.data.graph import DataError
from graphrelu.lab.data.molecules import (
    Molecules,
    from_data,
    read_molecules,
    scaffold_split,
)

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C", "c1ccccc1O", "C1CCCCC1", "CCN", "CCC", "N#N", "O=C=O"]


def table(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_graphs_are_those_of_pyg(tmp_path: Path) -> None:
    rows = [f"{smiles},{i / 2}" for i, smiles in enumerate(SMILES)]
    molecules = read_molecules(table(tmp_path / "some.csv", "smiles,value", rows))
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
    molecules = read_molecules(table(tmp_path / "gaps.csv", "smiles,a,b", rows))
    assert molecules.unreadable == (3, 6, 7)
    assert molecules.note == "3 of 6 molecules were left out as unreadable (lines 3, 6, 7)."
    assert molecules.task == "labels"
    expected = torch.tensor([[1.0, torch.nan], [0, 1], [torch.nan, 0]])
    torch.testing.assert_close(molecules.y, expected, equal_nan=True)


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    pairs = zip(SMILES, 4 * PARTS, strict=False)
    rows = [f"{smiles},{i % 2},{part}" for i, (smiles, part) in enumerate(pairs)]
    text = "\n".join(["smiles,y,split", *rows])
    path = tmp_path / "small.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    molecules = read_molecules(path)
    molecules.save(tmp_path / "small.npz")
    again = Molecules.load(tmp_path / "small.npz")
    for name in ("edge_index", "node_count", "edge_count", "y", "split"):
        assert torch.equal(getattr(again, name), getattr(molecules, name)), name
    for name in ("nodes", "edges"):
        table, kind, sizes = getattr(again, name)
        own = getattr(molecules, name)
        assert torch.equal(table[kind], own.table[own.kind])
        assert sizes == own.sizes
    assert [len(part) for part in again.parts(0)] == [4, 3, 3]
    assert again.name == "small"


PARTS = ["train", "valid", "Test"]


def test_random_splits_depend_on_the_seed_alone(tmp_path: Path) -> None:
    rows = [f"{smiles},{i}" for i, smiles in enumerate(2 * SMILES)]
    molecules = read_molecules(table(tmp_path / "some.csv", "smiles,value", rows), split="random")
    first, again, other = (molecules.parts(seed) for seed in (0, 0, 1))
    assert [len(part) for part in first] == [16, 2, 2]
    assert torch.cat(first).sort().values.equal(torch.arange(20))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[2], other[2])


def test_scaffolds_stay_together() -> None:
    scaffolds = ["a"] * 6 + ["b"] * 2 + ["c", "d"]
    split = scaffold_split(scaffolds, "set")
    # a and b fill 8 of 10 places; then the scaffold that came last.
    assert split.tolist() == [0] * 8 + [2, 1]


def test_scaffold_of_a_file(tmp_path: Path) -> None:
    rows = [f"{smiles},{i}" for i, smiles in enumerate(2 * SMILES)]
    path = table(tmp_path / "some.csv", "smiles,value", rows)
    split = read_molecules(path, split="scaffold").split
    assert split is not None
    # Fourteen molecules without a ring, four with benzene's, two with cyclohexane's.
    expected = {"c1ccccc1": 1, "c1ccccc1O": 1}
    assert split.tolist() == [expected.get(smiles, 0) for smiles in 2 * SMILES]


BAD = {
    "no SMILES": ("structure,y", ["C,1", "CC,0"], {}, "has no column 'smiles'."),
    "nothing to predict": ("smiles,split", ["C,train"], {}, "has no column to predict."),
    "no such target": ("smiles,y", ["C,1"], {"targets": ["z"]}, "has no column 'z' to predict."),
    "no rows": ("smiles,y", [], {}, "has no rows."),
    "unreadable": ("smiles,y", ["X,1", "Y1,0"], {}, "RDKit can read none of the 2 SMILES."),
    "words": ("smiles,y", ["C,low", "CC,high"], {}, "must be a number, not 'low' (line 2)."),
    "infinite": ("smiles,y", ["C,1", "CC,inf"], {}, "'y' must be finite (line 3)."),
    "one class": ("smiles,y", ["C,1", "CC,1"], {}, "'y' has the same value in every row."),
    "unknown": ("smiles,a,b", ["C,1,", "CC,0,"], {}, "no value of the target 'b' is known."),
    "no split": ("smiles,y", ["C,1", "CC,0"], {"split": "column"}, "has no column 'split'."),
    "other split": (
        "smiles,y,split",
        ["C,1,dev", "CC,0,val"],
        {},
        "must say train, val or test, not 'dev'",
    ),
    "one scaffold": ("smiles,y", ["C,1", "CC,0"], {"split": "scaffold"}, "have the same scaffold"),
    "kind of split": ("smiles,y", ["C,1", "CC,0"], {"split": "time"}, "split must be one of"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_sentence(case: str, tmp_path: Path) -> None:
    header, rows, arguments, sentence = BAD[case]
    with pytest.raises(DataError) as raised:
        read_molecules(table(tmp_path / "bad.csv", header, rows), **arguments)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bad_parts_get_one_sentence(tmp_path: Path) -> None:
    rows = ["C,1,train", "CC,0,train", "CCC,1,val", "CCCC,0,val"]
    empty = read_molecules(table(tmp_path / "bad.csv", "smiles,y,split", rows))
    with pytest.raises(DataError, match=r"^bad: the split leaves no graph for the test part\.$"):
        empty.parts(0)
    rows += ["CO,1,test"]
    one = read_molecules(table(tmp_path / "bad.csv", "smiles,y,split", rows))
    with pytest.raises(
        DataError, match=r"^bad: the test part has one class only, in every target\.$"
    ):
        one.parts(0)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(b"smiles,y\nC,1\n")
    with pytest.raises(DataError, match=r"^bad\.csv\.gz is not a CSV file \(.*\)\.$"):
        read_molecules(path)


PATH_GRAPH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_graphs_of_pyg() -> None:
    graphs = [
        Data(x=torch.tensor([[0], [4], [1]]), edge_index=PATH_GRAPH, y=torch.tensor([2])),
        Data(x=torch.tensor([[3]]), edge_index=torch.tensor([[0], [0]]), y=torch.tensor([0])),
    ]
    found = from_data("two", graphs)
    assert (found.task, found.outputs, found.nodes.sizes, found.edges.sizes) == (
        "classes",
        3,
        (5,),
        (1,),
    )
    assert found.nodes.table[found.nodes.kind].view(-1).tolist() == [0, 4, 1, 3]
    assert found.edge_count.tolist() == [4, 0]  # without the self-loop


def test_real_features_of_pyg() -> None:
    attr = torch.rand(4)
    graphs = [Data(x=torch.rand(3, 2), edge_index=PATH_GRAPH, edge_attr=attr, y=torch.rand(1, 2))]
    found = from_data("one", graphs)
    assert (found.task, found.outputs, found.nodes.sizes) == ("values", 2, ())
    torch.testing.assert_close(found.nodes.table[found.nodes.kind], graphs[0].x)
    torch.testing.assert_close(found.edges.table[found.edges.kind].view(-1), attr)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"edge_index": PATH_GRAPH[:, :1]}, "set: the graphs must be undirected."),
        ({"y": None}, "set: graph 0 has no y."),
        ({"x": torch.tensor([[0], [-1], [2]])}, "set: x must not be negative."),
        ({"x": torch.ones(0, 1), "edge_index": PATH_GRAPH[:, :0]}, "set: graph 0 has no nodes."),
    ],
)
def test_bad_graphs_get_one_sentence(change: dict[str, torch.Tensor], sentence: str) -> None:
    usual = {"x": torch.ones(3, 1).long(), "edge_index": PATH_GRAPH, "y": torch.tensor([1])}
    with pytest.raises(DataError) as raised:
        from_data("set", [Data(**{**usual, **change})])
    assert str(raised.value) == sentence
