"""Sets of molecules: the published networks and four plain ones, by activation and virtual node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graphrelu.lab.data.molecules import SplitKind, read_molecules
from graphrelu.lab.engine.graph_training import GraphRun, Metric
from graphrelu.lab.models.graph_networks import Network

# The files of each set, how it is split, and its metric.
SETS: dict[str, tuple[str, SplitKind, Metric]] = {
    "peptides_func": ("peptides_func.csv.gz", "column", "ap"),
    "zinc12k": ("zinc12k.csv.gz", "column", "mae"),
    "esol": ("esol.csv", "random", "mae"),
    "lipo": ("lipo.csv", "random", "mae"),
    "bace": ("bace.csv", "scaffold", "rocauc"),
    "tox21": ("tox21.csv", "scaffold", "rocauc"),
}
# What a column of the table changes: the activation, its options, and the network.
RIVALS: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "relu": ("relu", {}, {}),
    "prelu": ("prelu", {}, {}),
    "gelu": ("gelu", {}, {}),
    "grelu": ("grelu", {}, {}),
    "relu+vn": ("relu", {}, {"virtual_node": True}),
    "gelu+vn": ("gelu", {}, {"virtual_node": True}),
    "grelu+vn": ("grelu", {}, {"virtual_node": True}),
    "grelu-f": ("grelu", {"node_wise": False}, {}),
    "grelu-b": ("grelu", {"topology": False}, {}),
    "digraf": ("digraf", {}, {}),
    "digraf-plain": ("digraf-plain", {}, {}),
}


@dataclass(frozen=True)
class Cell:
    """A set and a network with the settings of its publication."""

    dataset: str
    network: Network
    published: float | None = None  # with the activation of the publication
    settings: Mapping[str, Any] = field(default_factory=dict)  # of training

    def run(self, rival: str, seed: int, **changes: Any) -> GraphRun:
        """A run by its column of the table; `changes` are of dropout or epochs."""
        activation, options, of_network = RIVALS[rival]
        network = dict(of_network)
        if "dropout" in changes:
            network["dropout"] = changes.pop("dropout")
        return GraphRun(
            self.dataset,
            replace(self.network, **network),
            activation,
            SETS[self.dataset][2],
            seed,
            options,
            **{**self.settings, **changes},
        )


# "Reassessing the Long-Range Graph Benchmark" (Toenshoff et al. 2023), its code's LRGB-tuned.
_TUNED = Network("gcn", 6, 235, "none", True, 0.1, 3, walks=20, plain="gelu")
_TUNED_TRAINING = {"epochs": 250, "batch_size": 200}
# GNN+ ("Unlocking the Potential of Classic GNNs", ICML 2025), its code's settings.
_PLUS = Network("bond", 3, 275, "batch", False, 0.2, 4, walks=32, plain="gelu")
_PLUS_TRAINING = {"epochs": 300, "batch_size": 16}
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

CELLS: dict[str, Cell] = {
    "peptides-gcn": Cell("peptides_func", _TUNED, 0.686, _TUNED_TRAINING),
    "peptides-gine": Cell(
        "peptides_func",
        replace(_TUNED, conv="gine", layers=8, hidden=160, inside=True),
        0.662,
        _TUNED_TRAINING,
    ),
    "peptides-gcn+": Cell("peptides_func", _PLUS, 0.726, _PLUS_TRAINING),
    "peptides-gine+": Cell(
        "peptides_func",
        replace(_PLUS, conv="gine", hidden=240, norm="none", residual=True, head_layers=3),
        0.706,
        {**_PLUS_TRAINING, "lr": 5e-4},
    ),
    "zinc-gcn": Cell("zinc12k", _PLUS_ZINC, None, _ZINC_TRAINING),
    "zinc-gine": Cell(
        "zinc12k",
        replace(_PLUS_ZINC, conv="gine", hidden=80, norm="none", walks=20),
        0.065,
        _ZINC_TRAINING,
    ),
    **{
        f"{name}-{conv}": Cell(name, Network(conv))
        for name in ("esol", "lipo", "bace", "tox21")
        for conv in ("gcn", "gine", "gat", "sage")
    },
}


def prepare(source: Path, folder: Path, names: Sequence[str] = tuple(SETS)) -> Iterator[str]:
    """Read the sets once, for machines without RDKit; tells what was left out."""
    for name in names:
        file, split, _ = SETS[name]
        molecules = read_molecules(source / file, split=split)
        molecules.save(folder / f"{name}.npz")
        yield f"{name}: {len(molecules.y):,} molecules. {molecules.note}".strip()
