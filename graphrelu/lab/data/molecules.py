"""Molecules from a CSV file with a column of SMILES and targets to predict, read by RDKit."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_rdmol
from torch_geometric.utils.smiles import e_map, x_map

from graphrelu.lab.data.graph import DataError, as_data_error, require
from graphrelu.lab.data.graph_set import Features as Features
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.splits import SET_SHARES
from graphrelu.lab.data.splits import SplitKind as SplitKind

Molecules = GraphSet
_SPLIT_WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}


def has_smiles(path: Path) -> bool:
    """Whether a table has a column ``smiles``: a set of molecules, not the edges of a graph."""
    try:
        with _rows(path) as rows:
            return "smiles" in next(rows, [])
    except (DataError, OSError):
        return path.suffix == ".gz"


def read_molecules(
    path: Path, targets: Sequence[str] = (), split: SplitKind | None = None
) -> GraphSet:
    """The molecules of a CSV file, also compressed (``.csv.gz``).

    Args:
        path (Path): The file, with a column ``smiles`` and one for each target; an empty field is
            an unknown target.
        targets (sequence, optional): The columns to predict; all but ``smiles`` and ``split``
            unless given.
        split (str, optional): ``"scaffold"`` (the larger Bemis-Murcko scaffolds for training) or
            ``"column"``, what the column ``split`` says, which is the default where it is there.
            Otherwise the seed of a run draws the split.
    """
    remedy = "install it with: pip install 'graphrelu[lab]'"
    require(find_spec("rdkit") is not None, f"{path.name} needs RDKit; {remedy}.")
    with _rows(path) as rows:
        header: list[str] = next(rows, [])
        require("smiles" in header, f"{path.name} has no column 'smiles'.")
        targets = tuple(targets or (c for c in header if c not in ("smiles", "split")))
        require(len(targets) > 0, f"{path.name} has no column to predict.")
        for target in targets:
            has = target in header and target != "smiles"
            require(has, f"{path.name} has no column {target!r} to predict.")
        if split is None and "split" in header:
            split = "column"
        has_split = split != "column" or "split" in header
        require(has_split, f"{path.name} has no column 'split'.")
        graphs: list[Data] = []
        parts: list[int] = []
        scaffolds: list[str] = []
        unreadable: list[int] = []
        for row in filter(None, rows):  # csv's reader gives a blank line as an empty row
            fields = dict(zip(header, row, strict=False))
            line, molecule = rows.line_num, _read(fields.get("smiles", ""))
            if molecule is None:
                unreadable.append(line)
                continue
            mol, graph = molecule
            y = [_number(fields.get(t, ""), f"{path.name}, line {line}: {t}") for t in targets]
            graph.y = torch.tensor([y])
            graphs.append(graph)
            if split == "column":
                parts.append(_part(fields.get("split", ""), f"{path.name}, line {line}"))
            elif split == "scaffold":
                scaffolds.append(_scaffold(mol))
    require(len(graphs) + len(unreadable) > 0, f"{path.name} has no rows.")
    require(len(graphs) > 0, f"{path.name}: RDKit can read none of the {len(unreadable):,} SMILES.")
    for target, column in zip(targets, torch.cat([g.y for g in graphs]).t(), strict=True):
        values = column[~column.isnan()].unique()
        unknown = f"{path.name}: no value of the target {target!r} is known."
        require(len(values) > 0, unknown)
        same = f"{path.name}: the target {target!r} has the same value in every row."
        require(len(values) > 1, same)
    if split == "scaffold":
        parts = scaffold_split(scaffolds, path.name)
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    found = GraphSet.from_data(name, graphs, torch.tensor(parts) if parts else None)
    # What another set of molecules would have, too.
    nodes, edges = (
        features._replace(sizes=tuple(map(len, names.values())))
        for features, names in ((found.nodes, x_map), (found.edges, e_map))
    )
    left_out = tuple(unreadable)
    return replace(found, nodes=nodes, edges=edges, targets=targets, unreadable=left_out)


def _read(smiles: str) -> tuple[Any, Data] | None:
    """RDKit's molecule, and its graph; ``None`` where RDKit cannot read it, or PyG has no number
    for an atom."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles.strip())
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    try:
        return mol, from_rdmol(mol)
    except ValueError:  # such as a charge of -7
        return None


def _scaffold(mol: Any) -> str:
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    scaffold: str = MurckoScaffoldSmiles(mol=mol, includeChirality=False)
    return scaffold


def scaffold_split(scaffolds: Sequence[str], name: str) -> list[int]:
    """Whole scaffolds, the most frequent first, to the training, validation and test part, as in
    DeepChem: the test molecules have scaffolds that training never saw."""
    groups: dict[str, list[int]] = {}
    for i, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(i)
    one = f"{name}: all molecules have the same scaffold; choose the split 'random'."
    require(len(groups) > 1, one)
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)
    train, rest = (share * len(scaffolds) for share in SET_SHARES)
    split = [2] * len(scaffolds)
    sizes = [0, 0, 0]
    for group in ordered:
        if sizes[0] + len(group) <= train:
            part = 0
        elif sizes[0] + sizes[1] + len(group) <= rest:
            part = 1
        else:
            part = 2
        sizes[part] += len(group)
        for i in group:
            split[i] = part
    return split


@contextmanager
def _rows(path: Path) -> Iterator[Any]:
    """The rows of a CSV file; what is no such file gets one sentence."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    kinds = (EOFError, OSError, UnicodeError, csv.Error, zlib.error)
    with (
        as_data_error(f"{path.name} is not a CSV file", kinds=kinds),
        opener(path, "rt", encoding="utf-8-sig", newline="") as file,
    ):
        yield csv.reader(file)


def _number(field: str, where: str) -> float:
    """A target; NaN where it is not known."""
    try:
        value = float(field) if field.strip() else math.nan
    except ValueError:
        value = math.inf
    require(not math.isinf(value), f"{where} must be a finite number, not {field!r}.")
    return value


def _part(word: str, where: str) -> int:
    known = word.strip().lower() in _SPLIT_WORDS
    require(known, f"{where}: split must be train, val or test, not {word!r}.")
    return _SPLIT_WORDS[word.strip().lower()]
