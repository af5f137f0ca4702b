"""Datasets by name: PyG's classes leave no trace; a stand-in takes the place of OGB's package."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch_geometric.datasets import Amazon

from graphrelu.lab.data import SOURCES, at_hand, data_root, load, load_graphs
from graphrelu.lab.data.splits import split_of
from graphrelu.lab.errors import DataError

Tree = Callable[[Path], dict[str, tuple[int, int]]]
RAW = "Amazon/Photo/raw/amazon_electronics_photo.npz"
COUNTS = {  # nodes, edges in both directions, features, classes
    "cora": (2_708, 10_556, 1_433, 7),
    "blogcatalog": (5_196, 343_486, 8_189, 6),
    "flickr": (7_575, 479_476, 12_047, 9),
    "photo": (7_650, 238_162, 745, 8),
    "minesweeper": (10_000, 78_804, 7, 2),
    "squirrel": (2_223, 93_996, 2_089, 5),
    "actor": (7_600, 53_318, 932, 5),
}
SPLIT = {"train": np.arange(6), "valid": np.arange(6, 9), "test": np.arange(9, 12)}


def download(dataset: Amazon) -> None:
    """A ring of twelve nodes as PyG's raw file of Photo."""
    node = np.arange(12)
    path = Path(dataset.raw_paths[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"adj_indices": (node + 1) % 12, "adj_shape": (12, 12)}
    parts |= {"attr_indices": node % 3, "attr_shape": (12, 3), "labels": node % 2}
    parts |= {f"{name}_data": np.ones(12, dtype=np.float32) for name in ("adj", "attr")}
    parts |= {f"{name}_indptr": np.arange(13) for name in ("adj", "attr")}
    np.savez(path, **parts)


@pytest.fixture
def photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Amazon, "download", download)
    return tmp_path


def test_what_is_missing_is_downloaded_once(
    photo: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # PyG itself is silent under pytest
    assert not at_hand("photo", photo)
    graph = load("Photo", photo)
    assert (graph.name, graph.num_classes) == ("photo", 2)
    assert at_hand("photo", photo)
    before = tree(photo)
    assert RAW in before
    assert not any("processed" in path for path in before)
    monkeypatch.setattr(Amazon, "download", lambda self: pytest.fail("again"))
    assert load("pyg:Amazon/Photo", photo).name == "pyg:Amazon/Photo"
    assert tree(photo) == before
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(Amazon, "__len__", lambda self: 3)
    with pytest.raises(DataError, match="Amazon/Photo holds 3 graphs; choose a dataset of one"):
        load("pyg:Amazon/Photo", photo)
    assert load("pyg:FakeDataset").num_features == 64  # without files


def test_a_failed_download_and_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: Amazon) -> None:
        raise OSError("no network")

    monkeypatch.setattr(Amazon, "download", download)
    with pytest.raises(DataError) as caught:
        load("pyg:Amazon/Photo", tmp_path)
    assert str(caught.value) == (
        "PyG cannot load Amazon/Photo (no network); if a download broke off, remove "
        f"{tmp_path / 'Amazon/Photo'} and try again."
    )
    path = tmp_path / RAW
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    with pytest.raises(DataError, match=r"PyG cannot load Amazon/Photo \("):
        load("pyg:Amazon/Photo", tmp_path)
    with pytest.raises(DataError, match=r"PyG cannot load Amazon/Photo \(Not a directory"):
        load("pyg:Amazon/Photo", path)


def test_digits() -> None:
    """Scikit-learn's, the same on every machine; the nearest digit is a neighbour."""
    graph = load("digits")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1_797, 64, 10)
    digest = hashlib.sha256(graph.edge_index.numpy().tobytes()).hexdigest()
    assert digest == "8c0021322541360c66f2ee472b2b22d9ad1595d681ba82365674802509656493"
    nearest = (graph.x - graph.x[0]).norm(dim=1)[1:].argmin() + 1
    assert int(nearest) in graph.edge_index[1, graph.edge_index[0] == 0].tolist()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pyg:Amazn/Photo", r"PyG has no dataset class 'Amazn' \(did you mean Amazon\?\)\."),
        ("pyg:download_url", r"PyG has no dataset class 'download_url'\."),
        ("pyg:Amazon", r"PyG cannot load Amazon \(.* missing 1 required .* 'name'\); if a "),
        ("pyg:KarateClub/Photo", r"KarateClub/Photo \(.* unexpected keyword argument 'name'\)"),
        ("pyg:Amazon/Nothing", r"PyG cannot load Amazon/Nothing \(AssertionError\); if a "),
        ("graph.gml", r"no dataset 'graph\.gml'; choose from"),
    ],
)
def test_faulty_requests(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        load(name, tmp_path)


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(DataError) as caught:
        load("coar")
    said = str(caught.value)
    assert said.startswith(
        "There is no dataset 'coar' (did you mean cora?); choose from digits, cora"
    )
    assert said.endswith("csbm:NAME=VALUE,..., sets:NAME=VALUE,..., and graphs:PATH.")


@pytest.mark.parametrize("name", COUNTS)
def test_real_graphs(name: str, real_root: Path, tree: Tree) -> None:
    """Nothing is written beside them."""
    folder = real_root / SOURCES[name].removeprefix("pyg:")
    before = tree(folder)
    assert at_hand(name, real_root)
    graph = load(name, real_root)
    found = graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes
    assert (graph.name, found) == (name, COUNTS[name])
    assert tree(folder) == before
    if graph.train_mask is not None:
        columns = graph.train_mask.shape[1:]
        assert columns == ((10,) if name in ("squirrel", "actor", "minesweeper") else ())


def test_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRELU_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("GRAPHRELU_DATA")
    assert data_root() == tmp_path / "cache" / "graphrelu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "graphrelu"


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
