"""Files of ``torch.save`` from outside: read without running any code in the file.

A file is a zip archive of one pickle and of the bytes of its tensors. Before torch loads it, its
pickle is gone through with stand-ins for all that it names: names that are not on the list, and
tensors that are not as large as they declare, are found without calling or allocating anything.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.serialization import get_safe_globals, safe_globals

from graphrelu.lab.data.archives import open_archive
from graphrelu.lab.data.graph import quiet_csr, require

STORAGE_BYTES = {  # of a number
    f"torch.{kind}Storage": num_bytes
    for num_bytes, kinds in {
        1: ("Bool", "Byte", "Char"),
        2: ("BFloat16", "Half", "Short"),
        4: ("Float", "Int"),
        8: ("ComplexFloat", "Double", "Long"),
        16: ("ComplexDouble",),
    }.items()
    for kind in kinds
} | {"torch.storage.UntypedStorage": 1}
DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("bfloat16", "float16", "float32", "float64"),
)
# What a pickle may name: tensors, dense, sparse and of a subclass, and their parts.
TENSORS = {
    *("collections.OrderedDict", "torch.Size", "torch.device", "torch.serialization._get_layout"),
    *("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"),
    *("torch._utils._rebuild_parameter", "torch._utils._rebuild_sparse_tensor"),
    *("torch._utils._rebuild_wrapper_subclass", "torch._tensor._rebuild_from_type_v2"),
    *STORAGE_BYTES,
    *(f"torch.{dtype}" for dtype in DTYPES),
}
# What torch's own unpickler for weights understands; of the others some allocate what they ask for.
OPCODES = """
    PROTO STOP MARK GLOBAL NEWOBJ REDUCE BUILD BINPERSID APPEND APPENDS SETITEM SETITEMS
    TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWFALSE NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET
    BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING
    BINGET LONG_BINGET BINPUT LONG_BINPUT
"""


def load_checkpoint(path: Path, classes: Collection[type] = ()) -> Any:
    """What ``torch.save`` wrote: tensors, plain values and objects of these classes, on the CPU.

    Raises:
        pickle.UnpicklingError: If the file names anything else. Other exceptions are torch's.
    """
    allowed = TENSORS | {f"{part.__module__}.{part.__qualname__}" for part in classes}
    with path.open("rb") as stream:
        with open_archive(stream, path) as archive:
            _check_records(archive, path, allowed)
        stream.seek(0)
        # Only the parts that are not declared safe yet: on leaving, all those listed are forgotten.
        parts = set(classes) - set(get_safe_globals())
        # torch does not check the indices of sparse tensors unless it is told to.
        checked = torch.sparse.check_sparse_tensor_invariants()
        with safe_globals(list(parts)), quiet_csr(), checked:
            return torch.load(stream, map_location="cpu", weights_only=True)


def _check_records(archive: zipfile.ZipFile, path: Path, allowed: Collection[str]) -> None:
    entries = archive.infolist()
    root = entries[0].filename.partition("/")[0] + "/" if entries else ""
    # torch's reader of archives is not Python's: a file that they might see differently is refused.
    in_order = (
        f"{root}data.pkl" in archive.namelist()
        and min(entry.header_offset for entry in entries) == 0
        and archive.comment == b""
        and all(
            entry.filename.startswith(root)
            and entry.compress_type == zipfile.ZIP_STORED
            and entry.file_size == entry.compress_size
            for entry in entries
        )
    )
    require(in_order, f"{path} is not a file that torch.save writes.")
    sizes = {entry.filename.removeprefix(root): entry.file_size for entry in entries}
    _DryRun(archive.read(f"{root}data.pkl"), allowed, sizes).load()


class _StandIn:
    """Takes the place of a class or a function that a pickle names; calling it does nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _StandIn:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _Storage(NamedTuple):
    """Takes the place of a kind of storage; it cannot be called, as that would allocate."""

    num_bytes: int


class _Names(dict[Any, Any]):
    """A dictionary by names or numbers: to hash nested tuples can take for ever."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (str, int)):
            raise pickle.UnpicklingError("it has keys that are no names")
        super().__setitem__(key, value)


# The one in Python: that in C allocates what a position in its memo asks for.
class _DryRun(pickle._Unpickler):
    """Goes through a pickle, and raises unless torch may load it."""

    dispatch = {  # noqa: RUF012
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in OPCODES.split())
    }

    def __init__(self, content: bytes, allowed: Collection[str], sizes: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(content))
        self._allowed, self._sizes = allowed, sizes

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in self._allowed:
            raise pickle.UnpicklingError(f"it names {full}")
        if full in STORAGE_BYTES:
            return _Storage(STORAGE_BYTES[full])
        return _Names if full == "collections.OrderedDict" else type("_Part", (_StandIn,), {})

    def persistent_load(self, pid: Any) -> Any:
        kind, storage, key, _, numel = pid
        if kind != "storage" or numel * storage.num_bytes != self._sizes[f"data/{key}"]:
            raise pickle.UnpicklingError(f"its tensor {key} does not hold what it declares")
        return _StandIn()

    def _load_names(self) -> None:
        self.append(_Names())  # type: ignore[attr-defined]

    dispatch[pickle.EMPTY_DICT[0]] = _load_names  # type: ignore[assignment]
