"""Files of torch.save: nothing in them is run, and nothing is allocated that is not there."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from graphrelu.lab.data import DataError, checkpoints, load
from graphrelu.lab.data.checkpoints import load_checkpoint
from tests.lab.archives import Named, Storage, pickled, pt_of, rewritten, tensor
from tests.lab.data.test_archives import refused

FLOATS = bytes(48)


def test_what_is_built_here_is_what_torch_loads(tmp_path: Path) -> None:
    content = {"a": tensor(Storage("0", 12), (4, 3), (3, 1)), "b": [1, None, "x"]}
    path = pt_of(tmp_path / "x.pt", pickled(content), {"0": FLOATS})
    found = load_checkpoint(path)
    assert found["b"] == [1, None, "x"]
    assert torch.equal(found["a"], torch.zeros(4, 3))


@pytest.mark.parametrize("module", ["os", "posix", "builtins", "torch.hub"])
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
    sentence = refused(path)
    assert f"more than tensors (it names {module}.{name}), and nothing of it was run" in sentence
    assert not trap.exists()


def test_even_what_torch_allows(tmp_path: Path) -> None:
    """Names that torch or PyG declare safe, and a storage to be allocated: not on our list."""
    for named in (
        Named("torch.storage", "UntypedStorage", 2**40),
        Named("torch", "FloatStorage", 2**40),
        Named("torch.distributed.tensor", "DTensor"),
        Named("torch_geometric.data.hetero_data", "HeteroData"),
    ):
        refused(pt_of(tmp_path / "x.pt", pickled({"x": named})))


@pytest.mark.parametrize(
    ("numel", "size", "stride"),
    [
        (13, (12,), (1,)),  # more than there is
        (11, (11,), (1,)),  # less
        (2**40, (2**40,), (1,)),
        (-12, (12,), (1,)),
        (12.0, (12,), (1,)),
        (None, (12,), (1,)),
        (12, (13,), (1,)),  # a tensor beyond its storage
        (12, (3, 4), (4, 4)),
        (12, (12,), (-1,)),
        (12, (2**62, 4), (1, 0)),
    ],
)
def test_declared_sizes(numel: object, size: Any, stride: Any, tmp_path: Path) -> None:
    content = pickled({"x": tensor(Storage("0", numel), size, stride)})
    refused(pt_of(tmp_path / "x.pt", content, {"0": FLOATS}))


def saved(path: Path, **fields: Any) -> Path:
    """A Data object of twelve nodes, whose fields can be replaced."""
    row = torch.arange(12)
    edges = torch.stack([row, (row + 1) % 12])
    torch.save(Data(**{"x": torch.rand(12, 3), "edge_index": edges, "y": row % 2} | fields), path)
    return path


def test_a_tensor_larger_than_its_bytes(tmp_path: Path) -> None:
    """One number that stands for terabytes: valid for torch, refused by its declared shape."""
    wide = torch.sparse_coo_tensor(torch.zeros(2, 1).long(), torch.ones(1), (12, 2**40))
    for fields, gib in (
        ({"x": torch.zeros(1).expand(12, 2**40)}, "49,152.00"),
        ({"y": torch.zeros(1, dtype=torch.long).expand(2**40)}, "8,192.00"),
        ({"x": wide}, "4,096.00"),
    ):
        sentence = f"declares {gib} GiB, more than the 8 that are allowed"
        assert sentence in refused(saved(tmp_path / "x.pt", **fields))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_sparse_features_out_of_range(layout: str, tmp_path: Path) -> None:
    """Some versions of torch load them unchecked, and read out of bounds once they are used."""
    columns, rest = torch.full((12,), 3), (torch.ones(12), (12, 3))
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        if layout == "csr":
            wrong = torch.sparse_csr_tensor(torch.arange(13), columns, *rest)
        else:
            wrong = torch.sparse_coo_tensor(torch.stack([torch.arange(12), columns]), *rest)
    assert "cannot be loaded (" in refused(saved(tmp_path / "x.pt", x=wrong))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"x": torch.rand(12, 3, dtype=torch.cfloat)}, "x must be a plain tensor of numbers."),
        ({"x": torch.rand(12, 3, device="meta")}, "more than tensors"),
        ({"x": "text"}, "x must be a plain tensor of numbers."),
        ({"x": [torch.rand(3)]}, "x must be a plain tensor of numbers."),
        ({"y": torch.eye(12).to_sparse()}, "y must be a plain tensor of numbers."),
        ({"x": torch.rand(0, 3), "y": torch.zeros(0)}, "has no nodes."),
        ({"edge_index": torch.tensor([[0], [40]], dtype=torch.uint16)}, "an edge names node 40"),
        ({"train_mask": torch.full((12,), torch.nan)}, "train_mask must hold true and false only."),
        ({"edge_weight": torch.full((12,), torch.nan)}, "the edge weights must be finite"),
    ],
)
def test_faulty_fields(fields: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    assert sentence in refused(saved(tmp_path / "x.pt", **fields))


def test_objects_without_their_parts(tmp_path: Path) -> None:
    """A Data object that was never initialised answers no question."""
    for part in ("torch_geometric.data.data\nData", "torch_geometric.data.storage\nGlobalStorage"):
        content = b"\x80\x02c" + part.encode() + b"\n)\x81."
        refused(pt_of(tmp_path / "x.pt", content))


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


@pytest.mark.parametrize(
    "content",
    [
        # A position of the memo for which Python's own unpickler allocates 64 GiB.
        b"\x80\x02}r\xff\xff\xff\x7f.",
        # An array of bytes of 2**40.
        b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
        # A text of 4 GiB.
        b"\x80\x02X\xff\xff\xff\xff.",
        b"",
        b"\x80\x02.",
        b"\x80\x02" + 10_000 * b"(",
        b"\x80\x02" + 10_000 * b"]" + 9_999 * b"a" + b".",
    ],
)
def test_pickles_that_ask_for_memory(content: bytes, tmp_path: Path) -> None:
    refused(pt_of(tmp_path / "x.pt", content), most=32 * 2**20)


def test_keys_that_take_for_ever_to_hash(tmp_path: Path) -> None:
    """A tuple of two of the one before, sixty times: two to the sixtieth to hash it."""
    nested = b")q\x00" + 60 * b"h\x00\x86q\x00"
    path = pt_of(tmp_path / "x.pt", b"\x80\x02}" + nested + b"Ns.")
    assert "it has keys that are no names" in refused(path)


def test_archives_that_torch_and_python_may_see_differently(tmp_path: Path) -> None:
    def in_front(path: Path) -> None:
        path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())

    def commented(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as archive:
            archive.comment = b"my thesis"

    for change in (
        in_front,
        commented,
        lambda path: rewritten(path, lambda _, data: data, zipfile.ZIP_DEFLATED),
        lambda path: rewritten(path, lambda _, data: data, more={"other/x": b""}),
        lambda path: rewritten(path, lambda name, data: data if "pkl" not in name else None),
    ):
        path = saved(tmp_path / "x.pt")
        change(path)
        assert "x.pt is not a file that torch.save writes." in refused(path)


def test_older_formats_are_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    torch.save(Data(), stream, _use_new_zipfile_serialization=False)
    path = tmp_path / "x.pt"
    path.write_bytes(stream.getvalue())
    assert "cannot be loaded (File is not a zip file)" in refused(path)


def test_weights_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def spy(*arguments: Any, **options: Any) -> Any:
        asked.append(options)
        raise DataError("Enough.")

    path = saved(tmp_path / "x.pt")
    monkeypatch.setattr(checkpoints.torch, "load", spy)
    with pytest.raises(DataError, match=r"^Enough\.$"):
        load(str(path))
    assert asked == [{"map_location": "cpu", "weights_only": True}]
