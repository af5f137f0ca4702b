"""Mutations that keep a file what it is, so that they reach what lies behind the first check."""

from __future__ import annotations

import io
import json
import pickletools
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Mutate = Callable[[bytes], bytes]

# In place of a value in a pickle: numbers of all sizes, other types, other objects of the pickle.
PUSHED = ("BININT1", "BININT2", "BININT", "BINGET", "BINUNICODE", "NEWTRUE", "NEWFALSE", "GLOBAL")
PUSHED += ("EMPTY_TUPLE", "EMPTY_DICT", "TUPLE1", "TUPLE2")
SNIPPETS = (b"K\x00", b"K\x05", b"M\xff\xff", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", b"N")
SNIPPETS += (b"\x88", b")", b"}", b"]", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00", b"X\x01\x00\x00\x00x")
SNIPPETS += (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"ctorch\nSize\n", b"\x85", b"R", b"b")

# In place of a field of a table: numbers of all kinds, words, names of columns, halves of quotes.
FIELDS = (b"", b"0", b"1", b"-1", b"2", b"0.5", b"1e999", b"nan", b"99999999999999999999", b"x")
FIELDS += (
    b'"',
    b'"a,b"',
    b"\xff",
    b"\x00",
    b"label",
    b"label_z",
    b"id",
    b"train",
    b"val_1",
    b"1_0",
)

ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 2, 10**19, 10**400, 0.5, -0.0, 1e300, 1e-300, "", "x")
ODD += ("é\ud800", "<script>", [], [[]], {}, {"a": 1}, [1, 2], [None], [1e308, -1e308], "cora")
ODD += ("relu", "grelu", "folds", "gin_folds", "rocauc", {"layers": 3}, {"K": 4}, {"K": 8})


def rezipped(content: bytes, mutate: Mutate, chance: random.Random) -> bytes:
    """An archive with one entry changed, replaced or left out; at times, the file's bytes are."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
            stored = all(e.compress_type == zipfile.ZIP_STORED for e in archive.infolist())
    except Exception:  # whatever earlier mutations made of it
        return mutate(content)
    if not entries or sum(len(data) for _, data in entries) > 1 << 20 or chance.random() < 0.15:
        return mutate(content)
    # Pickles are the first of an archive's entries.
    at = min(chance.randrange(len(entries)), chance.randrange(len(entries)))
    name, data = entries[at]
    action = chance.random()
    if action < 0.4:
        entries[at] = (name, mutate(data))
    elif action < 0.85:
        entries[at] = (name, _odd_array(chance) if name.endswith(".npy") else _odd(data, chance))
    elif action < 0.95:
        entries[at] = (name, chance.choice(entries)[1])
    else:
        del entries[at]
    stream = io.BytesIO()
    kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, kind)
    return stream.getvalue()


def _odd(pickled: bytes, chance: random.Random) -> bytes:
    """A pickle with a value or two replaced."""
    for _ in range(chance.choice((1, 1, 1, 2))):
        try:
            ops = [(op.name, at) for op, _, at in pickletools.genops(pickled) if at is not None]
        except Exception:  # not a pickle
            return bytes(chance.randrange(256) for _ in pickled)
        ends = [at for _, at in ops[1:]]
        spans = [(at, end) for (op, at), end in zip(ops, ends, strict=False) if op in PUSHED]
        if not spans:
            return pickled
        start, end = chance.choice(spans)
        memo = b"h" + bytes([chance.randrange(64)])
        snippet = chance.choice((memo, memo, *SNIPPETS, pickled[slice(*chance.choice(spans))]))
        pickled = pickled[:start] + snippet + pickled[end:]
    return pickled


def _odd_array(chance: random.Random) -> bytes:
    kinds = ("?", "u1", "i1", "u2", ">i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "U1", "M8[s]")
    shape = chance.choice(((), (0,), (2,), (12,), (13,), (12, 1), (12, 3), (0, 3), (12, 0), (1, 2)))
    size = int(np.prod(shape))
    values = [chance.choice((0, 1, 1, 2, 3, 12, 255, 2**31)) for _ in range(size)]
    if chance.random() < 0.5:
        values = list(range(size))
    with np.errstate(all="ignore"):
        array = np.array(values, dtype=np.int64).reshape(shape).astype(chance.choice(kinds))
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def refielded(content: bytes, mutate: Mutate, chance: random.Random) -> bytes:
    """Lines of fields with one replaced, left out or repeated; at times, the file's bytes are."""
    lines = content.split(b"\n")
    at, action = chance.randrange(len(lines)), chance.random()
    fields = lines[at].split(b",")
    place = chance.randrange(len(fields))
    if action < 0.15:
        return mutate(content)
    if action < 0.7:
        fields[place] = chance.choice((*FIELDS, fields[0], mutate(fields[place])))
    elif action < 0.8:
        del fields[place]
    else:
        fields.insert(place, chance.choice(fields))
    lines[at] = b",".join(fields)
    return b"\n".join(lines)


def relined(content: bytes, mutate: Mutate, chance: random.Random) -> bytes:
    """Lines of JSON with a value replaced, a field or a line left out or repeated."""
    lines = content.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        entry = json.loads(lines[at])
    except (ValueError, RecursionError):
        return mutate(content)
    action = chance.random()
    if action < 0.1 or not isinstance(entry, dict) or not entry:
        return mutate(content)
    if action < 0.9:
        _replace(entry, chance)
        lines[at] = json.dumps(entry).encode()
    elif action < 0.95:
        lines.insert(at, chance.choice(lines))
    else:
        del lines[at]
    return b"\n".join(lines)


def _replace(entry: dict[str, Any] | list[Any], chance: random.Random) -> None:
    key: Any = chance.choice(list(entry) if isinstance(entry, dict) else range(len(entry)))
    inner = entry[key]
    if isinstance(inner, (dict, list)) and inner and chance.random() < 0.6:
        _replace(inner, chance)
    elif chance.random() < 0.1:
        del entry[key]
    else:
        entry[key] = chance.choice(ODD)
