"""Sets of graphs: read as PyG reads them, counted, checked, and said in a sentence if broken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphrelu.lab.data import Counts, check_counts, holds_graphs, load, load_graphs
from graphrelu.lab.data.graph import DataError
from graphrelu.lab.data.graph_set import graph_set
from tests.lab.graph_sets import rings_and_paths


def write_tu(raw: Path, name: str = "TINY") -> None:
    """Ten triangles and ten paths of three nodes, with a self-loop and a repeated edge."""
    raw.mkdir(parents=True, exist_ok=True)
    pairs, owner, labels = [(1, 1), (1, 2)], [], []
    for graph in range(20):
        first = 3 * graph + 1
        ring = [(0, 1), (1, 2), (2, 0)][: 3 if graph < 10 else 2]
        pairs += [(first + a, first + b) for a, b in ring]
        pairs += [(first + b, first + a) for a, b in ring]
        owner += [graph + 1] * 3
        labels += [4, 5 + graph % 2, 4]
    parts = {
        "A": [f"{a}, {b}" for a, b in pairs],
        "graph_indicator": owner,
        "node_labels": labels,
        "graph_labels": [1] * 10 + [-1] * 10,
    }
    for part, lines in parts.items():
        (raw / f"{name}_{part}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_read_as_pyg_does(tmp_path: Path) -> None:
    raw = tmp_path / "TUDataset" / "TINY" / "raw"
    write_tu(raw)
    found = load_graphs("pyg:TUDataset/TINY", tmp_path)
    assert (found.num_graphs, found.num_nodes, found.num_edges) == (20, 60, 100)
    assert (found.num_features, found.num_classes) == (3, 2)
    assert found.y.tolist() == [1] * 10 + [0] * 10
    assert list(raw.parent.iterdir()) == [raw]
    (raw / "TINY_A.txt").write_bytes(b"1, 999\n")
    with pytest.raises(DataError, match=r"^PyG cannot load TUDataset/TINY"):
        load_graphs("pyg:TUDataset/TINY", tmp_path)


def test_features_where_there_are_no_labels(tmp_path: Path) -> None:
    raw = tmp_path / "TUDataset" / "TINY" / "raw"
    write_tu(raw)
    labels = raw / "TINY_node_labels.txt"
    labels.rename(raw / "TINY_node_attributes.txt")
    assert load_graphs("pyg:TUDataset/TINY", tmp_path).x[:3].tolist() == [[4.0], [5.0], [4.0]]
    (raw / "TINY_node_attributes.txt").unlink()
    assert load_graphs("pyg:TUDataset/TINY", tmp_path).x.tolist() == [[1.0]] * 60


@pytest.mark.parametrize(("name", "sizes"), [("mutag", [63, 125]), ("proteins", [663, 450])])
def test_the_papers_sets(real_root: Path, name: str, sizes: list[int]) -> None:
    graphs = load_graphs(name.upper(), real_root)
    assert (graphs.name, graphs.y.bincount().tolist()) == (name, sizes)


def test_wrong_counts() -> None:
    graphs = rings_and_paths(30)
    counts = Counts(graphs.num_nodes, graphs.num_edges, 3, 2)
    check_counts(graphs, counts, (20, 10))
    with pytest.raises(
        DataError, match=r"^rings has 20 and 10 graphs of .* instead of 1 and 29\.$"
    ):
        check_counts(graphs, counts, (1, 29))


def test_digit_graphs() -> None:
    graphs = load_graphs("digit-graphs")
    assert graphs.y.bincount().tolist() == [20] * 10
    ink, place = graphs.x[:, 0], graphs.x[:, 1:]
    assert 0 < ink.min() <= ink.max() == 1
    assert place.sum(dim=1).eq(2).all()
    row, col = place[:, :8].argmax(dim=1), place[:, 8:].argmax(dim=1)
    source, target = graphs.edge_index
    apart = (row[source] - row[target]).abs() + (col[source] - col[target]).abs()
    assert apart.eq(1).all()


def test_names() -> None:
    assert holds_graphs("MUTAG")
    assert holds_graphs("pyg:TUDataset/ENZYMES")
    assert not holds_graphs("cora")
    with pytest.raises(DataError, match="mutag holds many graphs; choose a dataset of one graph"):
        load("mutag")
    with pytest.raises(DataError, match="There is no set of graphs 'cora'; known are digit-graphs"):
        load_graphs("cora")


def test_broken_sets() -> None:
    good = rings_and_paths(30)
    x, edge_index, sizes, y = good.x, good.edge_index, good.node_ptr.diff(), good.y
    first, node = int(sizes[0]), torch.arange(30)
    cases = {
        "has features of 5 nodes": (x[:5], edge_index, sizes, y),
        "the features must be a real matrix": (x[:, 0], edge_index, sizes, y),
        "an edge joins two graphs": (x, torch.tensor([[0], [first]]), sizes, y),
        "an edge names node 999": (x, torch.tensor([[0], [999]]), sizes, y),
        "graph 1 has no nodes": (x, edge_index, sizes * (node != 1), y),
        "has 29 labels for 30 graphs": (x, edge_index, sizes, y[:-1]),
        "graph 3 has no label": (x, edge_index, sizes, y.where(node != 3, -1)),
        "one class or one value": (x, edge_index, sizes, torch.stack([y, y], dim=1)),
        r"not NaN or infinite ones\.$": (x, edge_index, sizes, y / torch.zeros(30)),
        "y is the same for all graphs": (x, edge_index, sizes, torch.ones(30)),
    }
    for sentence, parts in cases.items():
        with pytest.raises(DataError, match=sentence):
            graph_set(*parts, "broken")
