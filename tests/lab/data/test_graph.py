"""Every graph, and set of graphs, is checked before it is used, and each fault has its sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import ZINC

from graphrelu.lab.data import GraphSet, files_of, holds_graphs, load, load_graphs
from graphrelu.lab.data.graph import from_data
from graphrelu.lab.data.splits import split_of
from graphrelu.lab.errors import DataError
from tests.lab.molecule_sets import ring_set

NAN = torch.full((12, 3), float("nan"))
LABELS = torch.arange(12) % 2
NOT_FINITE = ": the features contain NaN or infinite values."
NEGATIVE = "contains negative indices in 'Data' (found -1))."
EDGES = " has faulty edges ('edge_index' "
SHAPE = "needs to be of shape [2, num_edges] in 'Data' (found torch.Size([3, 2])))."
LARGER = "contains larger indices than the number of nodes (12) in 'Data' (found 12))."
SHAPES = (
    ": y must hold a class or a value of each node [nodes], or 0 and 1 for each of its labels "
    "[nodes, labels]."
)
MATRIX = (
    ": a y of several columns must hold only 0 and 1, or -1 in the whole row of a node without "
    "labels."
)
FINITE = (
    ": y must hold finite values, not NaN or infinite ones; masks can leave a node without a "
    "value out."
)
SAME = ": y is the same for all nodes, so there is nothing to learn."
GAPS = ": the labels of 2 classes must run from 0 to 1 without gaps, but the largest is 2."
Tree = Callable[[Path], dict[str, tuple[int, int]]]
PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def test_a_sound_graph(ring: Data) -> None:
    ring.train_mask = torch.arange(12) < 4
    ring.val_mask = torch.zeros(12, 5, dtype=torch.uint8)
    ring.y[0] = -1
    ring.y = ring.y.view(-1, 1).to(torch.int32)
    ring.edge_weight = torch.ones(24, 1, dtype=torch.float64)
    graph = from_data(ring, "ring")
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (12, 24, 3)
    assert (graph.num_classes, graph.name) == (2, "ring")
    assert (graph.y.shape, graph.y.dtype, int(graph.y[0])) == ((12,), torch.int64, -1)
    assert graph.num_unlabelled == 1
    assert graph.x.dtype == torch.float32
    assert graph.val_mask is not None
    assert graph.val_mask.dtype == torch.bool
    assert graph.test_mask is None
    assert graph.edge_weight is not None
    assert (graph.edge_weight.shape, graph.edge_weight.dtype) == ((24,), torch.float32)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("x", None, " has no node features (x is missing)."),
        (
            "x",
            torch.ones(12),
            ": the features must be a real matrix [nodes, features], not empty.",
        ),
        ("x", NAN, NOT_FINITE),
        ("x", NAN.to_sparse(), NOT_FINITE),
        ("edge_index", None, " has no edges (edge_index is missing)."),
        ("edge_index", torch.zeros(3, 2).long(), f"{EDGES}{SHAPE}"),
        ("edge_index", torch.zeros(2, 3), ": edge_index must hold integers, not torch.float32."),
        ("edge_index", torch.tensor([[0], [12]]), f"{EDGES}{LARGER}"),
        (
            "edge_index",
            torch.tensor([[0], [-1]]),
            f"{EDGES}{NEGATIVE}",
        ),
        ("edge_weight", torch.ones(3), ": edge_weight must hold one number for each of 24 edges."),
        ("edge_weight", -torch.ones(24), ": the edge weights must be finite and not negative."),
        ("y", None, " has no labels (y is missing)."),
        ("y", -torch.ones(12).long(), " has no labels (every y is negative)."),
        ("y", LABELS[:10], " has 10 labels for 12 nodes."),
        ("y", torch.ones(12, 2, 2), SHAPES),
        ("y", torch.ones(12) * 1j, SHAPES),
        ("y", torch.arange(24).view(12, 2), MATRIX),
        ("y", NAN, MATRIX),
        ("y", torch.ones(12, 2).bool(), SAME),
        ("y", -torch.ones(12, 2), SAME),
        ("y", torch.full((12,), 0.5), SAME),
        ("y", NAN[:, :1], FINITE),
        ("y", 1 / LABELS.float(), FINITE),
        ("y", 0 * LABELS, ": all labelled nodes have one class, so there is nothing to learn."),
        ("y", 2 * LABELS, GAPS),
        ("val_mask", LABELS[:5].bool(), ": val_mask must have the shape [12] or [12, splits]."),
        ("test_mask", torch.arange(12), ": test_mask must hold only true and false."),
    ],
)
def test_each_fault_has_its_sentence(
    ring: Data, key: str, value: torch.Tensor | None, sentence: str
) -> None:
    ring[key] = value
    with pytest.raises(DataError) as caught:
        from_data(ring, "ring")
    assert str(caught.value) == f"ring{sentence}"
    with pytest.raises(DataError, match="ring is a HeteroData, not a PyG Data object"):
        from_data(HeteroData(), "ring")


def test_sparse_features_stay_sparse(ring: Data) -> None:
    dense = ring.x
    ring.x = dense.to_sparse()
    graph = from_data(ring, "ring")
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.to_dense(), dense)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.uint16, torch.long, torch.float])
def test_the_task_is_in_the_labels(ring: Data, dtype: torch.dtype) -> None:
    several = torch.stack([LABELS, 1 - LABELS, LABELS], dim=1)
    ring.y = several.to(dtype)
    graph = from_data(ring, "ring")
    assert (graph.task, graph.num_classes, graph.num_unlabelled) == ("labels", 3, 0)
    assert torch.equal(graph.y, several.float())
    ring.y = LABELS.to(dtype)
    graph = from_data(ring, "ring")
    expected = ("values", 1) if dtype == torch.float else ("classes", 2)
    assert (graph.task, graph.num_classes) == expected


def test_nodes_without_labels_and_values_below_zero(ring: Data) -> None:
    ring.y = torch.stack([LABELS, 1 - LABELS], dim=1)
    ring.y[3] = -1
    graph = from_data(ring, "ring")
    assert graph.num_unlabelled == 1
    assert graph.strata.tolist() == [0, 0, 0, -1, *8 * [0]]
    ring.y = -torch.arange(12.0).view(12, 1)
    graph = from_data(ring, "ring")
    assert graph.num_unlabelled == 0
    assert graph.y.tolist() == [-node for node in range(12)]


def paths(y: Tensor, **fields: Any) -> list[Data]:
    """A path of three nodes for each row of y."""
    return [
        Data(**{"x": torch.tensor([[0], [4], [i % 3]]), "edge_index": PATH, "y": row} | fields)
        for i, row in enumerate(y)
    ]


def test_graphs_of_pyg() -> None:
    graphs = paths(torch.tensor([2, 0]).view(-1, 1))
    graphs[1] = Data(torch.tensor([[3]]), torch.tensor([[0], [0]]), y=torch.tensor([0]))
    found = GraphSet.from_data("two", graphs)
    assert (found.task, found.num_classes, found.num_graphs) == ("classes", 3, 2)
    assert (found.num_nodes, found.num_edges, found.num_features) == (4, 4, 1)
    assert (found.nodes.sizes, found.edges.sizes) == ((5,), (1,))
    assert found.nodes.table[found.nodes.kind].view(-1).tolist() == [0, 4, 0, 3]
    assert found.edge_count.tolist() == [4, 0]  # without the self-loop
    attr = torch.rand(4)
    graphs = paths(torch.rand(2, 1, 2), x=torch.rand(3, 2), edge_attr=attr)
    found = GraphSet.from_data("values", graphs)
    assert found.nodes.sizes == ()
    torch.testing.assert_close(found.nodes.table[found.nodes.kind][:3], graphs[0].x)
    torch.testing.assert_close(found.edges.table[found.edges.kind].view(-1)[:4], attr)


@pytest.mark.parametrize(
    ("y", "task", "outputs"),
    [
        (torch.tensor([[0], [1]]), "classes", 2),
        (torch.tensor([[[0]], [[1]]]), "labels", 1),
        (torch.tensor([[[0]], [[2]]]), "classes", 3),
        (torch.tensor([[[0, 1]], [[1, 1]]]), "labels", 2),
        (torch.tensor([[1.0], [torch.nan], [0.0]]), "labels", 1),
        (torch.tensor([[0.5], [1.0]]), "values", 1),
    ],
)
def test_the_task_is_in_the_shape_and_type_of_y(y: Tensor, task: str, outputs: int) -> None:
    """A whole number of shape [1] is a class, as in PyG; [1, 1] is one label, as in OGB."""
    found = GraphSet.from_data("set", paths(y))
    assert (found.task, found.num_classes) == (task, outputs)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"edge_index": PATH[:, :1]}, "set: the graphs must be undirected."),
        ({"edge_index": PATH + 1}, "set, graph 1 has faulty edges ('edge_index' contains larger"),
        ({"edge_index": None}, "set, graph 1 has no edges (edge_index is missing)."),
        ({"x": None}, "set, graph 1, has no x."),
        ({"x": torch.ones(0, 1), "edge_index": PATH[:, :0]}, "set, graph 1, has no nodes."),
        ({"x": torch.ones(3, 2).long()}, "set: x, edge_attr and y must have as many columns in"),
        ({"x": torch.ones(3, 1, 1)}, "set: x, edge_attr and y must have as many columns in each"),
        ({"x": torch.tensor([[0], [-1], [2]])}, "set: x must not be negative."),
        ({"x": torch.tensor([[0], [1], [2**40]])}, "set: x holds whole numbers up to 1,099,511,6"),
        ({"edge_attr": torch.ones(3, 1).long()}, "must have a row of edge_attr for each edge."),
        ({"y": None}, "set, graph 1, has no y."),
        ({"y": torch.tensor([0, 1])}, "set: x, edge_attr and y must have as many columns in each"),
        ({"x": torch.full((3, 1), torch.nan)}, "set: x contains NaN or infinite values."),
        ({"y": torch.tensor([torch.inf])}, "set: y contains infinite values."),
        ({"y": torch.tensor([-1])}, "set, graph 1, has no class (y is negative)."),
        ({"y": torch.tensor([2])}, "set: y is the same for all graphs, so there is nothing"),
    ],
)
def test_each_fault_of_a_set_has_its_sentence(
    change: dict[str, Tensor | None], sentence: str
) -> None:
    graphs = paths(torch.tensor([[2], [0]]))
    for key, value in change.items():
        graphs[1][key] = value
    with pytest.raises(DataError) as raised:
        GraphSet.from_data("set", graphs)
    assert sentence in str(raised.value)


def parts(graphs: GraphSet, seed: int, how: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    split = split_of(graphs, seed, how)
    return split.train, split.val, split.test


def classes(*sizes: int) -> GraphSet:
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return GraphSet.from_data("set", paths(y.view(-1, 1)))


def test_random_parts() -> None:
    """They depend on the seed alone, and keep classes in proportion."""
    for graphs in (replace(ring_set(200, values=True), split=None), classes(50, 150)):
        first, again, other = (parts(graphs, seed) for seed in (0, 0, 1))
        assert [*map(len, first)] == [160, 20, 20]
        assert torch.cat(first).sort().values.equal(torch.arange(200))
        assert all(map(torch.equal, first, again))
        assert not torch.equal(first[2], other[2])
    counts = [graphs.y[part].view(-1).bincount().tolist() for part in other]
    assert counts == [[40, 120], [5, 15], [5, 15]]


def test_folds() -> None:
    """Each graph is tested once; the fold for validation is the next one for testing."""
    graphs = classes(30, 70)
    folds = [parts(graphs, seed, "folds") for seed in range(10, 20)]
    assert torch.cat([test for *_, test in folds]).sort().values.equal(torch.arange(100))
    for (train, val, test), (*_, following) in zip(folds, folds[1:] + folds[:1], strict=True):
        assert graphs.y[train].view(-1).bincount().tolist() == [24, 56]
        assert torch.equal(val, following)
        assert len(test) == 10
    assert not torch.equal(folds[0][2], parts(graphs, 0, "folds")[2])
    values = replace(ring_set(40, values=True), split=None)
    assert [*map(len, parts(values, 0, "folds"))] == [32, 4, 4]


def test_a_seed_is_a_split_on_every_machine() -> None:
    """Numbers written down once: a change would make results incomparable."""
    graphs, values = classes(30, 70), replace(ring_set(40, values=True), split=None)
    for begins, found in (
        ([[0, 1, 3, 5], [4, 16, 27, 31], [2, 25, 28, 43]], parts(graphs, 13, "folds")),
        ([[0, 1, 2, 4], [10, 24, 25, 51], [3, 8, 28, 37]], parts(graphs, 3)),
        ([[0, 1, 2, 3], [8, 17, 22, 35], [5, 20, 23, 29]], parts(values, 3, "folds")),
        ([[1, 2, 4, 6], [0, 3, 27, 34], [5, 11, 15, 16]], parts(values, 3)),
    ):
        assert [part[:4].tolist() for part in found] == begins


@pytest.mark.parametrize(
    ("graphs", "how", "sentence"),
    [
        (classes(30, 9), "folds", r"Class 1 has fewer than 10 graphs \(9\), too few for 10 folds"),
        (classes(30, 1), "random", r"set cannot be split \(The least populated class"),
        (classes(9, 9), "column", "leaves the train part empty"),
        (replace(ring_set(), split=torch.zeros(30)), None, "leaves the val part empty"),
        (replace(ring_set(3), y=torch.ones(3, 1)), None, "the train part has one class only, in"),
        (
            replace(ring_set(6), y=torch.tensor([0.5, 1, torch.nan] * 2).view(-1, 1)),
            None,
            "no target is known in the test part",
        ),
    ],
)
def test_sets_that_cannot_be_split(graphs: GraphSet, how: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"{sentence}.*\.$"):
        parts(graphs, 0, how)


def test_names() -> None:
    for name in ("MUTAG", "pyg:TUDataset/ENZYMES", "ogbg-molhiv", "graphs:x.pt"):
        assert holds_graphs(name), name
    for name in ("cora", "pyg:Amazon/Photo", "edges.csv", "x.npz", "csbm:degree=3"):
        assert not holds_graphs(name), name
    assert files_of("ogbg-molhiv") == ()
    with pytest.raises(DataError, match="mutag holds many graphs; choose a dataset of one graph"):
        load("mutag")
    with pytest.raises(DataError, match=r"no dataset 'protein' \(did you mean proteins"):
        load_graphs("protein")
    for split, sentence in (
        ("time", "There is no split 'time' of graphs"),
        ("scaffold", "sets: has no SMILES to find scaffolds in"),
        ("column", "sets: has no split of its own; choose random or folds"),
    ):
        with pytest.raises(DataError, match=sentence):
            load_graphs("sets:", split=split)  # type: ignore[arg-type]


def test_esol_needs_no_download() -> None:
    esol = load_graphs("esol")
    assert (esol.name, esol.num_graphs, esol.task) == ("esol", 1128, "values")


@pytest.mark.parametrize(("name", "sizes"), [("mutag", [63, 125]), ("proteins", [663, 450])])
def test_the_papers_sets(real_root: Path, name: str, sizes: list[int], tree: Tree) -> None:
    """They have the counts of the table, or would not load; nothing is written beside them."""
    before = tree(real_root / "TUDataset")
    graphs = load_graphs(name.upper(), real_root)
    assert (graphs.name, graphs.y.view(-1).bincount().tolist()) == (name, sizes)
    assert (graphs.nodes.table.sum(dim=1) == 1).all()  # one-hot
    assert tree(real_root / "TUDataset") == before


def write_tu(raw: Path) -> None:
    """Ten triangles and ten paths of three nodes, with a self-loop and a repeated edge."""
    raw.mkdir(parents=True)
    pairs = [(1, 1), (1, 2)]
    for graph in range(20):
        first = 3 * graph + 1
        ring = [(0, 1), (1, 2), (2, 0)][: 3 if graph < 10 else 2]
        pairs += [(first + a, first + b) for a, b in ring]
        pairs += [(first + b, first + a) for a, b in ring]
    parts = {
        "A": [f"{a}, {b}" for a, b in pairs],
        "graph_indicator": [graph + 1 for graph in range(20) for _ in range(3)],
        "node_labels": 10 * [4, 5, 4, 4, 6, 4],
        "graph_labels": [1] * 10 + [-1] * 10,
    }
    for part, lines in parts.items():
        (raw / f"TINY_{part}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_tu_datasets(tmp_path: Path) -> None:
    """The features are the node labels; where there are none, the attributes; else 1."""
    raw = tmp_path / "TUDataset" / "TINY" / "raw"
    write_tu(raw)
    found = load_graphs("pyg:TUDataset/TINY", tmp_path)
    assert (found.num_graphs, found.num_nodes, found.num_edges) == (20, 60, 100)
    assert (found.num_features, found.num_classes) == (3, 2)
    assert found.y.view(-1).tolist() == [1] * 10 + [0] * 10
    assert list(raw.parent.iterdir()) == [raw]
    labels = raw / "TINY_node_labels.txt"
    labels.rename(raw / "TINY_node_attributes.txt")
    nodes = load_graphs("pyg:TUDataset/TINY", tmp_path).nodes
    assert nodes.table[nodes.kind][:3].tolist() == [[4.0], [5.0], [4.0]]
    (raw / "TINY_node_attributes.txt").unlink()
    assert load_graphs("pyg:TUDataset/TINY", tmp_path).nodes.table.tolist() == [[1.0]]
    (raw / "TINY_A.txt").write_bytes(b"1, 999\n")
    with pytest.raises(DataError, match=r"^PyG cannot load TUDataset/TINY"):
        load_graphs("pyg:TUDataset/TINY", tmp_path)


def test_datasets_of_pyg_keep_their_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are read one after another, and processed once."""
    sizes, processed = {"train": 6, "val": 3, "test": 2}, []

    def process(self: InMemoryDataset) -> None:
        processed.append(self)
        for part, size in sizes.items():
            y = torch.arange(size).view(-1, 1) / 2
            self.save(paths(y), str(Path(self.processed_dir, f"{part}.pt")))

    monkeypatch.setattr(ZINC, "download", lambda self: None)
    monkeypatch.setattr(ZINC, "process", process)
    graphs = load_graphs("pyg:ZINC", tmp_path)
    assert [*map(len, parts(graphs, 0))] == [6, 3, 2]
    assert graphs.y.view(-1)[:7].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 0]
    assert len(processed) == 1
    assert graphs.nodes.sizes == (5,)
    assert [*map(len, parts(graphs, 0, "random"))] == [8, 1, 2]
