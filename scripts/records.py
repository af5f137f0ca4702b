"""Makes the records of `results/`, one table after the other.

`python scripts/records.py deep strong --seconds 500` goes on where the records end, and so does the
same command again. A small model does not fill a GPU: several processes train at once. On a GPU
start NVIDIA's MPS first (`nvidia-cuda-mps-control -d`), or the processes wait for each other.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

# Name -> arguments of `graphrelu reproduce`.
EXPERIMENTS: dict[str, list[str]] = {
    "deep": ["deep"],
    "strong": ["strong"],
    "citation": ["node", "--datasets", "cora,citeseer,pubmed", "--runs", "100"],
    "social": ["node", "--datasets", "blogcatalog,flickr", "--runs", "30"],
    "tuned": ["tuned"],
    "graph": ["graph"],
    "structure": ["structure"],
    "ablation": ["ablation"],
    "segments": ["segments"],
}


def command(name: str, folder: Path, processes: int, seconds: str) -> list[str]:
    """The arguments of `graphrelu` for a table."""
    record = folder / f"{EXPERIMENTS[name][0]}.jsonl"
    rest = ["--out", str(record), "--engine", str(processes), "--seconds", seconds]
    return ["reproduce", *EXPERIMENTS[name], *rest]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(EXPERIMENTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=3_600, help="for all (default: 3600)")
    parser.add_argument("--processes", type=int, default=8, help="at once (default: 8)")
    parser.add_argument("--folder", type=Path, default=Path("results"), help="of the records")
    options = parser.parse_args()
    if unknown := set(options.names) - set(EXPERIMENTS):
        parser.error(f"names must be some of {', '.join(EXPERIMENTS)}, got {unknown.pop()!r}.")
    os.environ["OMP_NUM_THREADS"] = "1"  # of each process
    deadline = time.monotonic() + options.seconds
    for name in options.names or EXPERIMENTS:
        seconds = f"{max(1.0, deadline - time.monotonic()):.0f}"
        arguments = command(name, options.folder, options.processes, seconds)
        done = subprocess.run([sys.executable, "-m", "graphrelu.lab", *arguments], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
