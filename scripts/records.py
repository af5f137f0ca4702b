"""Makes the records of `results/`, several processes at work on each.

`python scripts/records.py deep strong --seconds 500` goes on where the records end, and so does the
same command again. A small model does not fill a GPU: every process goes through the experiments in
turn and trains what no other process has begun. On a GPU start NVIDIA's MPS first
(`nvidia-cuda-mps-control -d`), or the processes wait for each other. Experiments that measure time
(`runtime`) are not here.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

CITATION, SOCIAL = "cora,citeseer,pubmed", "blogcatalog,flickr"
# Name -> the experiment of `graphrelu reproduce`, how many seeds, and what of it alone is run.
EXPERIMENTS: dict[str, tuple[str, int | None, dict[str, str | None]]] = {
    "deep": ("deep", None, {}),
    "strong": ("strong", None, {}),
    "citation": ("node", 100, {"dataset": CITATION}),
    "social": ("node", 30, {"dataset": SOCIAL}),
    "tuned": ("tuned", None, {}),
    "graph": ("graph", None, {}),
    "gin_paper": ("graph", None, {"split": "gin_paper"}),
    "structure": ("structure", None, {}),
    "ablation": ("ablation", None, {}),
    "segments": ("segments", None, {}),
}


def work(names: Sequence[str], folder: Path, seconds: float) -> None:
    """One process: in each experiment what no other process has begun, until all are complete or
    the time is over."""
    from graphrelu.lab.reproduce.command import experiment, request_of

    deadline = time.monotonic() + seconds
    unfinished = dict.fromkeys(names, "no time left")
    while unfinished and time.monotonic() < deadline - 1:
        for name in list(unfinished):
            left = max(1.0, deadline - time.monotonic())
            which, runs, only = EXPERIMENTS[name]
            out = folder / f"{which}.jsonl"
            request = request_of(which, runs, out=out, only=only, seconds=left)
            unfinished[name] = experiment(which).collect(request)
            if not unfinished[name].endswith("continues."):
                print(f"{name}: {unfinished.pop(name)}", flush=True)
        time.sleep(0.5)  # others may be at work on the rest
    for name, said in unfinished.items():
        print(f"{name}: {said}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(EXPERIMENTS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=3_600, help="for all (default: 3600)")
    parser.add_argument("--processes", type=int, default=8, help="at once (default: 8)")
    parser.add_argument("--folder", type=Path, default=Path("results"), help="of the records")
    options = parser.parse_args()
    names = options.names or list(EXPERIMENTS)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"names must be some of {', '.join(EXPERIMENTS)}, got {unknown[0]!r}.")
    os.environ["OMP_NUM_THREADS"] = "1"  # of each process
    start = multiprocessing.get_context("spawn").Process
    arguments = (names, options.folder, options.seconds)
    processes = [start(target=work, args=arguments) for _ in range(options.processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode or 0) for process in processes)


if __name__ == "__main__":
    sys.exit(main())
