"""Values of records, by the types that their classes declare: what JSON may hold, and must."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

LARGEST = 1e150  # squares, differences and ratios of such numbers are still finite

types_of = cache(get_type_hints)  # the declared type of each field of a class


def fits(kind: Any, value: Any) -> bool:
    """Whether a plain value is of a declared type, and can be computed with and written down."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, (int, float)) and -LARGEST <= value <= LARGEST
    if kind is int:  # of 64 bits at most
        return isinstance(value, int) and abs(value) < 2**63
    # Without lone surrogates, which no file takes.
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def read(kind: Any, value: Any) -> Any:
    """A value of a declared type from JSON, where null stands for NaN; else a ``ValueError``."""
    parts, origin, has_fields = get_args(kind), get_origin(kind), is_dataclass(kind)
    if value is None and (kind is float or NoneType in parts):
        return math.nan if kind is float else None
    if NoneType in parts:
        return read(parts[0], value)
    if origin is list and isinstance(value, list):
        return [read(parts[0], one) for one in value]
    if origin is dict and isinstance(value, dict):
        return {read(parts[0], name): read(parts[1], one) for name, one in value.items()}
    if has_fields and isinstance(value, dict):
        return kind(**read_fields(kind, value))
    if origin in (list, dict) or has_fields or not fits(kind, value):
        raise ValueError(f"{value!r} is not what was expected.")
    return float(value) if kind is float else value


def read_fields(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass, from JSON."""
    types = types_of(kind)
    return {name: read(types[name], value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """The JSON value that :func:`read` takes back."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else value
