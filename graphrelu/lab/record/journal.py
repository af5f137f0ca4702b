"""A file of lines that one command at a time adds to, and that survives a kill in mid-write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphrelu.lab.record.output import named

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


class Journal:
    """Lines are only added. A line is complete once its newline is written.

    Attributes:
        lines: How many complete lines were read so far.
        torn: Whether there was an incomplete one after them, at the last look.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lines = 0
        self.torn = False
        self._offset = 0
        self._held = False

    def news(self) -> list[dict[str, Any] | None]:
        """The complete lines that were added since the last look; ``None`` for one that is no
        object of standard JSON."""
        content, size = b"", 0
        if self.path.exists():
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(self._offset)
                content = file.read()
        if size < self._offset:
            raise ValueError(f"{self.path} was replaced or cut short while it was in use.")
        *complete, rest = content.split(b"\n")
        self._offset += len(content) - len(rest)
        self.lines += len(complete)
        self.torn = bool(rest)
        return [_object(line) for line in complete]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other commands from writing until the end of the block; a ``ValueError`` where one
        does already.

        The system releases the lock when a process ends, however it ends.
        """
        if self._held:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock_path = self.path.with_name(self.path.name + ".lock")
        with named(self.path), lock_path.open("ab") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ValueError(f"Another command is writing to {self.path}.") from None
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def write(self, event: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add a line for each entry, under :meth:`exclusive`; on return they are on the disk."""
        content = b"".join(
            json.dumps({"event": event, **entry}, separators=(",", ":"), allow_nan=False).encode()
            + b"\n"
            for entry in entries
        )
        with self.path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a torn line ends before this one begins
                    content = b"\n" + content
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of standard JSON.")
