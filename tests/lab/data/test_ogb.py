"""OGB's graphs, by the package where it is installed, else by a stand-in for it."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphrelu.lab.data import DataError, load
from graphrelu.lab.data.splits import from_masks

NODE = np.arange(12)
EDGES = np.stack([NODE, (NODE + 1) % 12])
FEATURES = np.ones((12, 3), dtype=np.float32) * NODE[:, None]
SPLIT = {"train": NODE[:6], "valid": NODE[6:9], "test": NODE[9:]}


def raw_files(root: Path) -> None:
    """A ring of twelve nodes in the layout of ogbn-arxiv."""
    home = root / "ogbn_arxiv"
    tables = {
        "raw/edge": EDGES.T,
        "raw/node-feat": FEATURES,
        "raw/node-label": NODE[:, None] % 2,
        "raw/node_year": NODE[:, None],
        "raw/num-node-list": np.array([[12]]),
        "raw/num-edge-list": np.array([[12]]),
        **{f"split/time/{part}": nodes[:, None] for part, nodes in SPLIT.items()},
    }
    for name, table in tables.items():
        path = home / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as stream:
            np.savetxt(stream, table, "%g", ",")
    (home / "RELEASE_v1.txt").write_text("")


class Fake:
    """What `NodePropPredDataset` promises."""

    labels: Any = NODE[:, None] % 2
    node_feat: Any = FEATURES
    edge_feat: Any = None

    def __init__(self, name: str, root: str) -> None:
        if name != "ogbn-arxiv":
            raise ValueError(f"Invalid dataset name {name}.\nAvailable datasets are many.")
        if not (Path(root) / "ogbn_arxiv").exists():
            raw_files(Path(root))
        (Path(root) / "ogbn_arxiv" / "processed").mkdir(exist_ok=True)
        (Path(root) / "ogbn_arxiv" / "processed" / "data_processed").write_text("Saving...")

    def __getitem__(self, _: int) -> tuple[dict[str, Any], Any]:
        graph = {"edge_index": EDGES, "num_nodes": 12, "node_feat": self.node_feat}
        graph["edge_feat"] = self.edge_feat
        return graph, self.labels

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return SPLIT


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(NodePropPredDataset=Fake)
    monkeypatch.setitem(sys.modules, "ogb", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)


def check_ring(root: Path) -> None:
    graph = load("ogbn-arxiv", root)
    found = (graph.name, graph.num_nodes, graph.num_edges, graph.num_classes)
    assert found == ("ogbn-arxiv", 12, 24, 2)
    assert np.array_equal(graph.x.numpy(), FEATURES)
    assert graph.y.tolist() == 6 * [0, 1]
    split = from_masks(graph, 0)
    assert (split.train.tolist(), split.val.tolist()) == ([0, 1, 2, 3, 4, 5], [6, 7, 8])


@pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="ogb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_the_package(tmp_path: Path) -> None:
    """What it has processed, a pickle, is not read."""
    raw_files(tmp_path)
    (tmp_path / "ogbn_arxiv" / "processed").mkdir()
    (tmp_path / "ogbn_arxiv" / "processed" / "data_processed").write_bytes(b"cos\nsystem\n.")
    check_ring(tmp_path)
    check_ring(tmp_path)


@pytest.mark.usefixtures("fake")
def test_files_that_are_there_and_files_that_are_not(tmp_path: Path) -> None:
    raw_files(tmp_path)
    check_ring(tmp_path)
    check_ring(tmp_path / "other")
    assert (tmp_path / "other/ogbn_arxiv/raw/edge.csv.gz").is_file()


@pytest.mark.usefixtures("fake")
def test_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some may be unknown; several of a node are a matrix; kinds of nodes are not for us."""
    known = np.where(NODE < 10, NODE % 2, np.nan)[:, None]
    monkeypatch.setattr(Fake, "labels", known)
    assert load("ogbn-arxiv", tmp_path).num_unlabelled == 2
    monkeypatch.setattr(Fake, "labels", (np.arange(48) % 5 == 0).reshape(12, 4).astype(np.int64))
    assert load("ogbn-arxiv", tmp_path).task == "labels"
    monkeypatch.setattr(Fake, "labels", {"paper": NODE})
    with pytest.raises(DataError, match=r"^ogbn-arxiv has nodes of several kinds"):
        load("ogbn-arxiv", tmp_path)


@pytest.mark.usefixtures("fake")
def test_features_of_edges_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ogbn-proteins: a node has the mean over the edges that end there."""
    of_edges = np.stack([NODE, NODE**2], axis=1).astype(np.float32)
    monkeypatch.setattr(Fake, "node_feat", None)
    monkeypatch.setattr(Fake, "edge_feat", of_edges)
    graph = load("ogbn-arxiv", tmp_path)
    assert graph.x[1].tolist() == [0, 0]  # edge 0 ends at node 1
    assert graph.x[0].tolist() == [11, 121]


@pytest.mark.usefixtures("fake")
def test_an_unknown_name(tmp_path: Path) -> None:
    sentence = r"^OGB cannot load ogbn-x \(Invalid dataset name ogbn-x\); it looks for .*ogbn_x\.$"
    with pytest.raises(DataError, match=sentence):
        load("ogbn-x", tmp_path)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    sentence = r"^ogbn-arxiv needs the package ogb; install it with: pip install ogb\.$"
    with pytest.raises(DataError, match=sentence):
        load("OGBN-arxiv", tmp_path)
