"""What a file from outside may do: be read, or cost one sentence. Anything else is a finding."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from graphrelu.lab import page
from graphrelu.lab.data import DataError, load, load_graphs
from graphrelu.lab.engine.keep import read_model, saved_model
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce import complexity, runtime
from tests.fuzz import seeds
from tests.fuzz.mutate import Mutate, refielded, relined, rezipped

# Calls of these kinds while a file is read mean that something in it was run, or that it reached
# beyond itself.
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


class Target(NamedTuple):
    """A kind of file: how to read it, what to start from, and how to change that."""

    ending: str
    read: Callable[[Path], object]
    seeds: Callable[[], Iterator[bytes]]
    mutate: Callable[[bytes, Mutate, random.Random], bytes]


def dataset(path: Path) -> None:
    try:
        graph = load(str(path))
    except DataError as error:
        _one_sentence(error)
        return
    assert graph.x.size(0) == graph.y.size(0) > 0
    assert graph.y.dim() == (2 if graph.task == "labels" else 1)
    assert bool(graph.y.isfinite().all())
    assert 0 <= graph.num_unlabelled < graph.num_nodes
    assert graph.edge_index.numel() == 0 or int(graph.edge_index.min()) >= 0
    assert graph.edge_index.numel() == 0 or int(graph.edge_index.max()) < graph.num_nodes
    if graph.x.is_sparse_csr:
        columns = graph.x.col_indices()
        assert columns.numel() == 0 or 0 <= int(columns.min()) <= int(columns.max())
        assert columns.numel() == 0 or int(columns.max()) < graph.num_features


def tables(path: Path) -> None:
    """Both tables of a graph, as :func:`seeds.tables` has them in one file."""
    nodes, _, edges = path.read_bytes().partition(b"\n\n")
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_bytes(nodes)
    (folder / "edges.csv").write_bytes(edges)
    dataset(folder)


def graphs(path: Path) -> None:
    try:
        found = load_graphs(f"graphs:{path}")
    except DataError as error:
        _one_sentence(error)
        return
    assert found.num_graphs > 1
    assert bool(found.y.isfinite().all())
    assert found.num_nodes == int(found.node_ptr[-1])


def model(path: Path) -> None:
    try:
        config, seed, state = read_model(path)
        saved_model(config, seeds.ring_graph(), seed, state, path)
    except ValueError as error:
        _one_sentence(error)


def record(path: Path) -> None:
    reader = Record(path)
    reader.read()
    reader.plan([], [], 1)
    lines = path.read_bytes().count(b"\n")
    assert all(0 < number <= lines + 1 for number in reader.corrupt_lines)
    for entries in (runtime.record_of(path), complexity.record_of(path)):
        entries.read()
    try:
        page.render(page.from_records([path]))
    except ValueError as error:
        _one_sentence(error)


TARGETS = {
    "npz": Target(".npz", dataset, seeds.npz, rezipped),
    "pt": Target(".pt", dataset, seeds.pt, rezipped),
    "graphs": Target(".pt", graphs, seeds.graphs, rezipped),
    "tables": Target(".txt", tables, seeds.tables, refielded),
    "model": Target(".pt", model, seeds.models, rezipped),
    "records": Target(".jsonl", record, seeds.records, relined),
}


def _one_sentence(error: ValueError) -> None:
    text = str(error)
    assert text.endswith("."), text
    assert "\n" not in text, text


def watch() -> None:
    """From now on, whatever runs a command or opens a connection ends the process."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN):
            raise AssertionError(f"A file caused {event} {arguments}.")

    sys.addaudithook(hook)
