"""What a field of a record may hold: the kinds of JSON values, and a check of whole entries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

Kind: TypeAlias = Callable[[Any], bool]

LARGEST = 1e150  # squares, differences and ratios of such numbers are still finite


def whole(value: Any) -> bool:
    """A whole number of 64 bits at most."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def switch(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def number(value: Any) -> bool:
    """A number that can be reckoned with."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and -LARGEST <= value <= LARGEST


def positive(value: Any) -> bool:
    """A number that can be divided by."""
    return number(value) and value >= 1 / LARGEST


def text(value: Any) -> bool:
    """Text that can be written to a file: without halves of characters."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


def optional(kind: Kind) -> Kind:
    """That kind, or null."""
    return lambda value: value is None or kind(value)


def listed(kind: Kind, least: int = 1) -> Kind:
    """A list of ``least`` or more of that kind."""
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(kind, value))


def named(kind: Kind) -> Kind:
    """An object of values of that kind."""
    return lambda value: (
        isinstance(value, dict) and all(map(text, value)) and all(map(kind, value.values()))
    )


def one_of(known: Collection[str]) -> Kind:
    """One of these texts."""
    return lambda value: isinstance(value, str) and value in known


# What every measurement names; see `machine.surroundings`.
SURROUNDINGS: Mapping[str, Kind] = {
    "device": text,
    "versions": named(text),
    "commit": optional(text),
    "date": text,
}


def check(entry: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Raise a ``ValueError`` unless all these fields are there, and of their kind."""
    for name, kind in kinds.items():
        if name not in entry or not kind(entry[name]):
            raise ValueError(f"The field {name!r} is missing or of the wrong kind.")
