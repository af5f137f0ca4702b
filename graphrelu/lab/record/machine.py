"""The machine of a run: versions, device and commit, and files written whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import graphrelu


def now() -> str:
    """The time in UTC, in ISO form."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def environment() -> dict[str, str]:
    """The versions of all that takes part in a run."""
    versions = {"python": platform.python_version(), "graphrelu": graphrelu.__version__}
    versions["torch"] = str(torch.__version__)
    for package in ("torch_geometric", "numpy", "triton"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def device_name(device: torch.device) -> str:
    """The model of a GPU, or of the processor with the number of threads that torch uses."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return str(device)
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    line = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    model = line[1].strip() if line else platform.processor() or platform.machine()
    return f"{model}, {torch.get_num_threads()} threads"


def surroundings(device: torch.device) -> dict[str, Any]:
    """What a measurement must name: device, versions, commit and date."""
    here = {"device": device_name(device), "versions": environment()}
    return here | {"commit": commit(), "date": now()}


@cache
def commit() -> str | None:
    """The commit of the package's own repository, ``+dirty`` where the package was changed.

    A copy without a repository is told its commit by ``GRAPHRELU_COMMIT``.
    """
    if os.environ.get("GRAPHRELU_COMMIT"):
        return os.environ["GRAPHRELU_COMMIT"]
    package = Path(graphrelu.__file__).resolve().parent
    # An installed package may lie inside a repository that is not its own.
    command = ["git", "--git-dir", str(package.parent / ".git"), "--work-tree", str(package.parent)]
    command += ["status", "--porcelain=v2", "--branch", "--", str(package)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    head = re.match(r"# branch\.oid (\w{40,})\n", done.stdout)  # none before the first commit
    changes = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    return head and head[1] + ("+dirty" if changes else "")


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
