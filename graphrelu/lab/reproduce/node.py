"""The paper's experiments, run again: ``python -m graphrelu.lab.reproduce node --help``.

Without the terminal's packages, so that it starts wherever torch, PyG and numpy are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from graphrelu.lab.engine.batch_lines import BatchLines
from graphrelu.lab.engine.signals import INTERRUPTIONS, exit_code, terminable
from graphrelu.lab.record import output
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_HIDDEN,
    GRAPH_LAYERS,
    NODE_DATASETS,
    node_table,
)
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.experiment import (
    EXPERIMENTS,
    Request,
    default_record,
    experiment,
    standing,
    train_missing,
)
from graphrelu.lab.reproduce.graph import REPEATS, collect_graphs, render_graphs
from graphrelu.lab.reproduce.tuning import QUICK_RUNS, TUNED_BACKBONES, render_tuned, tuned_cells
from graphrelu.lab.reproduce.typed import check_tuned_only, names, typed_grid

NODE_RUNS = 10
# What may be missing -> the extra that brings it.
PACKAGES = {"scipy": "lab", "sklearn": "lab", "matplotlib": "lab", "ray": "ray"}
INTERRUPTED = "Interrupted; the same command continues where this one stopped."


def write_tables(record: Path, prefix: Path, configs: Sequence[Config]) -> list[Path]:
    """Write ``prefix.md`` and ``prefix.csv`` from all runs of these cells; nothing is trained."""
    paths = [prefix.with_name(prefix.name + ending) for ending in (".md", ".csv")]
    for path in paths:
        output.check_file(path)
    wanted = set(configs)
    results = [result for result in Record(record).read() if result.config in wanted]
    if not results:
        raise ValueError(f"{record} has no runs of these cells.")
    from graphrelu.lab.render import export, tables

    contents = (export.document(results, record.name), export.to_csv(tables.node_rows(results)))
    for path, text in zip(paths, contents, strict=True):
        output.write_text(path, text)
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        with terminable():
            print({"node": _node, "graph": _graph}.get(options.experiment, _other)(options))
    except (ValueError, OSError, MachineError) as error:
        print(output.sentence(error), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(needed(error.name), file=sys.stderr)
        return 2
    except INTERRUPTIONS as error:
        print(INTERRUPTED, file=sys.stderr)
        return exit_code(error)
    return 0


def needed(package: str) -> str:
    """What to install."""
    return f'This needs {package}: pip install "graphrelu[{PACKAGES[package]}]".'


def _node(options: argparse.Namespace) -> str:
    check_tuned_only(options.tuned, quick=options.quick, render=options.render)
    if options.tuned and options.table is not None:
        raise ValueError("--table is of the main table; with --tuned, --render writes the page.")
    options.out = options.out or default_record("tuned" if options.tuned else "node", options.quick)
    if options.runs is None:
        options.runs = QUICK_RUNS if options.quick else NODE_RUNS
    if options.backbones is None:
        options.backbones = ",".join(TUNED_BACKBONES if options.tuned else BACKBONES)
    lists = [names(getattr(options, what)) for what in ("datasets", "backbones", "activations")]
    if options.render:
        return _written(render_tuned(options.out))
    if options.table is not None:
        return _written(write_tables(options.out, options.table, node_table(*lists)))
    request = _request(options)
    configs = tuned_cells(request, *lists) if options.tuned else node_table(*lists)
    results = train_missing(configs, request)
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
    node.add_argument(
        "--tuned",
        action="store_true",
        help="every activation chooses from the same eight settings, by validation accuracy",
    )
    node.add_argument("--runs", type=int, help=f"seeds per cell (default: {NODE_RUNS})")
    for what, known in (("datasets", NODE_DATASETS), ("activations", ACTIVATIONS)):
        node.add_argument(f"--{what}", default=",".join(known), help="default: %(default)s")
    several = f"{','.join(BACKBONES)}; with --tuned {','.join(TUNED_BACKBONES)}"
    node.add_argument("--backbones", help=f"default: {several}")
    node.add_argument(
        "--table",
        type=Path,
        metavar="PREFIX",
        help="train nothing; write PREFIX.md and PREFIX.csv from all runs on record",
    )
    _add_shape(node, "node")
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
