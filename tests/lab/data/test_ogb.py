"""OGB's sets of graphs, by a stand-in for its package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphrelu.lab.data import load_graphs
from graphrelu.lab.data.splits import split_of
from graphrelu.lab.errors import DataError

SPLIT = {"train": np.arange(6), "valid": np.arange(6, 9), "test": np.arange(9, 12)}


class Fake:
    """Twelve paths of three nodes, as OGB's datasets give them; of the first the label is
    unknown."""

    def __init__(self, name: str, root: str) -> None:
        if name != "ogbg-molhiv":
            raise ValueError(f"Invalid dataset name {name}.\nAvailable datasets are many.")
        cache = Path(root, "ogbg_molhiv", "processed", "data_processed")
        assert not cache.exists()  # a pickle of an earlier version of torch
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("Saving...")

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[dict[str, Any], np.ndarray]:
        graph = {"edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), "num_nodes": 3}
        graph |= {"node_feat": np.full((3, 9), i), "edge_feat": np.ones((4, 3), dtype=np.int64)}
        return graph, np.array([i % 2 if i else np.nan])

    def get_idx_split(self) -> dict[str, np.ndarray]:
        return SPLIT


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ogb", SimpleNamespace())
    stand_in = SimpleNamespace(GraphPropPredDataset=Fake)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", stand_in)


def test_a_set_of_graphs(tmp_path: Path) -> None:
    for _ in range(2):  # what OGB has processed, a pickle, is not read
        graphs = load_graphs("OGBG-molhiv", tmp_path)
    assert (graphs.name, graphs.num_graphs, graphs.task) == ("ogbg-molhiv", 12, "labels")
    assert (graphs.nodes.sizes, graphs.edges.sizes) == ((12,) * 9, (2,) * 3)
    assert graphs.y.isnan().view(-1).tolist() == [True, *11 * [False]]
    split = split_of(graphs, 0)
    parts = (split.train, split.val, split.test)
    assert [part.tolist() for part in parts] == [part.tolist() for part in SPLIT.values()]


def test_an_unknown_name_and_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = r"^OGB cannot load ogbg-x \(Invalid dataset name ogbg-x\); it looks for .*ogbg_x\.$"
    with pytest.raises(DataError, match=sentence):
        load_graphs("ogbg-x", tmp_path)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", None)
    sentence = r"^ogbg-molhiv needs the package ogb; install it with: pip install ogb\.$"
    with pytest.raises(DataError, match=sentence):
        load_graphs("ogbg-molhiv", tmp_path)
