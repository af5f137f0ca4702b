"""Molecules as users have them: a CSV file with a column of SMILES, and targets to predict.

RDKit reads them once. The graphs can be saved as plain arrays, for machines without RDKit.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from graphrelu.lab.data.graph import PARTS, DataError, require, told

SplitKind = Literal["random", "scaffold", "column"]
_SPLIT_WORDS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
SHARES = (0.8, 0.1, 0.1)  # of a random or a scaffold split
_MOST_NAMED = 5


class Features(NamedTuple):
    """Features that many nodes (or edges) share: row `kind[n]` of the table is node n's.

    A table of whole numbers `[K, F]` holds categories, of which column f has `sizes[f]`; a table
    of real numbers holds values, and no sizes.
    """

    table: Tensor
    kind: Tensor  # [N]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Molecules:
    """A set of graphs, one after another, with targets `y [G, T]`, NaN where one is unknown.

    ``edge_index [2, E]`` counts nodes within each graph. ``split [G]`` is 0, 1 and 2 for training,
    validation and test graphs; ``None`` where the seed of a run draws them. ``unreadable`` are the
    lines of the file that were left out.
    """

    name: str
    nodes: Features
    edges: Features
    edge_index: Tensor
    node_count: Tensor  # [G]
    edge_count: Tensor  # [G]
    y: Tensor
    targets: tuple[str, ...]
    split: Tensor | None = None
    unreadable: tuple[int, ...] = ()

    @property
    def task(self) -> Literal["labels", "values"]:
        """Labels that hold or do not, or values."""
        known = self.y[~self.y.isnan()]
        return "labels" if bool(((known == 0) | (known == 1)).all()) else "values"

    @property
    def note(self) -> str:
        """What was left out, in one sentence; empty where nothing was."""
        if not self.unreadable:
            return ""
        lines = ", ".join(map(str, self.unreadable[:_MOST_NAMED]))
        more = ", ..." if len(self.unreadable) > _MOST_NAMED else ""
        number = len(self.unreadable)
        total = number + len(self.y)
        was, where = ("was", "line") if number == 1 else ("were", "lines")
        left_out = f"{number:,} of {total:,} molecules {was} left out as unreadable"
        return f"{left_out} ({where} {lines}{more})."

    def parts(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """The training, validation and test graphs of a run."""
        split = self.split
        if split is None:
            order = torch.randperm(len(self.y), generator=torch.Generator().manual_seed(seed))
            split = torch.empty_like(order)
            split[order] = _cut(len(order))
        train, val, test = (torch.nonzero(split == part).view(-1) for part in range(3))
        for name, part in zip(PARTS, (train, val, test), strict=True):
            require(len(part) > 0, f"{self.name}: the split leaves no graph for the {name} part.")
            y = self.y[part]
            require((~y.isnan()).any(), f"{self.name}: no target is known in the {name} part.")
            both = ((y == 0).any(dim=0) & (y == 1).any(dim=0)).any()
            one_class = f"{self.name}: the {name} part has one class only, in every target."
            require(both or self.task == "values", one_class)
        return train, val, test

    def save(self, path: Path) -> None:
        """Plain arrays, compressed."""
        small = {
            "node_table": self.nodes.table,
            "node_kind": self.nodes.kind,
            "edge_table": self.edges.table,
            "edge_kind": self.edges.kind,
            "edge_index": self.edge_index,
            "node_count": self.node_count,
            "edge_count": self.edge_count,
        }
        arrays = {name: _narrow(tensor.numpy()) for name, tensor in small.items()}
        arrays["y"] = self.y.numpy()
        if self.split is not None:
            arrays["split"] = _narrow(self.split.numpy())
        meta = {
            "name": self.name,
            "targets": self.targets,
            "node_sizes": self.nodes.sizes,
            "edge_sizes": self.edges.sizes,
            "unreadable": self.unreadable,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Molecules:
        """The inverse of :meth:`save`."""
        with np.load(path, allow_pickle=False) as file:
            meta = json.loads(str(file["meta"]))
            part = {name: _tensor(file[name]) for name in file.files if name != "meta"}
        return cls(
            meta["name"],
            Features(part["node_table"], part["node_kind"], tuple(meta["node_sizes"])),
            Features(part["edge_table"], part["edge_kind"], tuple(meta["edge_sizes"])),
            part["edge_index"],
            part["node_count"],
            part["edge_count"],
            part["y"],
            tuple(meta["targets"]),
            part.get("split"),
            tuple(meta["unreadable"]),
        )


def read_molecules(
    path: Path, targets: Sequence[str] = (), split: SplitKind | None = None
) -> Molecules:
    """The molecules of a CSV file, also compressed (``.csv.gz``).

    Args:
        path (Path): The file, with a column ``smiles`` and one for each target; an empty field is
            an unknown target.
        targets (sequence, optional): The columns to predict; all but ``smiles`` and ``split``
            unless given.
        split (str, optional): ``"random"``, ``"scaffold"`` (the larger Bemis-Murcko scaffolds for
            training) or ``"column"``: what the column ``split`` says, which is the default where
            it is there; else random.
    """
    known = get_args(SplitKind)
    require(split is None or split in known, f"split must be one of {', '.join(known)}.")
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    with _rows(path) as rows:
        header: list[str] = next(rows, [])
        require("smiles" in header, f"{path.name} has no column 'smiles'.")
        targets = tuple(targets or (c for c in header if c not in ("smiles", "split")))
        require(len(targets) > 0, f"{path.name} has no column to predict.")
        for target in targets:
            has = target in header and target != "smiles"
            require(has, f"{path.name} has no column {target!r} to predict.")
        if split is None:
            split = "column" if "split" in header else "random"
        has_split = split != "column" or "split" in header
        require(has_split, f"{path.name} has no column 'split'.")
        lines, y, words, molecules = [], [], [], []
        unreadable = []
        for row in filter(None, rows):  # csv's reader gives a blank line as an empty row
            fields = dict(zip(header, row, strict=False))
            molecule = _read(fields.get("smiles", ""))
            if molecule is None:
                unreadable.append(rows.line_num)
                continue
            lines.append(rows.line_num)
            y.append([_number(fields.get(t, ""), path, t, rows.line_num) for t in targets])
            words.append(fields.get("split", ""))
            molecules.append(molecule)
    require(len(molecules) + len(unreadable) > 0, f"{path.name} has no rows.")
    require(
        len(molecules) > 0, f"{path.name}: RDKit can read none of the {len(unreadable):,} SMILES."
    )
    values = torch.tensor(y, dtype=torch.float32)
    _check_targets(values, targets, path.name)
    parts: Tensor | None = None
    if split == "column":
        parts = torch.tensor(
            [_part(word, path, line) for word, line in zip(words, lines, strict=True)]
        )
    elif split == "scaffold":
        parts = scaffold_split([molecule.scaffold() for molecule in molecules], path.name)
    return _pack(name, molecules, values, targets, parts, tuple(unreadable))


class _Molecule(NamedTuple):
    mol: Any  # RDKit's
    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor

    def scaffold(self) -> str:
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

        scaffold: str = MurckoScaffoldSmiles(mol=self.mol, includeChirality=False)
        return scaffold


def _read(smiles: str) -> _Molecule | None:
    """The molecule; ``None`` where RDKit cannot read it, or PyG has no number for an atom."""
    from rdkit import Chem, rdBase
    from torch_geometric.utils import from_rdmol

    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles.strip())
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    try:
        data = from_rdmol(mol)
    except ValueError:  # such as a charge of -7
        return None
    return _Molecule(mol, data.x, data.edge_index, data.edge_attr)


def _pack(
    name: str,
    molecules: Sequence[_Molecule],
    y: Tensor,
    targets: Sequence[str],
    split: Tensor | None,
    unreadable: tuple[int, ...],
) -> Molecules:
    from torch_geometric.utils.smiles import e_map, x_map

    def features(rows: list[Tensor], sizes: tuple[int, ...]) -> Features:
        table, kind = torch.cat(rows).unique(dim=0, return_inverse=True)
        return Features(table, kind, sizes)

    return Molecules(
        name,
        features([m.x for m in molecules], tuple(map(len, x_map.values()))),
        features([m.edge_attr for m in molecules], tuple(map(len, e_map.values()))),
        torch.cat([m.edge_index for m in molecules], dim=1),
        torch.tensor([m.x.size(0) for m in molecules]),
        torch.tensor([m.edge_index.size(1) for m in molecules]),
        y,
        tuple(targets),
        split,
        unreadable,
    )


def scaffold_split(scaffolds: Sequence[str], name: str) -> Tensor:
    """Whole scaffolds, the most frequent first, to the training, validation and test part, as in
    DeepChem: the test molecules have scaffolds that training never saw."""
    groups: dict[str, list[int]] = {}
    for i, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(i)
    one = f"{name}: all molecules have the same scaffold; choose the split 'random'."
    require(len(groups) > 1, one)
    ordered = sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True)
    train, rest = SHARES[0] * len(scaffolds), sum(SHARES[:2]) * len(scaffolds)
    split = torch.full((len(scaffolds),), 2)
    for group in ordered:
        if (split == 0).sum() + len(group) <= train:
            split[group] = 0
        elif (split < 2).sum() + len(group) <= rest:
            split[group] = 1
    return split


def _cut(count: int) -> Tensor:
    """The parts of graphs in random order."""
    train, val = int(SHARES[0] * count), int(sum(SHARES[:2]) * count)
    return torch.tensor([0] * train + [1] * (val - train) + [2] * (count - val))


@contextmanager
def _rows(path: Path) -> Iterator[Any]:
    """The rows of a CSV file; what is no such file gets one sentence."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    no_csv = (gzip.BadGzipFile, EOFError, UnicodeError, csv.Error)
    with (
        told(f"{path.name} is not a CSV file", kinds=no_csv),
        opener(path, "rt", encoding="utf-8-sig", newline="") as file,
    ):
        yield csv.reader(file)


def _number(field: str, path: Path, target: str, line: int) -> float:
    if not field.strip():
        return math.nan
    try:
        value = float(field)
    except ValueError:
        raise DataError(
            f"{path.name}: the target {target!r} must be a number, not {field!r} (line {line})."
        ) from None
    require(not math.isinf(value), f"{path.name}: {target!r} must be finite (line {line}).")
    return value


def _part(word: str, path: Path, line: int) -> int:
    known = word.strip().lower() in _SPLIT_WORDS
    rule = "must say train, val or test"
    require(known, f"{path.name}: the column 'split' {rule}, not {word!r} (line {line}).")
    return _SPLIT_WORDS[word.strip().lower()]


def _check_targets(y: Tensor, targets: Sequence[str], name: str) -> None:
    for target, column in zip(targets, y.t(), strict=True):
        known = column[~column.isnan()].unique()
        require(len(known) > 0, f"{name}: no value of the target {target!r} is known.")
        same = f"{name}: the target {target!r} has the same value in every row."
        require(len(known) > 1, same)


def _narrow(array: Any) -> Any:
    """The smallest type that holds whole numbers; real numbers stay as they are."""
    if array.dtype.kind == "f":
        return array
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(array if array.dtype.kind == "f" else array.astype(np.int64))
