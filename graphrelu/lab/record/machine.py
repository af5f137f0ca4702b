"""Where a run takes place: versions, device, commit, and whether a process is still at work."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import graphrelu
from graphrelu.lab.record import kinds

# How long a process that cannot be looked at, on another host, is taken to be at work.
REMOTE_LIFETIME = timedelta(minutes=30)
START = kinds.optional(kinds.whole)


class MachineError(RuntimeError):
    """What a machine failed at, in one sentence: there is nothing wrong with the input."""


@dataclass(frozen=True)
class Process:
    """A process that can be told from a later one with the same number.

    ``host`` is a digest of the host's name: records are published. ``start`` counts clock ticks
    from the boot to the start of the process; ``None`` where the system does not tell.
    """

    host: str
    pid: int
    start: int | None

    @classmethod
    def current(cls) -> Process:
        stat = _stat(os.getpid())
        return cls(_host(), os.getpid(), stat[1] if stat else None)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Process:
        kinds.check(plain, {"host": kinds.text, "pid": kinds.whole, "start": START})
        if plain["pid"] <= 0:
            raise ValueError(f"There is no process {plain['pid']!r}.")
        return cls(plain["host"], plain["pid"], plain["start"])

    def alive(self, since: datetime) -> bool:
        """Whether the process still runs; on another host, whether ``since`` is less than
        :data:`REMOTE_LIFETIME` ago."""
        # On Windows, os.kill(pid, 0) would interrupt the process instead of looking at it.
        if self.host != _host() or os.name == "nt":
            # Either way: a clock that was wrong by years must not hold a batch for as long.
            return abs(datetime.now(timezone.utc) - since) < REMOTE_LIFETIME
        stat = _stat(self.pid)
        if stat is not None:
            state, start = stat
            return state not in "ZX" and self.start in (None, start)
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass  # it runs, as another user
        return True


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
    named = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    model = named[1].strip() if named else platform.processor() or platform.machine()
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
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed package may lie inside a repository that is not its own.
    if top is None or Path(top).resolve() != package.parent:
        return None
    head = _git(package, "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", str(package))
    if head is None or changes is None:
        return None
    return head + "+dirty" if changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def _stat(pid: int) -> tuple[str, int] | None:
    """A process's state and start, from Linux's /proc; ``None`` where it is not there."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second of the fields is the program's name in brackets, which may hold anything.
    after_name = text.rpartition(")")[2].split()
    return after_name[0], int(after_name[19])
