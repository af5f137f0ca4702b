"""Runs in one file: written where the datasets are, trained where torch, PyG and NumPy are.

``python -m graphrelu.lab.engine.prepared RUNS.pt RECORD.jsonl`` trains the runs of a file, and the
record is taken back to where the file was written.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Features, Graph, GraphSet
from graphrelu.lab.engine import Progress
from graphrelu.lab.errors import INTERRUPTED, one_sentence, terminable
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import complete
from graphrelu.lab.record.results import Record, check_record


def write(
    path: Path, runs: Mapping[Config, Sequence[int]], graphs: Mapping[str, Graph | GraphSet]
) -> None:
    """Keep runs, the seeds of each cell, with their graphs."""
    cells = [(config.to_dict(), list(seeds)) for config, seeds in runs.items()]
    with complete(path) as part:
        torch.save({"cells": cells, "graphs": dict(graphs)}, part)


def train(
    path: Path,
    out: Path,
    device: str = "auto",
    seconds: float | None = None,
    pool: str = "local",
) -> str:
    """Train the runs of a file that the record lacks; return a sentence on how many it has."""
    with torch.serialization.safe_globals([Graph, GraphSet, Features]):
        content = torch.load(path, weights_only=True)
    deadline = None if seconds is None else time.monotonic() + seconds
    runs = {Config.from_dict(plain): seeds for plain, seeds in content["cells"]}
    record = Record(check_record(out), curves=False)

    def said(progress: Progress) -> None:
        if progress.epoch == progress.config.epochs:
            done = f"[{progress.runs_done}/{progress.runs_total}]"
            print(f"{done} {progress.config.title}: {len(progress.seeds)} runs", flush=True)

    how = {"graphs": content["graphs"], "device": device, "deadline": deadline, "pool": pool}
    found = engine.run_all(runs, record, progress=said, **how)
    wanted = sum(map(len, runs.values()))
    return f"{found:,} of these {wanted:,} runs are in {out}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the file of runs (.pt)")
    parser.add_argument("record", type=Path, help="the record to continue or begin (.jsonl)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seconds", type=float, help="start no run after this many seconds")
    parser.add_argument("--engine", default="local", help="local, or a number of processes")
    given = parser.parse_args()
    with one_sentence(INTERRUPTED), terminable():
        print(train(given.runs, given.record, given.device, given.seconds, given.engine))


if __name__ == "__main__":
    main()
