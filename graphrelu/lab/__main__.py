"""The command ``graphrelu``, also as ``python -m graphrelu.lab``."""

from __future__ import annotations

import sys

PACKAGES = ("typer", "rich", "scipy")


def main() -> None:
    """Run the command line, or say what to install."""
    try:
        import scipy  # noqa: F401  # needed late, but better missed early

        from graphrelu.lab.cli import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        print(
            f'The command line needs {error.name}: pip install "graphrelu[lab]".', file=sys.stderr
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
