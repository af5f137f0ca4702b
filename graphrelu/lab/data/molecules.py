"""Molecules from a CSV file with a column of SMILES and targets to predict, read by RDKit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map, x_map

from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.splits import SET_SHARES, SetSplit
from graphrelu.lab.data.tables import check_column, numbers, read_table, with_header
from graphrelu.lab.errors import DataError, require

PART_OF = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}


def has_smiles(path: Path) -> bool:
    """Whether a table has a column ``smiles``: a set of molecules, not the edges of a graph."""
    try:
        return "smiles" in read_table(path, rows=1).iloc[0].str.lower().tolist()
    except DataError:
        return False


def read_molecules(
    path: Path, targets: Sequence[str] = (), split: SetSplit | None = None
) -> GraphSet:
    """The molecules of a CSV file, also compressed (``.csv.gz``).

    Args:
        path (Path): The file, with a column ``smiles`` and one for each target; an empty field is
            an unknown target.
        targets (sequence, optional): The columns to predict; all but ``smiles`` and ``split``
            unless given.
        split (str, optional): ``"scaffold"`` (the larger Bemis-Murcko scaffolds for training), or
            ``"column"`` for what the column ``split`` says, which is the default where it is there.
    """
    name, remedy = path.name, "install it with: pip install 'graphrelu[lab]'"
    require(find_spec("rdkit") is not None, f"{name} needs RDKit; {remedy}.")
    table = with_header(read_table(path), path)
    if "smiles" not in table:
        table = table.rename(columns=lambda name: "smiles" if name.lower() == "smiles" else name)
    require("smiles" in table, f"{name} has no column 'smiles'.")
    targets = tuple(targets or (c for c in table if c not in ("smiles", "split")))
    require(len(targets) > 0, f"{name} has no column to predict.")
    for target in targets:
        has = target in table and target != "smiles"
        require(has, f"{name} has no column {target!r} to predict.")
    split = split or ("column" if "split" in table else None)
    require(split != "column" or "split" in table, f"{name} has no column 'split'.")

    molecules = table["smiles"].map(_read)
    unreadable = tuple(int(place) + 1 for place in table.index[molecules.isna()])
    table, graphs = table[molecules.notna()], molecules.dropna().tolist()
    require(len(graphs) > 0, f"{name}: RDKit can read none of the {len(molecules):,} SMILES.")
    y = torch.from_numpy(np.stack([numbers(table[t], path, t, gaps=True) for t in targets], axis=1))
    for target, column in zip(targets, y.t(), strict=True):
        values = column[~column.isnan()].unique()
        require(len(values) > 1, f"{name}: the target {target!r} has fewer than two values.")
    for graph, row in zip(graphs, y, strict=True):
        graph.y = row.view(1, -1)
    parts = None
    if split == "scaffold":
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

        parts = scaffold_split([*map(MurckoScaffoldSmiles, table["smiles"])], name)
    elif split == "column":
        places = table["split"].str.lower().map(PART_OF)
        check_column(table["split"], places.notna(), path, "split", "train, val or test")
        parts = torch.tensor(places.to_numpy(np.int64))
    graph_set = GraphSet.from_data(name.removesuffix(".gz").removesuffix(".csv"), graphs, parts)
    # What another set of molecules would have, too.
    nodes, edges = (
        features._replace(sizes=tuple(map(len, names.values())))
        for features, names in ((graph_set.nodes, x_map), (graph_set.edges, e_map))
    )
    return replace(graph_set, nodes=nodes, edges=edges, targets=targets, unreadable=unreadable)


def _read(smiles: str) -> Data | None:
    """``None`` where RDKit cannot read it, or PyG has no number for an atom."""
    try:
        graph = from_smiles(smiles)
    except ValueError:  # such as a charge of -7
        return None
    return graph if graph.num_nodes > 0 else None


def scaffold_split(scaffolds: Sequence[str], name: str) -> torch.Tensor:
    """Whole scaffolds, the most frequent first, to the training, validation and test part, as in
    DeepChem: the test molecules have scaffolds that training never saw."""
    groups: dict[str, list[int]] = {}
    for i, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(i)
    one = f"{name}: all molecules have the same scaffold; choose the split 'random'."
    require(len(groups) > 1, one)
    split, sizes = torch.empty(len(scaffolds), dtype=torch.long), [0, 0, 0]
    ends = [*(share * len(scaffolds) for share in SET_SHARES), math.inf]
    for group in sorted(groups.values(), key=lambda group: (-len(group), -group[0])):
        fits = (sum(sizes[: part + 1]) + len(group) <= end for part, end in enumerate(ends))
        part = list(fits).index(True)
        sizes[part] += len(group)
        split[group] = part
    return split
