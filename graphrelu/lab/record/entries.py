"""A record of plain objects, one JSON line for each: such as timings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrelu.lab.record import kinds
from graphrelu.lab.record.journal import Journal, parse_line

Entry = dict[str, Any]


@dataclass(frozen=True)
class Entries:
    """Objects of one kind, ``event``, that are told apart by some of their fields.

    Lines are only ever added. A line that a killed process left incomplete, one of another kind,
    and one whose ``fields`` are not what they must be, is not data.
    """

    path: Path
    event: str
    identity: Sequence[str]
    fields: Mapping[str, kinds.Kind] = field(default_factory=dict)

    def read(self) -> list[Entry]:
        """All objects in the order of the file; of the same identity, the first."""
        found: dict[tuple[Any, ...], Entry] = {}
        for line in Journal(self.path).news():
            try:
                entry = parse_line(line)
                if entry.pop("event") == self.event:
                    kinds.check(entry, self.fields)
                    found.setdefault(self.key(entry), entry)
            except (KeyError, TypeError, ValueError):
                continue
        return list(found.values())

    def required(self) -> list[Entry]:
        """All objects; a ``ValueError`` if there are none."""
        entries = self.read()
        if not entries:
            raise ValueError(f"{self.path} has nothing to draw yet: no line is {self.event!r}.")
        return entries

    def append(self, entries: Iterable[Entry]) -> None:
        """Write objects; on return they are on the disk."""
        journal = Journal(self.path)
        with journal.exclusive():
            journal.write(self.event, entries)

    def key(self, entry: Entry) -> tuple[Any, ...]:
        """The values that identify an object."""
        return tuple(entry[name] for name in self.identity)


def origin(entries: Sequence[Entry], source: str, what: str) -> str:
    """Where the numbers of a page come from."""
    devices = ", ".join(sorted({entry["device"] for entry in entries}))
    versions = ", ".join(sorted({f"torch {entry['versions'].get('torch')}" for entry in entries}))
    number = f"{len(entries):,} {what}{'' if len(entries) == 1 else 's'}"
    return f"Made from `{source}`: {number} ({devices}; {versions})."
