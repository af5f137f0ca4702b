"""The laboratory: honest comparisons of activation functions, on top of the library.

Its doors are :func:`compare`, and the command ``graphrelu``.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__all__ = ["compare"]

PACKAGES = ("typer", "rich", "scipy", "sklearn", "pandas")
INSTALL = 'pip install "graphrelu[lab]"'

if TYPE_CHECKING:
    from graphrelu.lab.own_model import compare


def __getattr__(name: str) -> Any:
    """Imported only when needed, as every module of the laboratory imports this one first."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if lacking := missing():
        raise ImportError(f"graphrelu.lab.{name} needs {lacking}: {INSTALL}.")
    return getattr(import_module("graphrelu.lab.own_model"), name)


def missing() -> str | None:
    """A package of the extra ``lab`` that is not installed."""
    return next((package for package in PACKAGES if find_spec(package) is None), None)


def main() -> None:
    """Run the command line, or say what to install."""
    if lacking := missing():
        print(f"The command line needs {lacking}: {INSTALL}.", file=sys.stderr)
        sys.exit(2)
    # For torch, which is imported later: threads that wait for each other sleep soon, instead of
    # keeping a core from whoever else is busy on this machine.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        from graphrelu.lab.cli import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())
