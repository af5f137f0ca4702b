"""A file of lines that several processes add to, and that survives being killed in mid-write."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


class Journal:
    """Lines are only ever added. One is complete once its newline is there.

    Attributes:
        lines: How many complete lines were read so far.
        torn: Whether there was an incomplete one after them, at the last look.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lines = 0
        self.torn = False
        self._offset = 0

    def news(self) -> list[bytes]:
        """The complete lines that were added since the last look."""
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
        return complete

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes from writing; whatever is in the file then ends in a newline."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(self.path.name + ".lock").open("ab") as lock:
            if fcntl is None:
                warnings.warn(
                    f"This system has no file locks: let only one process write to {self.path}.",
                    RuntimeWarning,
                    stacklevel=4,
                )
            else:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
            self._end_torn_line()
            yield

    def write(self, lines: Sequence[str]) -> None:
        """Add lines, under :meth:`exclusive`; on return they are on the disk."""
        self._add("".join(line + "\n" for line in lines).encode())

    def _end_torn_line(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        if torn:
            self._add(b"\n")

    def _add(self, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
