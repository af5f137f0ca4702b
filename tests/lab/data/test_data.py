"""The datasets known by name: checked, never written to, and downloaded whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.datasets import AttributedGraphDataset

from graphrelu.lab import data
from graphrelu.lab.data import DataError, data_root, load, survey
from graphrelu.lab.data.checksums import SOURCES, Counts, Source, sha256

Tree = Callable[[Path], dict[str, tuple[int, int]]]
Download = Callable[[Path], None]
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
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def raw(root: Path) -> Path:
    return root / FOLDER / "raw"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The ring stands in for Flickr, with PyG's download of it replaced; fields can be changed."""
    write_raw(tmp_path / "pinned")
    sums = {file.name: sha256(file) for file in sorted((tmp_path / "pinned").iterdir())}
    counts = Counts(12, 24, 3, 2)
    source = Source("AttributedGraphDataset", "Flickr", FOLDER, counts, True, sums)

    def change(download: Download = write_raw, **fields: Any) -> None:
        monkeypatch.setattr(data, "SOURCES", {"flickr": replace(source, **fields)})
        fetched = lambda self: download(Path(self.raw_dir))  # noqa: E731
        monkeypatch.setattr(AttributedGraphDataset, "download", fetched)

    change()
    return change


@pytest.mark.usefixtures("tiny")
def test_a_known_dataset_is_read_without_a_trace(root: Path, raw: Path, tree: Tree) -> None:
    write_raw(raw)
    before = tree(root)
    graph = load("Flickr", root)
    assert (graph.name, graph.family, graph.num_classes) == ("flickr", "social", 2)
    assert graph.x.layout == torch.sparse_csr
    assert graph.y.tolist() == 6 * [0, 1]
    assert tree(root) == before


@pytest.mark.parametrize("name", ["flickr", "pyg:AttributedGraphDataset/Flickr"])
@pytest.mark.usefixtures("tiny")
def test_a_file_swapped_after_the_check(
    name: str, root: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is what was summed, also where another file takes its place in between."""
    write_raw(raw)
    checked = data.compare_edition

    def swap(*arguments: Any) -> object:
        found = checked(*arguments)
        (raw / "labels.txt").write_bytes(b"0 1\n")
        return found

    monkeypatch.setattr(data, "compare_edition", swap)
    with pytest.raises(DataError, match=r"labels\.txt was changed while it was read\.$"):
        load(name, root)


@pytest.mark.parametrize("name", ["cora", "pyg:Planetoid/Cora", "pyg:planetoid/cora"])
def test_a_pickle_that_is_not_the_known_one_is_not_unpickled(name: str, tmp_path: Path) -> None:
    source, trap = SOURCES["cora"], tmp_path / "trapped"
    raw = tmp_path / source.folder / "raw"
    raw.mkdir(parents=True)
    for file in source.sums:
        (raw / file).write_bytes(b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.")
    with pytest.raises(DataError, match=r"^cora: the SHA-256 sum of .* is not the known one"):
        load(name, tmp_path)
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
    file: str, content: bytes, root: Path, tiny: Callable[..., None]
) -> None:
    def download(raw: Path) -> None:
        write_raw(raw)
        (raw / file).write_bytes(content)

    tiny(download, pinned=False)
    with pytest.raises(DataError, match=r"^flickr.*[^\n]\.$"):
        load("flickr", root)
    assert not root.exists()


def test_altered_files_are_named_and_not_downloaded_over(
    root: Path, raw: Path, tree: Tree, tiny: Callable[..., None]
) -> None:
    tiny(lambda raw: pytest.fail("downloaded"))
    write_raw(raw)
    (raw / "attrs.npz").unlink()
    (raw / "labels.txt").write_bytes((raw / "labels.txt").read_bytes()[:-9])
    before = tree(root)
    sentence = r"raw/labels\.txt is not the known one, it may be truncated"
    with pytest.raises(DataError, match=sentence):
        load("flickr", root)
    assert tree(root) == before
    status = survey(root)[1]
    found = (status.state, status.missing, status.altered)
    assert found == ("altered", ("attrs.npz",), ("labels.txt",))


@pytest.mark.usefixtures("tiny")
def test_missing_files_are_downloaded(root: Path, raw: Path, tree: Tree) -> None:
    assert survey(root)[1].state == "missing"
    assert load("flickr", root).num_nodes == 12
    assert {path.name for path in raw.iterdir()} == {"attrs.npz", "edgelist.txt", "labels.txt"}
    assert list(raw.parent.iterdir()) == [raw]
    assert survey(root)[1].state == "present"

    (raw / "labels.txt").unlink()
    assert survey(root)[1].missing == ("labels.txt",)
    assert load("flickr", root).num_nodes == 12
    before = tree(root)
    load("flickr", root)
    assert tree(root) == before


def test_without_network_the_error_says_what_to_put_where(
    root: Path, raw: Path, tree: Tree, tiny: Callable[..., None]
) -> None:
    def breaks_off(raw: Path) -> None:
        (raw / "attrs.npz").write_bytes(b"half")
        raise OSError("connection lost")

    tiny(breaks_off)
    with pytest.raises(DataError) as caught:
        load("flickr", root)
    assert str(caught.value) == (
        "flickr is not complete and cannot be downloaded (connection lost); "
        f"put attrs.npz, edgelist.txt, labels.txt into {raw}."
    )
    assert not root.exists()
    write_raw(raw)
    (raw / "labels.txt").unlink()
    before = tree(root)
    with pytest.raises(DataError, match=r"connection lost\); put labels\.txt into"):
        load("flickr", root)
    assert tree(root) == before


def test_another_edition_of_pinned_files_is_refused(
    root: Path, raw: Path, tiny: Callable[..., None]
) -> None:
    tiny(partial(write_raw, compressed=True))
    with pytest.raises(DataError, match=r"of the downloaded attrs\.npz is not the known one"):
        load("flickr", root)
    assert not root.exists()

    # Files that PyG does not offer as the same bytes: accepted if the graph has the right counts,
    # and from then on held to the sums of the day of the download.
    tiny(partial(write_raw, compressed=True), pinned=False)
    write_raw(raw)
    (raw / "labels.txt").unlink()
    with pytest.raises(DataError, match=r"holds attrs\.npz of another edition"):
        load("flickr", root)
    shutil.rmtree(root)
    load("flickr", root)
    load("flickr", root)
    status = survey(root)[1]
    note = "as PyG downloads it, not the files of our results"
    assert (status.state, status.note) == ("present", note)
    (raw / "attrs.npz").write_bytes(b"half")
    with pytest.raises(DataError, match=r"attrs\.npz is not the known one"):
        load("flickr", root)
    assert survey(root)[1].altered == ("attrs.npz",)


def test_an_edition_with_other_counts_is_refused(root: Path, tiny: Callable[..., None]) -> None:
    tiny(counts=Counts(12, 24, 4, 3))
    with pytest.raises(DataError) as caught:
        load("flickr", root)
    assert str(caught.value) == "flickr has 3 features instead of 4, 2 classes instead of 3."
    assert not root.exists()


@pytest.mark.usefixtures("tiny")
def test_a_root_that_cannot_be_written(root: Path) -> None:
    root.write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"cannot be written"):
        load("flickr", root)


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


@pytest.mark.parametrize(
    ("name", "nodes", "classes", "splits"),
    [("squirrel", 2_223, 5, (10,)), ("actor", 7_600, 5, (10,)), ("Photo", 7_650, 8, None)],
)
def test_files_and_classes_of_pyg_have_names(
    real_root: Path, name: str, nodes: int, classes: int, splits: tuple[int] | None
) -> None:
    graph = load(name, real_root)
    assert (graph.name, graph.num_nodes, graph.num_classes) == (name.lower(), nodes, classes)
    assert (graph.train_mask is None) == (splits is None)
    assert graph.train_mask is None or graph.train_mask.shape[1:] == splits


def test_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHRELU_DATA", str(tmp_path / "env"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root(tmp_path) == tmp_path
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("GRAPHRELU_DATA")
    assert data_root() == tmp_path / "cache" / "graphrelu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "graphrelu"
