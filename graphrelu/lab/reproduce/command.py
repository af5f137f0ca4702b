"""The options of ``graphrelu reproduce NAME``, and what they ask for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphrelu.lab.record import output
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    GRAPH_GRIDS,
    NODE_DATASETS,
)
from graphrelu.lab.reproduce import node
from graphrelu.lab.reproduce.experiment import (
    EXPERIMENTS,
    Experiment,
    Request,
    default_record,
    experiment,
)
from graphrelu.lab.reproduce.graph import (
    REPEATS,
    GraphGrid,
    collect_graphs,
    has_table,
    render_graphs,
)
from graphrelu.lab.reproduce.tuning import TUNED_BACKBONES
from graphrelu.lab.signals import INTERRUPTIONS, exit_code

# A package that may be missing -> the extra that installs it.
PACKAGES = {"scipy": "lab", "sklearn": "lab", "matplotlib": "lab", "ray": "ray"}
INTERRUPTED = "Interrupted; the same command continues where this one stopped."
COMMANDS = {
    "node": "the main table: node classification, beside the paper's numbers",
    "graph": "graph classification: a grid of settings, the chosen ones on more folds",
    **EXPERIMENTS,
}


class Option(NamedTuple):
    """One option of a command; a ``bool`` is a switch."""

    name: str
    help: str
    kind: Any = str
    default: Any = None
    is_argument: bool = False


def _names(name: str, known: Sequence[object], what: str = "") -> Option:
    return Option(name, what or "Names, separated by commas.", str, ",".join(map(str, known)))


def _grid(axis: str) -> str:
    usual, gins = (
        ",".join(map(str, getattr(GRAPH_GRIDS[name], axis))) for name in ("folds", "gin_paper")
    )
    return f"{usual}, for gin_paper {gins}"


DEVICE = Option("device", "Where to train: auto, cpu or cuda.", str, "auto")
DATA = Option("data", "Folder of the datasets; else $GRAPHRELU_DATA, else a cache folder.", Path)
RUNS = Option("runs", "How many seeds, or repetitions of a timing.", int)
OPTIONS = {
    "node": (
        Option("tuned", "Let each activation choose from the same 8 settings.", bool, False),
        RUNS._replace(help=f"Seeds of each cell; else {node.RUNS}."),
        _names("datasets", NODE_DATASETS),
        Option(
            "backbones",
            f"Names, separated by commas; else {','.join(BACKBONES)}, "
            f"with --tuned {','.join(TUNED_BACKBONES)}.",
        ),
        _names("activations", ACTIVATIONS),
    ),
    "graph": (
        _names("datasets", GRAPH_DATASETS),
        _names("backbones", GRAPH_BACKBONES),
        _names("activations", ACTIVATIONS),
        Option("hidden", f"Hidden units to choose from; else {_grid('hidden')}."),
        Option("layers", f"Numbers of layers to choose from; else {_grid('layers')}."),
        _names(
            "protocols",
            GraphGrid.protocols,
            "folds (the paper's), gin_folds (the GIN paper's), gin_paper (with the GIN paper's "
            "networks and 17,500 updates).",
        ),
        Option(
            "repeats", "How many more fold assignments, once settings are chosen.", int, REPEATS
        ),
    ),
}


def options_of(name: str) -> list[Option]:
    """All options of an experiment."""
    record = f"{default_record(name)}"
    if name == "node":
        record += f", with --tuned {default_record('tuned')}"
    return [
        *OPTIONS.get(name, (RUNS,)),
        Option("quick", "Run a small version on embedded graphs, in minutes.", bool, False),
        Option("out", f"Record (.jsonl) to continue or begin; else {record}.", Path),
        Option("render", "Train nothing; write tables and figures from the record.", bool, False),
        DEVICE,
        DATA,
        Option("seconds", "Stop starting new runs after this many seconds.", float),
        Option("prepare", "Train nothing; write the missing runs to this file (.pt).", Path),
        Option(
            "engine",
            "local: this process; a number: so many; ray: a cluster.",
            str,
            "local",
        ),
    ]


def prepare(name: str, given: Mapping[str, Any]) -> tuple[Experiment, Request]:
    """The experiment and the request, from the options of a command."""
    chosen = {"node": _node, "graph": _graph}.get(name, lambda given: experiment(name))(given)
    quick, runs = given["quick"], given.get("runs")
    if runs is None:
        runs = chosen.quick_runs if quick else chosen.runs
    out = given["out"] or default_record("tuned" if given.get("tuned") else name, quick)
    how = {name: given[name] for name in ("device", "seconds", "engine", "prepare")}
    return chosen, Request(runs=runs, out=out, quick=quick, root=given["data"], **how)


def _node(given: Mapping[str, Any]) -> Experiment:
    usual: Sequence[str] = TUNED_BACKBONES if given["tuned"] else BACKBONES
    backbones = usual if given["backbones"] is None else names(given["backbones"])
    table = node.tuned_table if given["tuned"] else node.main_table
    return table(names(given["datasets"]), backbones, names(given["activations"]))


def _graph(given: Mapping[str, Any]) -> Experiment:
    datasets, backbones, activations, protocols = (
        names(given[name]) for name in ("datasets", "backbones", "activations", "protocols")
    )
    hidden, layers = (
        None if given[name] is None else _numbers(name, given[name])
        for name in ("hidden", "layers")
    )
    grid = GraphGrid(datasets, backbones, activations, hidden, layers, protocols, given["repeats"])
    collect = partial(collect_graphs, grid)
    return Experiment(grid.runs, grid.runs, collect, render_graphs, has_table)


def names(text: str) -> list[str]:
    """The names in a list such as ``cora, citeseer``: each once, in lower case except PyG's."""
    typed = (name.strip() for name in text.split(","))
    cased = (name if name.startswith("pyg:") else name.lower() for name in typed)
    found = list(dict.fromkeys(name for name in cased if name))
    if not found:
        raise ValueError(f"There is no name in the list {text!r}.")
    return found


def _numbers(what: str, text: str) -> list[int]:
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        raise ValueError(
            f"{what} must be whole numbers, separated by commas, not {text!r}."
        ) from None


@contextmanager
def one_sentence(interrupted: str = "Interrupted.") -> Iterator[None]:
    """An error of the input or the machine becomes one sentence and exit code 2; an interruption
    ends with the exit code of the signal."""
    try:
        yield
    except (ValueError, OSError, MachineError) as error:
        message, code = output.sentence(error), 2
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        extra = PACKAGES[error.name]
        message, code = f'This needs {error.name}: pip install "graphrelu[{extra}]".', 2
    except INTERRUPTIONS as error:
        message, code = interrupted, exit_code(error)
    else:
        return
    print(message, file=sys.stderr)
    raise SystemExit(code)
