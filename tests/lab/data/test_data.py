"""The datasets known by name: read by PyG's classes, and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.datasets import AttributedGraphDataset

from graphrelu.lab import data
from graphrelu.lab.data import SOURCES, Counts, DataError, Source, at_hand, data_root, load

Tree = Callable[[Path], dict[str, tuple[int, int]]]
RAW = "AttributedGraphDataset/flickr/raw"


def write_raw(raw: Path) -> None:
    """Twelve nodes in a ring, as raw files of PyG's AttributedGraphDataset."""
    node = np.arange(12)
    raw.mkdir(parents=True, exist_ok=True)
    pairs = np.stack([node, (node + 1) % 12], axis=1)
    np.savetxt(raw / "edgelist.txt", np.concatenate([pairs, pairs[:, ::-1]]), "%d", "\t")
    np.savetxt(raw / "labels.txt", np.stack([node, node % 2 + 1], axis=1), "%d", "\t")
    np.savez(
        raw / "attrs.npz",
        data=np.ones(12),
        indices=node % 3,
        indptr=np.arange(13),
        shape=np.array([12, 3]),
        format=np.array(b"csr"),
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[[Counts], None]:
    """The ring stands in for Flickr, with PyG's download of it replaced."""

    def promise(counts: Counts) -> None:
        monkeypatch.setattr(data, "SOURCES", {"flickr": SOURCES["flickr"]._replace(counts=counts)})

    promise(Counts(12, 24, 3, 2))
    fetched = lambda self: write_raw(Path(self.raw_dir))  # noqa: E731
    monkeypatch.setattr(AttributedGraphDataset, "download", fetched)
    return promise


@pytest.mark.usefixtures("tiny")
def test_what_is_missing_is_downloaded_once(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not at_hand("flickr", tmp_path)
    graph = load("Flickr", tmp_path)
    assert (graph.name, graph.family, graph.num_classes) == ("flickr", "social", 2)
    assert graph.y.tolist() == 6 * [0, 1]
    assert at_hand("flickr", tmp_path)
    before = tree(tmp_path)
    assert set(before) >= {f"{RAW}/attrs.npz", f"{RAW}/edgelist.txt", f"{RAW}/labels.txt"}
    assert not any("processed" in path for path in before)
    monkeypatch.setattr(AttributedGraphDataset, "download", lambda self: pytest.fail("again"))
    load("flickr", tmp_path)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("file", "content"),
    [("attrs.npz", b"PK"), ("edgelist.txt", b"0\t99\n"), ("labels.txt", b"0\t1\n")],
)
@pytest.mark.usefixtures("tiny")
def test_a_damaged_file_costs_one_sentence(file: str, content: bytes, tmp_path: Path) -> None:
    write_raw(tmp_path / RAW)
    (tmp_path / RAW / file).write_bytes(content)
    with pytest.raises(DataError, match=r"[^\n]\.$"):
        load("flickr", tmp_path)


def test_other_counts_are_refused(tmp_path: Path, tiny: Callable[[Counts], None]) -> None:
    tiny(Counts(12, 24, 4, 3))
    with pytest.raises(DataError) as caught:
        load("flickr", tmp_path)
    assert str(caught.value) == "flickr has 3 features instead of 4, 2 classes instead of 3."


@pytest.mark.usefixtures("tiny")
def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"PyG cannot load AttributedGraphDataset/Flickr \(Not a"):
        load("flickr", tmp_path / "root")


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(DataError) as caught:
        load("coar")
    assert str(caught.value) == (
        "There is no dataset 'coar' (did you mean cora?); known are digits, cora, citeseer, "
        "pubmed, blogcatalog, flickr, photo, computers, cs, physics, minesweeper, tolokers, "
        "squirrel, chameleon, actor, digit-graphs, esol, mutag, proteins, paths to .npz, .pt, "
        ".csv and .tsv files, pyg:CLASS/NAME, ogbn-NAME, ogbg-NAME, csbm:NAME=VALUE,..., and "
        "graphs:PATH."
    )
    with pytest.raises(DataError, match=r"no dataset 'graph\.gml'; known are"):
        load("graph.gml")


@pytest.mark.parametrize(
    "name", ["cora", "blogcatalog", "flickr", "photo", "minesweeper", "squirrel", "actor"]
)
def test_real_graphs(name: str, real_root: Path, tree: Tree) -> None:
    """They have the counts of the table, or would not load; nothing is written beside them."""
    before = tree(real_root / SOURCES[name].place)
    assert at_hand(name, real_root)
    graph = load(name, real_root)
    assert graph.name == name
    assert tree(real_root / SOURCES[name].place) == before
    if graph.train_mask is not None:
        columns = graph.train_mask.shape[1:]
        assert columns == ((10,) if name in ("squirrel", "actor", "minesweeper") else ())


def test_labels() -> None:
    labels = [Source(place, Counts(1, 1, 1, 1)).label for place in ("A/CiteSeer", "B/a_b.npz")]
    assert labels == ["CiteSeer", "A"]


def test_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRELU_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("GRAPHRELU_DATA")
    assert data_root() == tmp_path / "cache" / "graphrelu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "graphrelu"
