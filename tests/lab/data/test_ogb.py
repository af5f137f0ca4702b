"""OGB's graphs and sets of graphs, by a stand-in for its package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphrelu.lab.data import DataError, load, load_graphs
from graphrelu.lab.data.splits import Split, from_masks, split_of

NODE = np.arange(12)
FEATURES = np.ones((12, 3), dtype=np.float32) * NODE[:, None]
SPLIT = {"train": NODE[:6], "valid": NODE[6:9], "test": NODE[9:]}


class Fake:
    """A ring of twelve nodes, or twelve paths of three, as OGB's datasets give them."""

    labels: Any = NODE[:, None] % 2

    def __init__(self, name: str, root: str) -> None:
        if name not in ("ogbn-arxiv", "ogbg-molhiv"):
            raise ValueError(f"Invalid dataset name {name}.\nAvailable datasets are many.")
        self.is_set = name == "ogbg-molhiv"
        cache = Path(root, name.replace("-", "_"), "processed", "data_processed")
        assert not cache.exists()  # a pickle of an earlier version of torch
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("Saving...")

    def __len__(self) -> int:
        return 12 if self.is_set else 1

    def __getitem__(self, i: int) -> tuple[dict[str, Any], Any]:
        if not self.is_set:
            edges = np.stack([NODE, (NODE + 1) % 12])
            graph = {"node_feat": FEATURES, "edge_feat": None, "edge_index": edges, "num_nodes": 12}
            return graph, self.labels
        graph = {"edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), "num_nodes": 3}
        graph |= {"node_feat": np.full((3, 9), i), "edge_feat": np.ones((4, 3), dtype=np.int64)}
        return graph, self.labels[i]

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return SPLIT


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", SimpleNamespace())
    for module, name in (("node", "NodePropPredDataset"), ("graph", "GraphPropPredDataset")):
        stand_in = SimpleNamespace(**{name: Fake})
        monkeypatch.setitem(sys.modules, f"ogb.{module}proppred", stand_in)


def assert_ogbs(split: Split) -> None:
    parts = (split.train, split.val, split.test)
    assert [part.tolist() for part in parts] == [part.tolist() for part in SPLIT.values()]


def test_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # what OGB has processed, a pickle, is not read
        graph = load("OGBN-arxiv", tmp_path)
    found = (graph.name, graph.num_nodes, graph.num_edges, graph.num_classes)
    assert found == ("ogbn-arxiv", 12, 24, 2)
    assert np.array_equal(graph.x.numpy(), FEATURES)
    assert graph.y.tolist() == 6 * [0, 1]
    assert_ogbs(from_masks(graph, 0))
    monkeypatch.setattr(Fake, "labels", {"paper": NODE})  # of nodes of several kinds
    with pytest.raises(DataError, match=r"^OGB cannot load ogbn-arxiv \(.*\); it looks for its"):
        load("ogbn-arxiv", tmp_path)


def test_a_set_of_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = load_graphs("ogbg-molhiv", tmp_path)
    assert (graphs.name, graphs.num_graphs, graphs.task) == ("ogbg-molhiv", 12, "labels")
    assert (graphs.nodes.sizes, graphs.edges.sizes) == ((12,) * 9, (2,) * 3)
    assert_ogbs(split_of(graphs, 0))
    monkeypatch.setattr(Fake, "labels", np.where(NODE < 10, NODE % 2, np.nan)[:, None])
    assert load_graphs("ogbg-molhiv", tmp_path).y.isnan().sum() == 2


def test_an_unknown_name_and_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = r"^OGB cannot load ogbn-x \(Invalid dataset name ogbn-x\); it looks for .*ogbn_x\.$"
    with pytest.raises(DataError, match=sentence):
        load("ogbn-x", tmp_path)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", None)
    sentence = r"^ogbg-molhiv needs the package ogb; install it with: pip install ogb\.$"
    with pytest.raises(DataError, match=sentence):
        load_graphs("ogbg-molhiv", tmp_path)
