"""The user's own files, and the embedded digits."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.io import read_npz as pyg_read_npz
from torch_geometric.utils import is_undirected

from graphrelu.lab.data import DataError, load
from graphrelu.lab.data.splits import make_split

MakeNpz = Callable[..., Path]
NODE = np.arange(12)
MASKS = np.stack([(NODE + split) % 3 == 0 for split in range(5)])
EDGES = np.stack([NODE[:-1], NODE[1:]], axis=1)
CANNOT = "cannot be read as an .npz file"


def test_npz_agrees_with_pyg(make_npz: MakeNpz) -> None:
    path = make_npz()
    graph, expected = load(str(path)), pyg_read_npz(str(path))
    assert graph.name == "ring.npz"
    assert graph.family == "other"
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert torch.equal(graph.y, expected.y)
    assert graph.num_edges == 24  # twelve undirected edges, no self-loops
    assert graph.x.layout == torch.sparse_csr
    # PyG sets every positive feature to one, here the values are kept.
    assert torch.equal((graph.x.to_dense() > 0).float(), expected.x)
    assert graph.x.values().tolist() == [float(n + 1) for n in range(12)]


def test_npz_with_dense_features_and_masks(make_npz: MakeNpz) -> None:
    sparse = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
    features = np.arange(24.0).reshape(12, 2)
    mask = np.arange(12) < 3
    graph = load(str(make_npz(drop=sparse, attr_matrix=features, train_mask=mask)))
    assert graph.x.layout == torch.strided
    assert torch.equal(graph.x, torch.arange(24.0).view(12, 2))
    assert graph.train_mask is not None
    assert int(graph.train_mask.sum()) == 3


def test_npz_with_unsorted_and_repeated_entries(make_npz: MakeNpz) -> None:
    columns = np.arange(12) % 3
    columns[:3] = [2, 0, 2]
    graph = load(str(make_npz(attr_indices=columns, attr_indptr=np.array([0] + 11 * [3] + [12]))))
    assert graph.x.to_dense()[0].tolist() == [2.0, 0.0, 4.0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"drop": ("adj_indptr",)}, "lacks adj_indptr."),
        ({"drop": ("labels",)}, "has no labels"),
        ({"drop": ("attr_data",)}, "has no node features"),
        ({"drop": ("attr_shape",)}, "lacks attr_shape."),
        ({"labels": np.array(12 * ["a"])}, CANNOT),
        ({"adj_indices": np.full(24, 12)}, f"{CANNOT} (indices must be < 12)"),
        ({"attr_indices": np.full(12, -1)}, f"{CANNOT} (indices must be >= 0)"),
        ({"attr_shape": np.array([11, 3]), "attr_indptr": np.arange(12)}, "has 12 labels for 11"),
        ({"attr_data": np.full(12, 1e300)}, "the features contain NaN or infinite"),
        ({"attr_data": np.full(12, 1j)}, CANNOT),
        ({"attr_data": np.ones((12, 1))}, CANNOT),
        (
            {"attr_indices": np.full(12, 0.5)},
            "attr_indices, attr_indptr, attr_shape must hold whole numbers.",
        ),
        ({"attr_shape": np.array(12)}, CANNOT),
        ({"attr_shape": np.array([12])}, CANNOT),
        ({"attr_shape": np.array([-1, 3])}, CANNOT),
        ({"train_mask": np.ones((3, 12))}, "train_mask must have the shape [12]"),
        # Differences of unsigned numbers wrap around: four billion of the second row, it seems.
        ({"attr_indptr": np.array([0, 5, 2, *range(3, 13)], dtype=np.uint32)}, CANNOT),
    ],
)
def test_faulty_npz(make_npz: MakeNpz, change: dict[str, object], sentence: str) -> None:
    path = make_npz(**change)
    with pytest.raises(DataError, match=re.escape(sentence)) as caught:
        load(str(path))
    assert "ring.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def edge_list(path: Path, **changes: Any) -> str:
    """A path of twelve nodes as the heterophilous graphs are stored; each edge is there once."""
    arrays = {
        "node_features": np.eye(12, 4, dtype=np.float32),
        "node_labels": NODE % 2,
        "edges": EDGES,
        "train_masks": MASKS,
        "val_masks": np.roll(MASKS, 1, axis=1),
        "test_masks": np.roll(MASKS, 2, axis=1),
    }
    kept = {key: value for key, value in (arrays | changes).items() if value is not None}
    np.savez(path, **kept)
    return str(path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train_masks": MASKS.T},
        {"edges": np.concatenate([EDGES, EDGES[:, ::-1], [[3, 3]]])},  # both directions, and a loop
    ],
)
def test_npz_with_a_list_of_edges(tmp_path: Path, changes: dict[str, Any]) -> None:
    graph = load(edge_list(tmp_path / "path.npz", **changes))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (12, 22, 4)
    assert is_undirected(graph.edge_index, num_nodes=12)
    assert torch.equal(graph.y, torch.arange(12) % 2)
    for seed in range(7):
        split = make_split(graph, seed, "masks")
        assert split.train.tolist() == [n for n in range(12) if (n + seed % 5) % 3 == 0]
        assert split.note == f"the graph's own masks, split {seed % 5 + 1} of 5"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node_labels": None, "node_features": None}, "has no node features (x is missing)"),
        ({"edges": np.zeros((2, 11), dtype=np.int64)}, "edges must have the shape [edges, 2]."),
        ({"edges": np.full((3, 2), 12)}, "an edge names node 12, but the 12 nodes are numbered"),
        ({"edges": np.zeros((3, 2))}, "edge_index must hold integers"),
        ({"node_features": np.ones((11, 4))}, "has 12 labels for 11 nodes"),
        ({"train_masks": np.ones((5, 11), dtype=bool)}, "train_mask must have the shape [12]"),
    ],
)
def test_faulty_lists_of_edges(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        load(edge_list(tmp_path / "path.npz", **changes))
    assert sentence in str(caught.value)
    assert "path.npz" in str(caught.value)


def test_damaged_files_are_named(make_npz: MakeNpz, tmp_path: Path) -> None:
    path = make_npz()
    one_array = io.BytesIO()
    np.save(one_array, np.arange(3))
    for content, sentence in (
        (path.read_bytes()[:-200], r"ring\.npz cannot be read as an \.npz file"),
        (b"", r"ring\.npz cannot be read"),
        (one_array.getvalue(), "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=sentence):
            load(str(path))
    for name in ("nowhere.npz", "nowhere.pt"):
        with pytest.raises(DataError, match=rf"There is no file .*{name}\.$"):
            load(str(tmp_path / name))


def test_pt_with_a_saved_data_object(ring: Data, tmp_path: Path) -> None:
    path = tmp_path / "ring.pt"
    ring.edge_weight = torch.rand(24)
    ring.x = ring.x.to_sparse_csr()
    torch.save(ring, path)
    graph = load(str(path))
    assert graph.x.layout == torch.sparse_csr
    assert torch.equal(graph.x.to_dense(), ring.x.to_dense())
    assert torch.equal(graph.edge_index, ring.edge_index)
    assert graph.edge_weight is not None
    assert torch.equal(graph.edge_weight, ring.edge_weight)
    assert graph.name == "ring.pt"


def test_pt_with_something_else(ring: Data, tmp_path: Path) -> None:
    path = tmp_path / "dataset.pt"
    torch.save((ring.to_dict(), None), path)
    with pytest.raises(DataError, match=r"dataset\.pt holds a tuple; save it with torch\.save"):
        load(str(path))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"dataset\.pt cannot be loaded"):
        load(str(path))


def test_digits() -> None:
    graph = load("digits")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1_797, 64, 10)
    assert graph.num_edges == 24_678
    assert (float(graph.x.min()), float(graph.x.max())) == (0, 1)
    row, column = graph.edge_index
    assert not bool((row == column).any())
    assert is_undirected(graph.edge_index)
    # Every node has its own ten neighbours at least, and the nearest one is among them.
    assert int(row.bincount().min()) == 10
    nearest = (graph.x - graph.x[0]).norm(dim=1)[1:].argmin() + 1
    assert int(nearest) in column[row == 0].tolist()
