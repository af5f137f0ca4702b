"""Archives that lie: refused by what they declare, before anything is unpacked."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graphrelu.lab.data import DataError, archives, load
from tests.lab.archives import npy, overlapping, rewritten, with_entry

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


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_shape_beyond_the_bytes(make_npz: MakeNpz, kind: int) -> None:
    path = with_entry(make_npz(), "labels.npy", npy((10**12,), data=bytes(96)), kind)
    sentence = "labels.npy declares the shape (1000000000000,) of int64, which does not fit"
    assert sentence in refused(path)


def test_a_bomb_is_refused_by_its_sizes(make_npz: MakeNpz, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB of zeros in some 16 KiB, where 8 MiB are allowed."""
    monkeypatch.setenv(archives.MOST_GIB_VARIABLE, str(8 / 1024))
    bomb = npy((2 * MIB,), data=bytes(16 * MIB))
    path = with_entry(make_npz(), "labels.npy", bomb, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20 * 2**10
    sentence = "declares 0.02 GiB, more than the 0.0078125 that are allowed; set GRAPHRELU_MOST_GIB"
    assert sentence in refused(path)


def test_a_bomb_whose_directory_lies(make_npz: MakeNpz) -> None:
    """The directory says 160 bytes, the stream holds 16 MiB: no more than it says is unpacked."""
    bomb = npy((12,), data=bytes(16 * MIB))
    path = with_entry(make_npz(), "labels.npy", bomb, zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    size = struct.pack("<I", len(bomb))
    honest = struct.pack("<I", len(npy((12,), data=bytes(96))))
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, honest))
    assert "cannot be read as an .npz file (Bad CRC-32" in refused(path)


def test_a_huge_entry_by_zip64(make_npz: MakeNpz) -> None:
    """An entry of 2**50 bytes, as the extra field for large files spells it."""
    path = make_npz()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.npy", b"")
        archive.infolist()[-1].file_size = 2**50
    assert "declares 1,048,576.00 GiB, more than the 8 that are allowed" in refused(path)


def test_overlapping_and_repeated_entries(make_npz: MakeNpz, tmp_path: Path) -> None:
    path = overlapping(tmp_path / "both.npz", "labels.npy", npy((2,), data=bytes(16)))
    assert "overlaps with another." in refused(path)
    path = rewritten(make_npz(), lambda _, data: data, more={"LABELS.npy": b""})
    assert "holds several entries of one name." in refused(path)


def test_an_archive_in_an_archive(make_npz: MakeNpz) -> None:
    only_that = rewritten(make_npz(), lambda *_: None, more={"a.npz": b"PK"})
    assert "is of no known layout; known are .npz files with" in refused(only_that)
    path = make_npz()
    path = with_entry(path, "labels.npy", path.read_bytes())
    assert "cannot be read as an .npz file (the magic string is not correct" in refused(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (npy((12,), "|O", bytes(96)), "labels.npy holds pickled objects, which are not read."),
        (npy((-12,), data=bytes(96)), "declares the shape (-12,) of int64"),
        (npy("(" * 3_000 + ")" * 3_000), "cannot be read as an .npz file ("),
        (npy("{{'a': 1}}"), "cannot be read as an .npz file ("),
        (npy((12,), "[('a', 3", bytes(96)), "cannot be read as an .npz file ("),
        (npy((12,), data=bytes(96), version=b"\x02\x00"), "is not an array of plain numbers."),
        # What the fuzzer found: numpy gives up on a header that is half of a statement.
        (npy("(12,)").replace(b"}", b" "), "cannot be read as an .npz file ("),
        (b"", "cannot be read as an .npz file ("),
    ],
)
def test_headers(make_npz: MakeNpz, content: bytes, sentence: str) -> None:
    assert sentence in refused(with_entry(make_npz(), "labels.npy", content))


def test_an_encrypted_entry(make_npz: MakeNpz) -> None:
    path = make_npz()
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "is encrypted, password required" in refused(path)


def test_what_is_not_asked_for_is_not_read(make_npz: MakeNpz) -> None:
    assert load(str(make_npz(thesis=np.array([None])))).num_nodes == 12


@pytest.mark.parametrize("text", ["many", "0", "-1", "nan"])
def test_a_limit_without_a_meaning(
    make_npz: MakeNpz, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(archives.MOST_GIB_VARIABLE, text)
    with pytest.raises(ValueError, match=f"MOST_GIB must be a positive number, not '{text}'"):
        load(str(make_npz()))
