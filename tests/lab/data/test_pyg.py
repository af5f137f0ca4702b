"""Any dataset class of PyG's, run where it leaves no trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_geometric.datasets import Amazon

from graphrelu.lab.data import DataError, load

Tree = Callable[[Path], dict[str, tuple[int, int]]]
MakeNpz = Callable[..., Path]
RAW = "Amazon/Photo/raw/amazon_electronics_photo.npz"


def test_raw_files_are_read_in_silence(
    make_npz: MakeNpz,
    tmp_path: Path,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # PyG itself is silent under pytest
    monkeypatch.setattr(Amazon, "download", lambda self: pytest.fail("downloaded"))
    make_npz(RAW)
    before = tree(tmp_path)
    graph = load("pyg:Amazon/Photo", tmp_path)
    assert (graph.name, graph.num_nodes, graph.num_edges) == ("pyg:Amazon/Photo", 12, 24)
    assert tree(tmp_path) == before
    assert capfd.readouterr() == ("", "")


def test_download_is_kept(
    make_npz: MakeNpz, tmp_path: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_npz("elsewhere/ring.npz")

    def download(self: Amazon) -> None:
        print("Downloading", file=sys.stderr)
        (Path(self.raw_dir) / Path(RAW).name).write_bytes(source.read_bytes())
        (Path(self.raw_dir) / "extra.txt").write_text("of the download")

    monkeypatch.setattr(Amazon, "download", download)
    root = tmp_path / "root"
    (root / RAW).parent.mkdir(parents=True)
    (root / RAW).with_name("extra.txt").write_text("of the user")
    load("pyg:Amazon/Photo", root)
    names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert names == {RAW, "Amazon/Photo/raw/extra.txt"}
    before = tree(root)
    load("pyg:Amazon/Photo", root)
    assert tree(root) == before


def test_failed_download_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: Amazon) -> None:
        (Path(self.raw_dir) / Path(RAW).name).write_bytes(b"half")
        raise OSError("no network")

    monkeypatch.setattr(Amazon, "download", download)
    with pytest.raises(DataError) as caught:
        load("pyg:Amazon/Photo", tmp_path / "root")
    assert str(caught.value) == (
        "Amazon cannot be downloaded (no network); "
        f"put {Path(RAW).name} into {(tmp_path / 'root' / RAW).parent}."
    )
    assert not (tmp_path / "root").exists()


def test_a_damaged_file_does_not_end_in_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / RAW
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    with pytest.raises(DataError, match=r"PyG cannot load Amazon/Photo \("):
        load("pyg:Amazon/Photo", tmp_path)


def test_a_class_without_files() -> None:
    graph = load("pyg:FakeDataset")
    assert graph.num_features == 64
    assert graph.num_classes == 10


def test_only_datasets_of_one_graph(
    make_npz: MakeNpz, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_npz(RAW)
    monkeypatch.setattr(Amazon, "__len__", lambda self: 3)
    with pytest.raises(DataError, match="Amazon/Photo holds 3 graphs; choose a dataset of one"):
        load("pyg:Amazon/Photo", tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pyg:Amazn/Photo", r"PyG has no dataset class 'Amazn'; did you mean Amazon\?"),
        ("pyg:download_url", r"PyG has no dataset class 'download_url'\."),
        ("pyg:", r"PyG has no dataset class ''\."),
        ("pyg:Amazon", r"PyG's Amazon needs a name; write pyg:Amazon/NAME\."),
        ("pyg:KarateClub/Photo", r"PyG's KarateClub takes no name; write pyg:KarateClub\."),
        ("pyg:Amazon/Nothing", r"PyG cannot load Amazon/Nothing \(AssertionError\)\."),
        ("pyg:KarateClub", r"pyg:KarateClub: class \d has fewer than 5 nodes"),
    ],
)
def test_faulty_requests(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        load(name, tmp_path)
