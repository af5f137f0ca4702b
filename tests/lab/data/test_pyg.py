"""Any dataset class of PyG's, run where it leaves no trace."""

from __future__ import annotations

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


def test_a_failed_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(self: Amazon) -> None:
        raise OSError("no network")

    monkeypatch.setattr(Amazon, "download", download)
    with pytest.raises(DataError) as caught:
        load("pyg:Amazon/Photo", tmp_path)
    assert str(caught.value) == (
        "PyG cannot load Amazon/Photo (no network); if a download broke off, remove "
        f"{tmp_path / 'Amazon/Photo'} and try again."
    )


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
        ("pyg:Amazn/Photo", r"PyG has no dataset class 'Amazn' \(did you mean Amazon\?\)\."),
        ("pyg:download_url", r"PyG has no dataset class 'download_url'\."),
        ("pyg:", r"PyG has no dataset class ''\."),
        ("pyg:Amazon", r"PyG's Amazon needs a name; write pyg:Amazon/NAME\."),
        ("pyg:KarateClub/Photo", r"PyG's KarateClub takes no name; write pyg:KarateClub\."),
        ("pyg:Amazon/Nothing", r"PyG cannot load Amazon/Nothing \(AssertionError\); if a "),
        ("pyg:KarateClub", r"pyg:KarateClub: class \d has fewer than 5 nodes"),
    ],
)
def test_faulty_requests(name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        load(name, tmp_path)
