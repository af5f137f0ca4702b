"""The user's own files: the usual forms are read, and what is wrong costs one sentence. The size of
a file is checked first, and no code in it is run."""

from __future__ import annotations

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
from torch_geometric.utils import is_undirected, to_undirected

from graphrelu.lab.data import load, load_graphs, own_files
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.errors import DataError

NODE = np.arange(12)
MASKS = np.stack([(NODE + split) % 3 == 0 for split in range(5)])
EDGES = np.stack([NODE[:-1], NODE[1:]], axis=1)
CANNOT = "cannot be read as an .npz file"


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


HOW = r"; save a PyG Data, or a list of them, that holds tensors only, with torch\.save\.$"
SPARSE = torch.sparse_coo_tensor([[0], [99]], [1.0], (12, 3), check_invariants=False)


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
