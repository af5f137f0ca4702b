"""The user's own files: what is read, what is left out, and what is wrong costs one sentence. The
size of a file is checked first, and no code in it is run."""

from __future__ import annotations

import gzip
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles, is_undirected, to_undirected

from graphrelu.lab.cli.compare import prepare
from graphrelu.lab.data import Graph, files_of, holds_graphs, load, load_graphs, own_files
from graphrelu.lab.data.own_files import scaffold_split
from graphrelu.lab.data.splits import from_masks, make_split, split_of
from graphrelu.lab.errors import DataError
from graphrelu.lab.render import headline

NODE = np.arange(12)
MASKS = np.stack([(NODE + split) % 3 == 0 for split in range(5)])
EDGES = np.stack([NODE[:-1], NODE[1:]], axis=1)
CANNOT = "cannot be read as an .npz file"
HOW = r"; save a PyG Data, or a list of them, that holds tensors only, with torch\.save\.$"
SPARSE = torch.sparse_coo_tensor([[0], [99]], [1.0], (12, 3), check_invariants=False)
RING = [(node, (node + 1) % 12) for node in range(12)]
EDGE_LINES = [f"{a},{b}" for a, b in RING]
NODE_LINES = ["label,age,size", *(f"{node % 2},{node},{node / 2}" for node in range(12))]
PAIRS = "edges.csv must have two nodes per line, and optionally a weight"
NAMES = "nodes.csv needs a header line with a column label"
FAULTY_EDGES = [
    (["0,1,2,3"], PAIRS),
    ([",", ","], "edges.csv is empty"),
    (["0,1", "1,2,3"], r"edges.csv cannot be read .* Expected 2 fields in line 2, saw 3\)"),
    (["a,b", "a,1"], "edges.csv, line 2: column 1 must hold names of nodes, not 'a'"),
    (["0,12"], "edges.csv, line 1: column 2 must hold names of nodes, not '12'"),
    (["0,1,x"], "edges.csv, line 1: the weight must hold numbers, not 'x'"),
    (["0,1,-1"], "the edge weights must be finite and not negative"),
    (['0,"1'], r"edges.csv cannot be read as a table \(.* EOF inside string starting at row 0\)"),
]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C", "c1ccccc1O", "C1CCCCC1", "CCN", "CCC", "N#N", "O=C=O"]
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
# Without the time of its making: xdist compares the names of the cases.
CUT_OFF = gzip.compress(b"smiles,y\n" * 99, mtime=0)[:-9]


def refused(path: Path, sentence: str, read: Callable[[str], object] = load) -> None:
    """A file costs one sentence."""
    with pytest.raises(DataError, match=sentence) as caught:
        read(str(path))
    text = str(caught.value)
    assert path.name in text
    assert text.endswith(".")
    assert "\n" not in text


def edge_list(path: Path, **changes: Any) -> Path:
    """A path of twelve nodes as the heterophilous graphs are stored; each edge is there once."""
    arrays = {
        "node_features": np.eye(12, 4, dtype=np.float32),
        "node_labels": NODE % 2,
        "edges": EDGES,
        "train_masks": MASKS,
        "val_masks": np.roll(MASKS, 1, axis=1),
        "test_masks": np.roll(MASKS, 2, axis=1),
    }
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train_masks": MASKS.T},
        {"edges": np.concatenate([EDGES, EDGES[:, ::-1], [[3, 3]]])},  # both directions, and a loop
        {"edges": None, "edge_index": EDGES.T, "node_labels": None, "y": NODE % 2},  # PyG's names
    ],
)
def test_npz(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = load(str(edge_list(tmp_path / "path.npz", **changes)))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (12, 22, 4)
    assert is_undirected(graph.edge_index, num_nodes=12)
    assert torch.equal(graph.y, torch.arange(12) % 2)
    for seed in (0, 6):
        split = make_split(graph, seed, "masks")
        assert split.train.tolist() == [n for n in range(12) if (n + seed % 5) % 3 == 0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_labels": None}, "path.npz has no labels"),
        ({"edges": np.zeros((2, 11), dtype=np.int64)}, "edges must have the shape [edges, 2]."),
        ({"edges": None}, "has an unknown format; use a .npz with x, y and edge_index"),
        ({"node_labels": np.array(12 * ["a"])}, CANNOT),
        ({"node_labels": np.array(12 * [None])}, CANNOT),  # a pickle
    ],
)
def test_faulty_npz(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    refused(edge_list(tmp_path / "path.npz", **changes), re.escape(sentence))


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x02.", b"\x80\x02" + 10_000 * b"("])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    for name, sentence in (
        ("x.npz", CANNOT),
        ("x.pt", "cannot be loaded|is damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, sentence)
    refused(tmp_path / "nowhere.npz", r"^There is no file .*\.$")


def test_a_bomb_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of zeros in some 16 KiB, where 8 MiB are allowed; they are not unpacked."""
    monkeypatch.setenv(own_files.MOST_GIB_VARIABLE, str(8 / 1024))
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, edges=np.zeros(2**21, dtype=np.int64))
    assert path.stat().st_size < 20 * 2**10
    sentence = "declares 0.02 GiB, more than the 0.0078125 that are allowed; set GRAPHRELU_MOST_GIB"
    tracemalloc.start()
    refused(path, sentence)
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
    monkeypatch.setenv(own_files.MOST_GIB_VARIABLE, "much")
    with pytest.raises(DataError, match=r"^GRAPHRELU_MOST_GIB must be a number \(.*'much'\)\.$"):
        load(str(path))


def ring(**fields: Any) -> Data:
    node = torch.arange(12)
    edges = to_undirected(torch.stack([node, (node + 1) % 12]))
    return Data(**{"x": torch.rand(12, 3), "edge_index": edges, "y": node % 2} | fields)


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"edge_index": EdgeIndex(torch.tensor([[0, 1], [1, 2]]))},
        {"y": (torch.arange(12) % 2).to(torch.uint16), "x": torch.nn.Parameter(torch.rand(12, 3))},
        {"x": torch.rand(3, 12).t().half(), "name": "ring", "more": [torch.rand(2).cfloat()]},
        {"x": torch.eye(12, 3).to_sparse_csr(), "edge_weight": torch.rand(24)},
    ],
)
def test_a_saved_data_object(tmp_path: Path, fields: dict[str, Any]) -> None:
    graph = load(str(saved(tmp_path / "ring.pt", ring(**fields))))
    assert graph.name == "ring.pt"
    assert type(graph.edge_index) is type(graph.x) is torch.Tensor
    assert not graph.x.requires_grad
    torch.testing.assert_close(graph.x, fields.get("x", graph.x).detach().float())
    if "edge_weight" in fields:
        assert torch.equal(graph.edge_weight, fields["edge_weight"])


class Trap:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ((torch.rand(3), None), rf"x\.pt holds a tuple{HOW}"),
        (ring(x=torch.ones(1).expand(12, 2**40)), "GiB, more than the 8 that are allowed"),
        (ring(x=SPARSE), "cannot be loaded"),
        (ring(y=[1]), rf"x\.pt cannot be loaded .*{HOW}"),
        (ring(y=torch.ones(12, 2).to_sparse()), r"x\.pt cannot be used"),
        ([ring()], r"x\.pt holds many graphs; write graphs:.*x\.pt\.$"),
    ],
)
def test_what_is_no_plain_data_object(tmp_path: Path, content: object, sentence: str) -> None:
    refused(saved(tmp_path / "x.pt", content), sentence)


def test_code_is_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    for content, prefix in ((ring(name=Trap(trap)), ""), ([ring(), Trap(trap)], "graphs:")):
        path, read = saved(tmp_path / "x.pt", content), load_graphs if prefix else load
        sentence = f"x.pt is damaged or holds more than tensors, and nothing of it was run{HOW}"
        refused(path, sentence, lambda name, read=read, prefix=prefix: read(prefix + name))
    assert not trap.exists()


def test_a_list_of_graphs(tmp_path: Path) -> None:
    path = saved(tmp_path / "rings.pt", [ring(y=torch.tensor([i % 2])) for i in range(4)])
    graphs = load_graphs(f"graphs:{path}")
    assert (graphs.name, graphs.num_graphs, graphs.num_nodes) == ("rings.pt", 4, 48)
    assert graphs.y.view(-1).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], rf"rings\.pt holds no list of graphs{HOW}"),
        (ring(), rf"rings\.pt holds no list of graphs{HOW}"),
        ([ring(), 7], rf"rings\.pt holds a int{HOW}"),
        ([Data(x=torch.eye(2))], r"rings\.pt, graph 0, has no y\.$"),
    ],
)
def test_faulty_lists_of_graphs(tmp_path: Path, content: object, sentence: str) -> None:
    path = saved(tmp_path / "rings.pt", content)
    refused(path, sentence, lambda name: load_graphs(f"graphs:{name}"))


def write_tables(
    folder: Path, edges: list[str] = EDGE_LINES, nodes: list[str] = NODE_LINES
) -> Path:
    """A ring of twelve nodes unless told otherwise."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("edges", edges), ("nodes", nodes)):
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder / "edges.csv"


def read_ring(folder: Path, header: str, *rows: str) -> Graph:
    """A ring with these nodes."""
    return load(str(write_tables(folder, nodes=[header, *rows])))


def test_numbered_nodes(tmp_path: Path) -> None:
    """Loops go, and each edge has two directions."""
    path = write_tables(tmp_path / "mine", [*EDGE_LINES, "3,3", "1,0"])
    graph = load(str(path))
    assert graph.name == "mine/edges.csv"
    assert graph.x.tolist() == [[node, node / 2] for node in range(12)]
    assert graph.y.tolist() == 6 * [0, 1]
    assert graph.edge_weight is None
    both = [pair for a, b in RING for pair in ((a, b), (b, a))]
    assert sorted(map(tuple, graph.edge_index.t().tolist())) == sorted(both)
    assert files_of(str(path)) == (path, path.with_name("nodes.csv"))


def test_named_nodes_weights_and_words(tmp_path: Path) -> None:
    """Words in their order are the classes; nothing and -1 are no label, counted in the output."""
    labels = ["tree", "bush"] * 5 + ["", "-1"]
    edges = ["U,V,Weight", *(f"n{a},n{b},{a + 1}" for a, b in RING)]
    nodes = ["id,f,label", *(f'"n{node}",1e-1,{label}' for node, label in enumerate(labels))]
    graph = load(str(path := write_tables(tmp_path, edges, nodes)))
    assert graph.y.tolist() == [1, 0] * 5 + [-1, -1]
    assert graph.edge_weight is not None
    weight = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_weight, strict=True))
    assert weight[0, 1] == weight[1, 0] == 1
    assert weight[0, 11] == weight[11, 0] == 12
    found, configs = prepare(str(path), "gcn", ["relu"], [0], deep=True)
    assert ", 2 classes, 2 nodes left out (no label)\n" in headline(found, configs[0], 1)
    write_tables(tmp_path, edges, [*nodes, "n12,0,tree"])
    _, changed = prepare(str(path), "gcn", ["relu"], [0], deep=True)
    # Another version of either table is another dataset.
    assert changed[0].dataset != configs[0].dataset


def test_a_split(tmp_path: Path) -> None:
    parts = ["1,0,0", "0,1,0", "0,0,1", "0,0,0"]
    rows = [f"{node % 2},{node},{parts[node // 2 % 4]}" for node in range(12)]
    split = from_masks(read_ring(tmp_path, "label,f,train,val,test", *rows), 0)
    assert split.train.tolist() == [0, 1, 8, 9]
    assert (split.val.tolist(), split.test.tolist()) == ([2, 3, 10, 11], [4, 5])


def test_values(tmp_path: Path) -> None:
    """Numbers that are not all whole are values; then -1 is one, too."""
    graph = read_ring(tmp_path, "label,f", *(f"{node / 2 - 1:g},1" for node in range(12)))
    assert (graph.task, graph.note) == ("values", "")
    assert graph.y.tolist() == [node / 2 - 1 for node in range(12)]
    graph = read_ring(tmp_path, "label,f", *(f"{node % 2}.0,1" for node in range(12)))
    assert graph.task == "values"
    assert graph.note == (
        "The 2 values of y are whole numbers in floating point; if they are classes, write them as "
        "integers (1, not 1.0; y.long())."
    )


@pytest.mark.parametrize("header", ["u,v", "node1,node2", "s,t", "Source,Target"])
def test_any_header_of_the_edges(tmp_path: Path, header: str) -> None:
    assert load(str(write_tables(tmp_path, [header, *EDGE_LINES]))).num_edges == 24


def nodes_with(line: str, header: str = "label,f") -> list[str]:
    return [header, *(f"{node % 2},1" for node in range(12)), line]


FAULTY_NODES = [
    ([], "nodes.csv cannot be read as a table .*"),
    (["0,1", "1,2"], NAMES),
    (["label,f,f", "0,1,2"], "nodes.csv has two columns with the same name"),
    (nodes_with("0,1,2"), "Expected 2 fields in line 14, .*"),
    (nodes_with("0,nan"), "nodes.csv, line 14: f must hold numbers, not 'nan'"),
    (nodes_with("0"), "nodes.csv, line 14: f must hold numbers, not ''"),
    (nodes_with("0,1e99"), "the features contain NaN or infinite values"),
    (nodes_with("0,1", "label,id"), "nodes.csv names a node twice"),
    ([*nodes_with("0.5,1"), ",1"], "y must hold finite values, not NaN .*"),
    (nodes_with("0,1", "label,label_b"), "nodes.csv: label_b would be a feature; name it .*"),
    (nodes_with("0,yes", "label,train"), "train must hold 0 and 1 only, not 'yes'"),
    (nodes_with("0,1", "label,val_0"), "nodes.csv: val_0 would be a feature; name it otherwise"),
]


@pytest.mark.parametrize(
    ("edges", "nodes", "sentence"),
    [
        *((edges, NODE_LINES, said) for edges, said in FAULTY_EDGES),
        *((EDGE_LINES, nodes, said) for nodes, said in FAULTY_NODES),
    ],
)
def test_faults_of_tables_cost_one_sentence(
    tmp_path: Path, edges: list[str], nodes: list[str], sentence: str
) -> None:
    with pytest.raises(DataError, match=rf"{sentence}\.$") as caught:
        load(str(write_tables(tmp_path, edges, nodes)))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = write_tables(tmp_path)
    for name in ("graph.gml", "graph.csv"):
        (tmp_path / name).write_text("graph []")
    for gone in ("nodes.csv", "edges.csv"):
        (tmp_path / gone).unlink()
        with pytest.raises(DataError, match=rf"^There is no file .*{gone}\.$"):
            load(str(path))
    for name, sentence in (
        ("graph.csv", r"graph\.csv has no column smiles; a table of edges must "),
        ("", r"has an unknown format; use a \.npz with .*\.$"),
        ("graph.gml", r"gml has an unknown format; use a \.npz .*\.$"),
    ):
        with pytest.raises(DataError, match=sentence):
            load(str(tmp_path / name))


def molecules_file(path: Path, *rows: str) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_graphs_are_those_of_pyg(tmp_path: Path) -> None:
    rows = [f"{smiles},{i / 2}" for i, smiles in enumerate(SMILES)]
    name = molecules_file(tmp_path / "some.csv", "SMILES,value", *rows)
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
    molecules = load_graphs(molecules_file(tmp_path / "gaps.csv", "smiles,a,b", *rows))
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
    split = load_graphs(
        molecules_file(tmp_path / "a.csv", "smiles,y", *rows), split="scaffold"
    ).split
    assert split is not None
    # Fourteen molecules without a ring, four with benzene's, two with cyclohexane's.
    assert split.tolist() == [int(smiles.startswith("c1")) for smiles in 2 * SMILES]


@pytest.mark.parametrize(("header", "rows", "arguments", "sentence"), BAD)
def test_bad_files_get_one_sentence(
    header: str, rows: list[str], arguments: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as raised:
        load_graphs(molecules_file(tmp_path / "bad.csv", header, *rows), **arguments)  # type: ignore[arg-type]
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"smiles,y\nC,1\n", CUT_OFF])
def test_damaged_tables_of_molecules(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(content)
    assert holds_graphs(str(path))
    with pytest.raises(DataError, match=r"bad\.csv\.gz cannot be read as a table \(.*\)\.$"):
        load_graphs(str(path))


def test_a_table_of_molecules_and_one_of_edges(tmp_path: Path) -> None:
    """A column of SMILES makes the difference."""
    name = molecules_file(tmp_path / "edges.csv", '"smiles","a b"', '"C",1', '"CC",2')
    assert files_of(name) == (Path(name),)
    assert load_graphs(name).targets == ("a b",)
    with pytest.raises(DataError, match=r"edges\.csv holds many graphs; choose a dataset of one"):
        load(name)
    assert not holds_graphs(molecules_file(tmp_path / "edges.csv", "source,target", "0,1"))


def test_without_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrelu.lab.data.own_files.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"^esol\.csv needs RDKit; install it with: pip install '"):
        load_graphs("esol")
