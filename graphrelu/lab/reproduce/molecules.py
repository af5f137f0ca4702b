"""Sets of molecules: the published networks and four plain ones, by activation and virtual node."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from graphrelu.lab.data.molecules import Features, SplitKind, read_molecules
from graphrelu.lab.engine.graph_runs import perform_all, read_record
from graphrelu.lab.engine.graph_training import ERRORS, GraphRun, Metric
from graphrelu.lab.models.graph_networks import (
    GraphNetwork,
    Network,
    count_parameters,
    widened,
)


class MoleculeSet(NamedTuple):
    """A file, how it is split, its metric, and how many seeds the chosen settings get."""

    file: str
    split: SplitKind
    metric: Metric
    seeds: int
    nodes: float  # per graph


SETS = {
    "peptides_func": MoleculeSet("peptides_func.csv.gz", "column", "ap", 5, 150.9),
    "zinc12k": MoleculeSet("zinc12k.csv.gz", "column", "mae", 5, 23.2),
    "esol": MoleculeSet("esol.csv", "random", "mae", 10, 13.3),
    "lipo": MoleculeSet("lipo.csv", "random", "mae", 10, 27.0),
    "bace": MoleculeSet("bace.csv", "scaffold", "rocauc", 10, 34.1),
    "tox21": MoleculeSet("tox21.csv", "scaffold", "rocauc", 10, 18.6),
}


class Rival(NamedTuple):
    """A column of the table: what it changes of a cell."""

    name: str
    activation: str
    options: Mapping[str, Any] = {}
    virtual_node: bool = False
    wider: bool = False  # with as many parameters as the network with a virtual node
    budget: int = 1  # times the epochs, for ReLU's sake


RIVALS = {
    "relu": Rival("ReLU", "relu"),
    "prelu": Rival("PReLU", "prelu"),
    "gelu": Rival("GELU", "gelu"),
    "grelu": Rival("GReLU", "grelu"),
    "relu+vn": Rival("ReLU with a virtual node", "relu", virtual_node=True),
    "grelu+vn": Rival("GReLU with a virtual node", "grelu", virtual_node=True),
    "relu-wide": Rival("ReLU, wider", "relu", wider=True),
    "relu-2": Rival("ReLU, twice as long", "relu", budget=2),
    "relu-4": Rival("ReLU, four times as long", "relu", budget=4),
    "grelu-f": Rival("GReLU-F", "grelu", {"node_wise": False}),
    "grelu-b": Rival("GReLU-B", "grelu", {"topology": False}),
    "digraf": Rival("DiGRAF", "digraf"),
    "digraf-plain": Rival("DiGRAF without its network", "digraf-plain"),
}
EVERYWHERE = ("relu", "prelu", "gelu", "grelu", "relu+vn", "relu-2", "relu-4")
WITH_GCN = ("grelu-f", "grelu-b", "grelu+vn", "relu-wide")
TUNING_SEEDS = (0, 1)


class Point(NamedTuple):
    """A point of the grid from which every column chooses on validation."""

    dropout: float
    epochs: int


@dataclass(frozen=True)
class Cell:
    """A set and a network with the settings of its publication."""

    dataset: str
    network: Network
    grid: tuple[tuple[float, ...], tuple[int, ...]]  # dropout, epochs
    published: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # of training
    activation: str = "gelu"  # the published one

    @property
    def is_gcn(self) -> bool:
        return self.network.conv in ("gcn", "bond")

    @property
    def rivals(self) -> tuple[str, ...]:
        digraf = ("digraf", "digraf-plain") if self.dataset in ("esol", "zinc12k") else ()
        return EVERYWHERE + (WITH_GCN + digraf if self.is_gcn else ())

    @property
    def usual(self) -> Point:
        """The published settings."""
        return Point(self.network.dropout, self.settings["epochs"])

    def points(self, rival: str) -> list[Point]:
        """What a column chooses from; where ReLU has more time, that is of the longest."""
        dropouts, epochs = self.grid
        longest = epochs[-1:] if RIVALS[rival].budget > 1 else epochs
        return [Point(*point) for point in product(dropouts, longest)]

    def run(self, key: str, seed: int, point: Point | None = None) -> GraphRun:
        """The run of a column of the table."""
        rival, (dropout, epochs) = RIVALS[key], point or self.usual
        network = replace(self.network, dropout=dropout, virtual_node=rival.virtual_node)
        if rival.wider:
            network = _wider(network)
        return GraphRun(
            self.dataset,
            network,
            rival.activation,
            SETS[self.dataset].metric,
            seed,
            rival.options,
            **{**self.settings, "epochs": rival.budget * epochs},
        )


@cache
def _wider(network: Network) -> Network:
    """The width does not depend on the number of targets by more than a hair."""
    from torch_geometric.utils.smiles import e_map, x_map

    nodes, edges = (
        Features(torch.zeros(1, len(names)), torch.zeros(1), tuple(map(len, names.values())))
        for names in (x_map, e_map)
    )
    make = partial(GraphNetwork, nodes=nodes, edges=edges, outputs=1, activation="relu")
    with torch.random.fork_rng(devices=[]):
        wanted = count_parameters(make(replace(network, virtual_node=True)))
    return widened(network, wanted, make)


# "Reassessing the Long-Range Graph Benchmark" (Toenshoff et al. 2023), its code's LRGB-tuned.
_TUNED = Network("gcn", 6, 235, "none", True, 0.1, 3, walks=20, plain="gelu")
_TUNED_TRAINING = {"epochs": 250, "batch_size": 200}
# GNN+ ("Unlocking the Potential of Classic GNNs", ICML 2025), its code's settings.
_PLUS = Network("bond", 3, 275, "batch", False, 0.2, 4, walks=32, plain="gelu")
_PLUS_TRAINING = {"epochs": 300, "batch_size": 16}
_PEPTIDES_GRID = ((0.1, 0.3), (100, 250))
_PLUS_GRID = ((0.2, 0.4), (100, 300))
_PLUS_ZINC = Network(
    "bond", 12, 64, "batch", True, 0.0, 3, "sum", 32, feed_forward=True, halving=True
)
# 200 of 2,000 epochs.
_ZINC_TRAINING = {
    "epochs": 200,
    "batch_size": 32,
    "weight_decay": 1e-5,
    "warmup": 5,
    "min_lr": 1e-6,
}
_ZINC_GRID = ((0.0, 0.1), (100, 200))
_PLAIN_GRID = ((0.0, 0.3), (30, 100))

CELLS: dict[str, Cell] = {
    "peptides-gcn": Cell("peptides_func", _TUNED, _PEPTIDES_GRID, 0.686, _TUNED_TRAINING),
    "peptides-gine": Cell(
        "peptides_func",
        replace(_TUNED, conv="gine", layers=8, hidden=160, inside=True),
        _PEPTIDES_GRID,
        0.662,
        _TUNED_TRAINING,
    ),
    "peptides-gcn+": Cell("peptides_func", _PLUS, _PLUS_GRID, 0.726, _PLUS_TRAINING),
    "peptides-gine+": Cell(
        "peptides_func",
        replace(_PLUS, conv="gine", hidden=240, norm="none", residual=True, head_layers=3),
        _PLUS_GRID,
        0.706,
        {**_PLUS_TRAINING, "lr": 5e-4},
        "relu",
    ),
    "zinc-gcn": Cell("zinc12k", _PLUS_ZINC, _ZINC_GRID, None, _ZINC_TRAINING),
    "zinc-gine": Cell(
        "zinc12k",
        replace(_PLUS_ZINC, conv="gine", hidden=80, norm="none", walks=20),
        _ZINC_GRID,
        None,  # 0.065 after 2,000 epochs
        _ZINC_TRAINING,
    ),
    **{
        f"{name}-{conv}": Cell(name, Network(conv), _PLAIN_GRID, None, {"epochs": 100})
        for name in ("esol", "lipo", "bace", "tox21")
        for conv in ("gcn", "gine", "gat", "sage")
    },
}


Entries = Mapping[str, dict[str, Any]]  # of a record, by the key of the run


def chosen(cell: Cell, rival: str, entries: Entries) -> Point | None:
    """The point of the grid with the best mean validation score; none while runs are missing."""
    sign = -1 if SETS[cell.dataset].metric in ERRORS else 1
    values: dict[Point, float] = {}
    for point in cell.points(rival):
        keys = [cell.run(rival, seed, point).key() for seed in TUNING_SEEDS]
        if not all(key in entries for key in keys):
            return None
        values[point] = round(sign * fmean(entries[key]["val_score"] for key in keys), 12)
    return max(values, key=lambda point: values[point])


def missing(
    entries: Entries,
    cells: Sequence[str] = (),
    rivals: Sequence[str] = (),
    grid: bool = True,
) -> list[GraphRun]:
    """The runs that can be done now: those of the grid, then those of what it chose. Without the
    grid, all seeds at the published settings."""
    found: dict[str, GraphRun] = {}
    for name, cell in CELLS.items():
        for rival in cell.rivals:
            if (cells and name not in cells) or (rivals and rival not in rivals):
                continue
            seeds = range(SETS[cell.dataset].seeds)
            if not grid:
                runs = [cell.run(rival, seed) for seed in seeds]
            elif (point := chosen(cell, rival, entries)) is not None:
                runs = [cell.run(rival, seed, point) for seed in seeds]
            else:
                runs = [cell.run(rival, *at) for at in product(TUNING_SEEDS, cell.points(rival))]
            found |= {run.key(): run for run in runs}
    return [run for key, run in found.items() if key not in entries]


def prepare(source: Path, folder: Path, names: Sequence[str] = tuple(SETS)) -> Iterator[str]:
    """Read the sets once, for machines without RDKit; tells what was left out."""
    for name in names:
        molecules = read_molecules(source / SETS[name].file, split=SETS[name].split)
        molecules.save(_file(folder, name))
        yield f"{name}: {len(molecules.y):,} molecules. {molecules.note}".strip()


def collect(
    record: Path,
    source: Path,
    prepared: Path,
    processes: int = 1,
    seconds: float = math.inf,
    device: str = "cpu",
    **choice: Any,
) -> str:
    """Do what is missing, the grid first and then what it chose; tells how much is left.

    Args:
        record (Path): A line for each run; the same command continues it.
        source (Path): The folder of the files of :data:`SETS`.
        prepared (Path): Where what was read of them is kept.
        processes (int, optional): How many runs at once.
        seconds (float, optional): No epoch starts after these.
        device (str, optional): Where to train.
        **choice (optional): The rest of the arguments of :func:`missing`.
    """
    end = time.time() + seconds
    while runs := missing(by_key(record), **choice):
        names = {run.dataset for run in runs}
        for line in prepare(
            source, prepared, [n for n in names if not _file(prepared, n).exists()]
        ):
            print(line, flush=True)
        states = record.with_suffix(".states")
        left = perform_all(runs, prepared, record, processes, end - time.time(), states, device)
        if left:
            return f"{left} runs are missing; the same command continues."
    return "All runs are there."


def by_key(record: Path) -> Entries:
    """The runs on record."""
    return {GraphRun.from_dict(entry["run"]).key(): entry for entry in read_record(record)}


def _file(prepared: Path, name: str) -> Path:
    return prepared / f"{name}.npz"
