"""A graph as two tables of text: what is read, and one sentence for what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrelu.lab.cli.compare import prepare
from graphrelu.lab.data import Graph, files_of, load
from graphrelu.lab.data.splits import from_masks
from graphrelu.lab.errors import DataError
from graphrelu.lab.render import headline

RING = [(node, (node + 1) % 12) for node in range(12)]
EDGES = [f"{a},{b}" for a, b in RING]
NODES = ["label,age,size", *(f"{node % 2},{node},{node / 2}" for node in range(12))]


def write(folder: Path, edges: list[str] = EDGES, nodes: list[str] = NODES) -> Path:
    """A ring of twelve nodes unless told otherwise."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("edges", edges), ("nodes", nodes)):
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder / "edges.csv"


def read(folder: Path, header: str, *rows: str) -> Graph:
    """A ring with these nodes."""
    return load(str(write(folder, nodes=[header, *rows])))


def test_numbered_nodes(tmp_path: Path) -> None:
    """Loops go, and each edge has two directions."""
    path = write(tmp_path / "mine", [*EDGES, "3,3", "1,0"])
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
    graph = load(str(path := write(tmp_path, edges, nodes)))
    assert graph.y.tolist() == [1, 0] * 5 + [-1, -1]
    assert graph.edge_weight is not None
    weight = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_weight, strict=True))
    assert weight[0, 1] == weight[1, 0] == 1
    assert weight[0, 11] == weight[11, 0] == 12
    found, configs = prepare(str(path), "gcn", ["relu"], [0], deep=True)
    assert ", 2 classes, 2 nodes left out (no label)\n" in headline(found, configs[0], 1)
    write(tmp_path, edges, [*nodes, "n12,0,tree"])
    _, changed = prepare(str(path), "gcn", ["relu"], [0], deep=True)
    # Another version of either table is another dataset.
    assert changed[0].dataset != configs[0].dataset


def test_a_split(tmp_path: Path) -> None:
    parts = ["1,0,0", "0,1,0", "0,0,1", "0,0,0"]
    rows = [f"{node % 2},{node},{parts[node // 2 % 4]}" for node in range(12)]
    split = from_masks(read(tmp_path, "label,f,train,val,test", *rows), 0)
    assert split.train.tolist() == [0, 1, 8, 9]
    assert (split.val.tolist(), split.test.tolist()) == ([2, 3, 10, 11], [4, 5])


def test_values(tmp_path: Path) -> None:
    """Numbers that are not all whole are values; then -1 is one, too."""
    graph = read(tmp_path, "label,f", *(f"{node / 2 - 1:g},1" for node in range(12)))
    assert (graph.task, graph.note) == ("values", "")
    assert graph.y.tolist() == [node / 2 - 1 for node in range(12)]
    graph = read(tmp_path, "label,f", *(f"{node % 2}.0,1" for node in range(12)))
    assert graph.task == "values"
    assert graph.note == (
        "The 2 values of y are whole numbers in floating point; if they are classes, write them as "
        "integers (1, not 1.0; y.long())."
    )


@pytest.mark.parametrize("header", ["u,v", "node1,node2", "s,t", "Source,Target"])
def test_any_header_of_the_edges(tmp_path: Path, header: str) -> None:
    assert load(str(write(tmp_path, [header, *EDGES]))).num_edges == 24


def nodes_with(line: str, header: str = "label,f") -> list[str]:
    return [header, *(f"{node % 2},1" for node in range(12)), line]


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
        *((edges, NODES, said) for edges, said in FAULTY_EDGES),
        *((EDGES, nodes, said) for nodes, said in FAULTY_NODES),
    ],
)
def test_faults_cost_one_sentence(
    tmp_path: Path, edges: list[str], nodes: list[str], sentence: str
) -> None:
    with pytest.raises(DataError, match=rf"{sentence}\.$") as caught:
        load(str(write(tmp_path, edges, nodes)))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = write(tmp_path)
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
