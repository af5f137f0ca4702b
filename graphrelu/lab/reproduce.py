"""The paper's experiments, run again: ``python -m graphrelu.lab.reproduce node --help``.

Without the terminal's packages, so that it starts wherever torch, PyG and numpy are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphrelu.lab import output
from graphrelu.lab.config import FOLD_SPLITS, Config
from graphrelu.lab.experiment import (
    EXPERIMENTS,
    Request,
    default_record,
    experiment,
    standing,
    train_missing,
)
from graphrelu.lab.graph_reproduce import REPEATS, collect_graphs, render_graphs
from graphrelu.lab.recipes import (
    ACTIVATIONS,
    BACKBONES,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_HIDDEN,
    GRAPH_LAYERS,
    NODE_DATASETS,
    node_table,
)
from graphrelu.lab.results import Record
from graphrelu.lab.typed import names, typed_grid

if TYPE_CHECKING:
    from graphrelu.lab.engine import Progress

NODE_RECORD = Path("results/node.jsonl")
# What may be missing -> the extra that brings it.
PACKAGES = {"scipy": "lab", "sklearn": "lab", "matplotlib": "lab", "ray": "ray"}
INTERRUPTED = "Interrupted; the same command continues where this one stopped."


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
            f"{config.title}, seeds {spans(seeds)}: "
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
        print({"node": _node, "graph": _graph}.get(options.experiment, _other)(options))
    except (ValueError, OSError) as error:
        print(output.sentence(error), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(needed(error.name), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        return 130
    return 0


def needed(package: str) -> str:
    """What to install."""
    return f'This needs {package}: pip install "graphrelu[{PACKAGES[package]}]".'


def _node(options: argparse.Namespace) -> str:
    configs = node_table(
        names(options.datasets), names(options.backbones), names(options.activations)
    )
    if options.table is not None:
        return _written(write_tables(options.out, options.table, configs))
    results = train_missing(configs, _request(options))
    return standing(len(results), len(configs) * options.runs, options.out)


def _graph(options: argparse.Namespace) -> str:
    options.out = options.out or default_record("graph", options.quick)
    if options.render:
        return _written(render_graphs(options.out))
    grid = typed_grid(
        options.datasets,
        options.backbones,
        options.activations,
        options.hidden,
        options.layers,
        options.protocols,
        options.repeats,
    )
    options.runs = grid.runs
    return collect_graphs(grid, _request(options))


def _other(options: argparse.Namespace) -> str:
    chosen = experiment(options.experiment)
    options.out = options.out or default_record(options.experiment, options.quick)
    options.runs = options.runs or (chosen.quick_runs if options.quick else chosen.runs)
    return (
        _written(chosen.render(options.out))
        if options.render
        else chosen.collect(_request(options))
    )


def _request(options: argparse.Namespace) -> Request:
    return Request(
        runs=options.runs,
        out=options.out,
        quick=getattr(options, "quick", False),
        device=options.device,
        root=options.data,
        seconds=options.seconds,
        progress=BatchLines(options.out),
        engine=options.engine,
    )


def _written(paths: Sequence[Path]) -> str:
    return f"Written: {' '.join(map(str, paths))}"


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
    node.add_argument(
        "--table",
        type=Path,
        metavar="PREFIX",
        help="train nothing; write PREFIX.md and PREFIX.csv from all runs on record",
    )
    _add_common(node)
    graph = experiments.add_parser(
        "graph", help="graph classification: a grid, and what it chooses repeated; resumable"
    )
    for what, values in (
        ("datasets", GRAPH_DATASETS),
        ("backbones", GRAPH_BACKBONES),
        ("activations", ACTIVATIONS),
        ("hidden", GRAPH_HIDDEN),
        ("layers", GRAPH_LAYERS),
        ("protocols", FOLD_SPLITS),
    ):
        graph.add_argument(
            f"--{what}", default=",".join(map(str, values)), help="default: %(default)s"
        )
    graph.add_argument(
        "--repeats", type=int, default=REPEATS, help="more fold assignments (default: %(default)s)"
    )
    _add_shape(graph, "graph")
    _add_common(graph)
    for name, what in EXPERIMENTS.items():
        other = experiments.add_parser(name, help=what)
        other.add_argument("--runs", type=int, help="seeds or repetitions")
        _add_shape(other, name)
        _add_common(other)
    return parser


def _add_shape(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--quick", action="store_true", help="only the shape of the result")
    parser.add_argument("--out", type=Path, help=f"record (default: {default_record(name, False)})")
    parser.add_argument(
        "--render", action="store_true", help="tables and figures of the record; nothing else"
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--seconds", type=float, help="begin nothing new after so many")
    parser.add_argument("--engine", default="local", help="local or ray (default: local)")
    parser.add_argument("--data", help="folder of the datasets (default: $GRAPHRELU_DATA)")


if __name__ == "__main__":
    sys.exit(main())
