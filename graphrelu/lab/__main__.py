"""The command ``graphrelu``, also as ``python -m graphrelu.lab``."""

from __future__ import annotations

import os
import sys

from graphrelu.lab import INSTALL, missing


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


if __name__ == "__main__":
    main()
