"""The datasets known by name: checked, never written to, and downloaded whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.datasets import AttributedGraphDataset

from graphrelu.lab import data
from graphrelu.lab.data import DataError, data_root, fetch, load, survey
from graphrelu.lab.data.checksums import SOURCES, Counts, Source, sha256

Tree = Callable[[Path], dict[str, tuple[int, int]]]
FOLDER = "AttributedGraphDataset/flickr"


def write_raw(raw: Path, compressed: bool = False) -> None:
    """Twelve nodes in a ring, as raw files of PyG's AttributedGraphDataset."""
    node = np.arange(12)
    raw.mkdir(parents=True, exist_ok=True)
    pairs = np.stack([node, (node + 1) % 12], axis=1)
    np.savetxt(raw / "edgelist.txt", np.concatenate([pairs, pairs[:, ::-1]]), "%d", "\t")
    np.savetxt(raw / "labels.txt", np.stack([node, node % 2 + 1], axis=1), "%d", "\t")
    save = np.savez_compressed if compressed else np.savez
    save(
        raw / "attrs.npz",
        data=np.ones(12),
        indices=node % 3,
        indptr=np.arange(13),
        shape=np.array([12, 3]),
        format=np.array(b"csr"),
    )


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """The ring stands in for Flickr, with PyG's download of it replaced."""
    write_raw(tmp_path / "pinned")
    sums = {file.name: sha256(file) for file in sorted((tmp_path / "pinned").iterdir())}
    source = Source("AttributedGraphDataset", "Flickr", FOLDER, Counts(12, 24, 3, 2), True, sums)
    monkeypatch.setattr(data, "SOURCES", {"flickr": source})
    monkeypatch.setattr(
        AttributedGraphDataset, "download", lambda self: write_raw(Path(self.raw_dir))
    )
    return source


def no_network(self: object) -> None:
    raise OSError("Name or service not known")


@pytest.mark.usefixtures("tiny")
def test_a_known_dataset_is_read_without_a_trace(tmp_path: Path, tree: Tree) -> None:
    write_raw(tmp_path / "root" / FOLDER / "raw")
    before = tree(tmp_path)
    graph = load("Flickr", tmp_path / "root")
    assert (graph.name, graph.family, graph.num_classes) == ("flickr", "social", 2)
    assert graph.x.layout == torch.sparse_csr
    assert graph.y.tolist() == 6 * [0, 1]
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["flickr", "pyg:AttributedGraphDataset/Flickr"])
@pytest.mark.usefixtures("tiny")
def test_a_file_swapped_after_the_check(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is what was summed, also where another file takes its place in between."""
    raw = tmp_path / "root" / FOLDER / "raw"
    write_raw(raw)
    checked = data.compare_edition

    def swap(*arguments: object) -> object:
        found = checked(*arguments)  # type: ignore[arg-type]
        (raw / "labels.txt").write_bytes(b"0 1\n")
        return found

    monkeypatch.setattr(data, "compare_edition", swap)
    with pytest.raises(DataError, match=r"labels\.txt was changed while it was read\.$"):
        load(name, tmp_path / "root")


@pytest.mark.parametrize("name", ["cora", "pyg:Planetoid/Cora", "pyg:planetoid/cora"])
def test_a_pickle_that_is_not_the_known_one_is_not_unpickled(name: str, tmp_path: Path) -> None:
    source, trap = SOURCES["cora"], tmp_path / "trapped"
    raw = tmp_path / "root" / source.folder / "raw"
    raw.mkdir(parents=True)
    for file in source.sums:
        (raw / file).write_bytes(b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.")
    with pytest.raises(DataError, match=r"^cora: the SHA-256 sum of .* is not the known one"):
        load(name, tmp_path / "root")
    assert not trap.exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("attrs.npz", b"PK"),
        ("edgelist.txt", b""),
        ("edgelist.txt", b"0 nan\n"),
        ("edgelist.txt", b"0 1 2\n"),
        ("edgelist.txt", b"0 99\n"),
        ("edgelist.txt", b"\xff\xfe\n"),
        ("labels.txt", b"0\n" * 12),
        ("labels.txt", b"0 " + 30 * b"9" + b"\n"),
        ("labels.txt", b"0 1\n"),
    ],
)
def test_a_faulty_edition_costs_one_sentence(
    file: str, content: bytes, tmp_path: Path, tiny: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: AttributedGraphDataset) -> None:
        write_raw(Path(self.raw_dir))
        (Path(self.raw_dir) / file).write_bytes(content)

    monkeypatch.setattr(data, "SOURCES", {"flickr": replace(tiny, pinned=False)})
    monkeypatch.setattr(AttributedGraphDataset, "download", download)
    with pytest.raises(DataError, match=r"^flickr.*[^\n]\.$"):
        load("flickr", tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.usefixtures("tiny")
def test_altered_files_are_named_and_not_downloaded_over(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "download", lambda *_: pytest.fail("downloaded"))
    raw = tmp_path / "root" / FOLDER / "raw"
    write_raw(raw)
    (raw / "attrs.npz").unlink()
    (raw / "labels.txt").write_bytes((raw / "labels.txt").read_bytes()[:-9])
    before = tree(tmp_path)
    with pytest.raises(
        DataError, match=r"raw/labels\.txt is not the known one, it may be truncated"
    ):
        load("flickr", tmp_path / "root")
    assert tree(tmp_path) == before
    status = survey(tmp_path / "root")[1]
    assert (status.state, status.missing, status.altered) == (
        "altered",
        ("attrs.npz",),
        ("labels.txt",),
    )


@pytest.mark.usefixtures("tiny")
def test_missing_files_are_downloaded(tmp_path: Path, tree: Tree) -> None:
    root = tmp_path / "root"
    assert survey(root)[1].state == "missing"
    assert load("flickr", root).num_nodes == 12
    expected = {"attrs.npz", "edgelist.txt", "labels.txt"}
    assert {path.name for path in (root / FOLDER / "raw").iterdir()} == expected
    assert [path.name for path in (root / FOLDER).iterdir()] == ["raw"]
    assert survey(root)[1].state == "present"

    (root / FOLDER / "raw" / "labels.txt").unlink()
    assert survey(root)[1].missing == ("labels.txt",)
    assert load("flickr", root).num_nodes == 12
    before = tree(root)
    load("flickr", root)
    assert tree(root) == before


@pytest.mark.usefixtures("tiny")
def test_without_network_the_error_says_what_to_put_where(
    tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    monkeypatch.setattr(AttributedGraphDataset, "download", no_network)
    with pytest.raises(DataError) as caught:
        load("flickr", root)
    assert str(caught.value) == (
        "flickr is not complete and cannot be downloaded (Name or service not known); "
        f"put attrs.npz, edgelist.txt, labels.txt into {root / FOLDER / 'raw'}."
    )
    assert not root.exists()

    write_raw(root / FOLDER / "raw")
    (root / FOLDER / "raw" / "labels.txt").unlink()
    before = tree(root)

    def breaks_off(self: AttributedGraphDataset) -> None:
        (Path(self.raw_dir) / "attrs.npz").write_bytes(b"half")
        raise OSError("connection lost")

    monkeypatch.setattr(AttributedGraphDataset, "download", breaks_off)
    with pytest.raises(DataError, match=r"connection lost\); put labels\.txt into"):
        load("flickr", root)
    assert tree(root) == before


def test_another_edition_of_pinned_files_is_refused(
    tmp_path: Path, tiny: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        AttributedGraphDataset, "download", lambda self: write_raw(Path(self.raw_dir), True)
    )
    root = tmp_path / "root"
    with pytest.raises(DataError, match=r"of the downloaded attrs\.npz is not the known one"):
        load("flickr", root)
    assert not root.exists()

    # Files that PyG does not offer as the same bytes: accepted if the graph has the right counts,
    # and from then on held to the sums of the day of the download.
    monkeypatch.setattr(data, "SOURCES", {"flickr": replace(tiny, pinned=False)})
    write_raw(root / FOLDER / "raw")
    (root / FOLDER / "raw" / "labels.txt").unlink()
    with pytest.raises(DataError, match=r"holds attrs\.npz of another edition"):
        load("flickr", root)
    shutil.rmtree(root)
    load("flickr", root)
    load("flickr", root)
    status = survey(root)[1]
    assert (status.state, status.note) == (
        "present",
        "as PyG downloads it, not the files of our results",
    )
    (root / FOLDER / "raw" / "attrs.npz").write_bytes(b"half")
    with pytest.raises(DataError, match=r"attrs\.npz is not the known one"):
        load("flickr", root)
    assert survey(root)[1].altered == ("attrs.npz",)


def test_an_edition_with_other_counts_is_refused(
    tmp_path: Path, tiny: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(tiny, counts=Counts(12, 24, 4, 3))
    monkeypatch.setattr(data, "SOURCES", {"flickr": wrong})
    with pytest.raises(DataError) as caught:
        load("flickr", tmp_path / "root")
    assert str(caught.value) == "flickr has 3 features instead of 4, 2 classes instead of 3."
    assert not (tmp_path / "root").exists()


@pytest.mark.usefixtures("tiny")
def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"cannot be written"):
        load("flickr", tmp_path / "root")


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(DataError) as caught:
        load("coar")
    assert str(caught.value) == (
        "There is no dataset 'coar' (did you mean cora?); known are digits, cora, citeseer, "
        "pubmed, blogcatalog, flickr, photo, computers, cs, physics, minesweeper, tolokers, "
        "squirrel, chameleon, actor, digit-graphs, mutag, proteins, paths to .npz, .pt, .csv and "
        ".tsv files, pyg:CLASS/NAME, ogbn-NAME, and csbm:NAME=VALUE,..."
    )
    with pytest.raises(DataError, match=r"no dataset 'graph\.gml'; known are"):
        load("graph.gml")


@pytest.mark.parametrize(("name", "nodes", "splits"), [("squirrel", 2223, 10), ("actor", 7600, 10)])
def test_files_below_the_root_have_names(
    real_root: Path, name: str, nodes: int, splits: int
) -> None:
    graph = load(name, real_root)
    assert (graph.name, graph.num_nodes) == (name, nodes)
    assert graph.train_mask is not None
    assert graph.train_mask.shape == (nodes, splits)


def test_classes_of_pyg_have_names(real_root: Path) -> None:
    graph = load("Photo", real_root)
    assert (graph.name, graph.num_nodes, graph.num_classes) == ("photo", 7650, 8)


def test_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRELU_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("GRAPHRELU_DATA")
    assert data_root() == tmp_path / "cache" / "graphrelu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "graphrelu"
