"""Where a run takes place: versions, device and commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
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
