"""Makes the records of `results/`, one table after the other.

`python scripts/records.py deep strong --seconds 500` goes on where the records end, and so does the
same command again. A small model does not fill a GPU: several processes train at once. On a GPU
start NVIDIA's MPS first (`nvidia-cuda-mps-control -d`), or the processes wait for each other.
Experiments that measure time (`runtime`) are not here.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CITATION, SOCIAL = "cora,citeseer,pubmed", "blogcatalog,flickr"
# Name -> arguments of `graphrelu reproduce`.
EXPERIMENTS: dict[str, list[str]] = {
    "deep": ["deep"],
    "strong": ["strong"],
    "citation": ["node", "--datasets", CITATION, "--runs", "100"],
    "social": ["node", "--datasets", SOCIAL, "--runs", "30"],
    "tuned": ["tuned"],
    "graph": ["graph"],
    "structure": ["structure"],
    "ablation": ["ablation"],
    "segments": ["segments"],
}


def commands(names: Sequence[str], folder: Path, processes: int) -> list[list[str]]:
    """The arguments of `graphrelu` for each table, but for the time."""
    own = ["--engine", str(processes)]
    return [
        [
            "reproduce",
            *EXPERIMENTS[name],
            "--out",
            str(folder / f"{EXPERIMENTS[name][0]}.jsonl"),
            *own,
        ]
        for name in names
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(EXPERIMENTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=3_600, help="for all (default: 3600)")
    parser.add_argument("--processes", type=int, default=8, help="at once (default: 8)")
    parser.add_argument("--folder", type=Path, default=Path("results"), help="of the records")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"names must be some of {', '.join(EXPERIMENTS)}, got {unknown[0]!r}.")
    os.environ["OMP_NUM_THREADS"] = "1"  # of each process
    deadline = time.monotonic() + options.seconds
    names = options.names or list(EXPERIMENTS)
    for arguments in commands(names, options.folder, options.processes):
        left = max(1.0, deadline - time.monotonic())
        command = [sys.executable, "-m", "graphrelu.lab", *arguments, "--seconds", f"{left:.0f}"]
        if code := subprocess.run(command, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
