"""What a command leaves: files, checked before any work and never half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def check_file(path: Path) -> Path:
    """The path, if a file can be written there; this writes nothing."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} cannot be written, as it is not a regular file.")
    check_folder(path.parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{path} cannot be written (permission denied).")
    return path


def check_folder(path: Path) -> Path:
    """The path, if files can be written below it; missing folders are made later."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        what = "it" if existing == path else str(existing)
        raise ValueError(f"{path} cannot be a folder, as {what} is a file.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written to (permission denied in {existing}).")
    return path


def check_record(path: Path) -> Path:
    """The path, if runs can be added there: nothing is added to a file of another kind."""
    check_file(path)
    if path.exists():
        content = path.read_bytes()
        if content and not any(line.startswith(b'{"event":') for line in content.splitlines()):
            raise ValueError(f"{path} is not a record of runs; choose another file.")
    return path


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors of the system, such as a full disk, name the file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def complete(path: Path) -> Iterator[Path]:
    """A temporary file that gets its own name once it is complete."""
    target = path.resolve()  # a link stays a link
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with named(path):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield part
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """A file, complete or not at all."""
    with complete(path) as part:
        part.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """A text, complete or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Standard JSON, without NaN."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
