"""Files from outside: their size is checked first, and no code in them is run."""

from __future__ import annotations

import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from graphrelu.lab.data import DataError, load, own_files
from tests.lab.archives import Named, npy, pickled, pt_of, with_entry

MakeNpz = Callable[..., Path]
MIB = 2**20


def refused(path: Path, most: int = 4 * MIB) -> str:
    """The one sentence that a file costs, for little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            load(str(path))
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert path.name in text
    assert text.endswith(".")
    assert "\n" not in text
    return text


def saved(path: Path, **fields: Any) -> Path:
    """A ring of twelve nodes in a file of torch.save."""
    node = torch.arange(12)
    edges = torch.stack([node, (node + 1) % 12])
    content = {"x": torch.rand(12, 3), "edge_index": edges, "y": node % 2} | fields
    torch.save(Data(**content), path)
    return path


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_shape_beyond_the_bytes(make_npz: MakeNpz, kind: int) -> None:
    path = with_entry(make_npz(), "labels.npy", npy((10**12,), data=bytes(96)), kind)
    assert "cannot be read as an .npz file" in refused(path, most=10**14)  # reserved, not used


def test_a_bomb_is_refused_by_its_sizes(make_npz: MakeNpz, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of zeros in some 16 KiB, where 8 MiB are allowed."""
    monkeypatch.setenv(own_files.MOST_GIB_VARIABLE, str(8 / 1024))
    bomb = npy((2 * MIB,), data=bytes(16 * MIB))
    path = with_entry(make_npz(), "labels.npy", bomb, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20 * 2**10
    sentence = "declares 0.02 GiB, more than the 0.0078125 that are allowed; set GRAPHRELU_MOST_GIB"
    assert sentence in refused(path)


@pytest.mark.parametrize("text", ["nan", "-1", "much"])
def test_a_limit_that_is_no_number(
    make_npz: MakeNpz, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(own_files.MOST_GIB_VARIABLE, text)
    with pytest.raises(ValueError, match=f"must be a positive number, not '{text}'"):
        load(str(make_npz()))


def test_pickled_objects_in_an_npz(make_npz: MakeNpz) -> None:
    path = with_entry(make_npz(), "labels.npy", npy((1,), "|O", pickle.dumps([1])))
    assert "cannot be read as an .npz file" in refused(path)


@pytest.mark.parametrize("module", ["posix", "builtins", "torch.hub"])
def test_a_pickle_that_would_run_something(module: str, tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    name = {"builtins": "exec", "torch.hub": "download_url_to_file"}.get(module, "system")
    command = f"open({str(trap)!r}, 'w').close()" if name == "exec" else f"touch {trap}"
    path = pt_of(tmp_path / "x.pt", pickled({"x": Named(module, name, command)}))
    with zipfile.ZipFile(path) as archive:
        inside = archive.read("archive/data.pkl")
    if name != "download_url_to_file":
        pickle.loads(inside)  # the trap is one
        assert trap.exists()
        trap.unlink()
    assert "more than tensors" in refused(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"edge_index": EdgeIndex(torch.tensor([[0, 1], [1, 2]]))},
        {"y": (torch.arange(12) % 2).to(torch.uint16), "x": torch.nn.Parameter(torch.rand(12, 3))},
        {"x": torch.rand(3, 12).t().half(), "name": "ring", "more": [torch.rand(2).cfloat()]},
    ],
)
def test_usual_files(tmp_path: Path, fields: dict[str, Any]) -> None:
    graph = load(str(saved(tmp_path / "x.pt", **fields)))
    assert type(graph.edge_index) is type(graph.x) is torch.Tensor
    assert not graph.x.requires_grad


def test_a_tensor_larger_than_its_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", x=torch.ones(1).expand(12, 2**40))
    assert "GiB, more than the 8 that are allowed" in refused(path)


def test_indices_beyond_a_sparse_matrix(tmp_path: Path) -> None:
    x = torch.sparse_coo_tensor(
        torch.tensor([[0], [99]]), torch.ones(1), (12, 3), check_invariants=False
    )
    assert "cannot be loaded" in refused(saved(tmp_path / "x.pt", x=x))


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x02.", b"\x80\x02" + 10_000 * b"("])
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    refused(pt_of(tmp_path / "x.pt", content), most=32 * MIB)
    (tmp_path / "y.pt").write_bytes(content)
    refused(tmp_path / "y.pt", most=32 * MIB)
