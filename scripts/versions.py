"""Runs the tests on the oldest or the newest versions that pyproject.toml allows: make versions.

In an environment of its own, `.venv-oldest` or `.venv-newest`. The oldest versions are the lower
bounds of the library and the laboratory; the tools of the tests are as new as they come.
"""

import argparse
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
# The compiler of the oldest torch cannot yet follow the library, nor PyG's own models.
NOT_OLDEST = "not compile and not export"
# Said by the oldest versions alone.
WARNINGS = ("ignore:There is a performance drop:UserWarning", "ignore::DeprecationWarning")


def lower_bounds() -> list[str]:
    """Pins of the library's and the laboratory's packages, from the installed metadata."""
    pins = []
    for text in requires("graphrelu") or []:
        requirement = Requirement(text)
        is_ours = requirement.marker is None or requirement.marker.evaluate({"extra": "lab"})
        bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        if is_ours and bounds:  # numpy has none: the others say which they take
            pins.append(f"{requirement.name}=={bounds[0]}")
    return pins


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("oldest", "newest"))
    parser.add_argument("tests", nargs="*", default=["tests"], help="what pytest runs")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to use")
    arguments = parser.parse_args()

    folder = ROOT / f".venv-{arguments.which}"
    python = folder / "bin" / "python"
    subprocess.run([arguments.python, "-m", "venv", "--clear", folder], check=True)
    pins = lower_bounds() if arguments.which == "oldest" else []
    install = [python, "-m", "pip", "install", "--quiet", "--upgrade"]
    subprocess.run([*install, "pip"], check=True)  # an old one takes an hour for old versions
    subprocess.run([*install, "-e", f"{ROOT}[lab,test]", *pins], check=True)
    subprocess.run([python, "--version"], check=True)
    subprocess.run([python, "-m", "pip", "list"], check=True)

    command = [python, "-m", "pytest", "-p", "no:xdist", *arguments.tests]
    if arguments.which == "oldest":
        command += ["-k", NOT_OLDEST]
        for warning in WARNINGS:
            command += ["-W", warning]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
