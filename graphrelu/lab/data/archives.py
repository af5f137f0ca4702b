"""Zip archives from outside: the declared sizes are checked before anything is unpacked."""

from __future__ import annotations

import math
import os
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np

from graphrelu.lab.data.graph import require

# How much a file may declare to hold, in GiB of memory, unless the variable says otherwise.
MOST_GIB = 8.0
MOST_GIB_VARIABLE = "GRAPHRELU_MOST_GIB"

LOCAL_HEADER_BYTES = 30  # at least, in front of the data of an entry
NPY_VERSION = (1, 0)  # of arrays of plain numbers; later ones describe structures


def check_size(num_bytes: int, path: Path) -> None:
    """Raise a :class:`DataError` where a file declares more than is allowed."""
    text = os.environ.get(MOST_GIB_VARIABLE) or str(MOST_GIB)
    try:
        most = float(text)
    except ValueError:
        most = math.nan
    if not most > 0:
        raise ValueError(f"{MOST_GIB_VARIABLE} must be a positive number, not {text!r}.")
    require(
        num_bytes <= most * 2**30,
        f"{path} declares {num_bytes / 2**30:,.2f} GiB, more than the {most:g} that are "
        f"allowed; set {MOST_GIB_VARIABLE} to allow more.",
    )


def open_archive(stream: IO[bytes], path: Path) -> zipfile.ZipFile:
    """A zip archive whose entries differ in their names, do not overlap and are not too large."""
    archive = zipfile.ZipFile(stream)
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    # Readers differ in which of several they take, and in whether the case of a letter counts.
    differ = len({entry.filename.casefold() for entry in entries}) == len(entries)
    require(differ, f"{path} holds several entries of one name.")
    ends = [*(entry.header_offset for entry in entries[1:]), archive.start_dir]
    for entry, end in zip(entries, ends, strict=False):
        fits = entry.header_offset + LOCAL_HEADER_BYTES + entry.compress_size <= end
        require(fits, f"{path}: the entry {entry.filename!r} overlaps with another.")
    check_size(sum(entry.file_size for entry in entries), path)
    return archive


def read_arrays(
    stream: IO[bytes], path: Path, wanted: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file, all or those wanted; none is read before all are checked.

    An array must hold as many bytes as its shape declares, and no pickled objects.
    """
    with open_archive(stream, path) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header is Python's syntax, and may be odd
        entries = {
            entry.filename.removesuffix(".npy"): entry
            for entry in archive.infolist()
            if entry.filename.endswith(".npy")
        }
        if wanted is not None:
            entries = {name: entry for name, entry in entries.items() if name in wanted}
        for entry in entries.values():
            _check_header(archive, entry, path)
        arrays = {}
        for name, entry in entries.items():
            with archive.open(entry) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def _check_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    name = f"{path}: {entry.filename}"
    with archive.open(entry) as member:
        plain = np.lib.format.read_magic(member) == NPY_VERSION
        require(plain, f"{name} is not an array of plain numbers.")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        require(not dtype.hasobject, f"{name} holds pickled objects, which are not read.")
        declared = math.prod(shape) * dtype.itemsize
        require(
            min(shape, default=0) >= 0 and member.tell() + declared == entry.file_size,
            f"{name} declares the shape {shape} of {dtype}, which does not fit its "
            f"{entry.file_size:,} bytes.",
        )
