"""The paper's experiments, run again: ``python -m graphrelu.lab.reproduce node --help``.

Without the terminal's packages, so that it starts wherever torch, PyG and numpy are.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphrelu.lab import data, output
from graphrelu.lab.config import Config
from graphrelu.lab.recipes import ACTIVATIONS, BACKBONES, NODE_DATASETS, node_table
from graphrelu.lab.results import Record, Result

if TYPE_CHECKING:
    from graphrelu.lab.engine import Progress

NODE_RECORD = Path("results/node.jsonl")
INTERRUPTED = "Interrupted; the same command continues where this one stopped."


def reproduce_node(
    configs: Sequence[Config],
    runs: int,
    out: Path,
    *,
    root: str | Path | None = None,
    device: str = "auto",
    seconds: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Result]:
    """Train what the record lacks of the main table, and return the runs that are finished.

    Args:
        configs: Cells of the table, from :func:`graphrelu.lab.recipes.node_table`.
        runs: The seeds of every cell are 0, 1, ..., runs - 1.
        out: The record, to continue or to begin.
        root: Where the datasets are; see :func:`graphrelu.lab.data.data_root`.
        device: ``auto``, ``cpu`` or ``cuda``.
        seconds: After so many, no new batch is begun.
        progress: Called every few epochs.
    """
    from graphrelu.lab import engine

    began = time.monotonic()
    check_runs(runs)
    if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"seconds must be a positive number, not {seconds}.")
    engine.choose_device(device)
    record = Record(output.check_record(out))
    finished = {(result.config, result.seed) for result in record.read()}
    unfinished = [c for c in configs if any((c, seed) not in finished for seed in range(runs))]
    # All of them before the first is trained on: a damaged file is then found at once.
    graphs = {name: data.load(name, root) for name in {c.dataset: None for c in unfinished}}
    return engine.run(
        configs,
        range(runs),
        record,
        root=root,
        graphs=graphs,
        device=device,
        deadline=None if seconds is None else began + seconds,
        progress=progress,
    )


def check_runs(runs: int) -> None:
    """Raise a ``ValueError`` unless there is something to run."""
    if runs < 1:
        raise ValueError(f"runs must be a whole number from 1, not {runs}.")


def names(text: str) -> list[str]:
    """A list as it is typed: ``cora, citeseer``; in lower case, without repetitions."""
    typed = (name.strip().lower() for name in text.split(","))
    found = list(dict.fromkeys(name for name in typed if name))
    if not found:
        raise ValueError(f"There is no name in the list {text!r}.")
    return found


class BatchLines:
    """Prints one line for each batch of runs that is on record."""

    def __init__(self, record: Path) -> None:
        self._record = Record(record)
        self._since = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if progress.epoch < progress.epochs:
            return
        config, seeds = progress.config, progress.seeds
        scores = {r.seed: r.score for r in self._record.read() if r.config == config}
        if not scores.keys() >= set(seeds):
            return  # trained, and about to be written
        mean = 100 * sum(scores[seed] for seed in seeds) / len(seeds)
        now = time.monotonic()
        print(
            f"[{progress.runs_done}/{progress.runs_total}] "
            f"{config.dataset} {config.backbone} {config.activation}, seeds {spans(seeds)}: "
            f"{mean:.1f} %, {now - self._since:.1f} s",
            flush=True,
        )
        self._since = now


def spans(seeds: Sequence[int]) -> str:
    """Seeds in short: ``0-9, 12``."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def write_tables(record: Path, prefix: Path, configs: Sequence[Config]) -> list[Path]:
    """Write ``prefix.md`` and ``prefix.csv`` from all runs of these cells; nothing is trained."""
    paths = [prefix.with_name(prefix.name + ending) for ending in (".md", ".csv")]
    for path in paths:
        output.check_file(path)
    wanted = set(configs)
    results = [result for result in Record(record).read() if result.config in wanted]
    if not results:
        raise ValueError(f"{record} has no runs of these cells.")
    from graphrelu.lab import export, tables

    contents = (export.document(results, record.name), export.to_csv(tables.node_rows(results)))
    for path, text in zip(paths, contents, strict=True):
        output.write_text(path, text)
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        configs = node_table(
            names(options.datasets), names(options.backbones), names(options.activations)
        )
        if options.table is not None:
            print("Written:", *write_tables(options.out, options.table, configs))
            return 0
        results = reproduce_node(
            configs,
            options.runs,
            options.out,
            root=options.data,
            device=options.device,
            seconds=options.seconds,
            progress=BatchLines(options.out),
        )
    except (ValueError, OSError) as error:
        print(output.sentence(error), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        print('The tables need scipy: pip install "graphrelu[lab]".', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
    print(standing(len(results), len(configs) * options.runs, options.out))
    return 0


def standing(finished: int, wanted: int, record: Path) -> str:
    """How much of the table is there."""
    rest = "." if finished == wanted else "; the same command continues."
    return f"{finished:,} of these {wanted:,} runs are in {record}{rest}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m graphrelu.lab.reproduce", description="The paper's experiments, run again."
    )
    experiments = parser.add_subparsers(dest="experiment", required=True)
    node = experiments.add_parser(
        "node", help="the main table: node classification, with the record as it stands continued"
    )
    node.add_argument("--runs", type=int, default=10, help="seeds per cell (default: 10)")
    for what, known in (
        ("datasets", NODE_DATASETS),
        ("backbones", BACKBONES),
        ("activations", ACTIVATIONS),
    ):
        node.add_argument(f"--{what}", default=",".join(known), help="default: %(default)s")
    node.add_argument("--out", type=Path, default=NODE_RECORD, help="record (default: %(default)s)")
    node.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    node.add_argument("--seconds", type=float, help="begin no new batch after so many")
    node.add_argument("--data", help="folder of the datasets (default: $GRAPHRELU_DATA)")
    node.add_argument(
        "--table",
        type=Path,
        metavar="PREFIX",
        help="train nothing; write PREFIX.md and PREFIX.csv from all runs on record",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
