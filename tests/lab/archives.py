"""Archives built byte by byte, as no library would write them."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HEADER = "{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"


def npy(
    shape: object, descr: str = "<i8", data: bytes = b"", version: bytes = b"\x01\x00"
) -> bytes:
    """A ``.npy`` file that declares whatever it is told to."""
    header = HEADER.format(descr=descr, shape=shape).encode() + b"\n"
    length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return np.lib.format.MAGIC_PREFIX + version + length + header + data


def with_entry(path: Path, key: str, content: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    """The same archive with one entry replaced."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()} | {key: content}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, old in entries.items():
            archive.writestr(name, old)
    return path


def pt_of(path: Path, pickled: bytes, storages: Mapping[str, bytes] | None = None) -> Path:
    """A file of ``torch.save`` with a pickle of our own."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for key, content in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", content)
        archive.writestr("archive/version", b"3\n")
    return path


class Named:
    """The name of a function or class, and what it is to be called with."""

    def __init__(self, module: str, name: str, *arguments: object) -> None:
        self.module, self.name, self.arguments = module, name, arguments


def pickled(value: Any) -> bytes:
    """A pickle in protocol 2 of dictionaries, lists, tuples, plain values, names and storages."""
    return b"\x80\x02" + _push(value) + b"."


def _push(value: Any) -> bytes:
    if isinstance(value, Named):
        name = f"c{value.module}\n{value.name}\n".encode()
        return name + _push(value.arguments) + b"R"
    if isinstance(value, dict):
        return b"}(" + b"".join(_push(key) + _push(value[key]) for key in value) + b"u"
    if isinstance(value, (tuple, list)):
        opening, ending = (b"(", b"t") if isinstance(value, tuple) else (b"](", b"e")
        return opening + b"".join(map(_push, value)) + ending
    # A plain value: Python's own, without the protocol's two bytes and the final dot. A position
    # of its memo is used by nobody.
    return pickle.dumps(value, protocol=2)[2:-1]
