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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import from_rdmol, is_undirected
from torch_geometric.utils.smiles import e_map, x_map

from graphrelu.lab.data.graph import PARTS, DataError, Task, as_data_error, require

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
    """A set of graphs, one after another, with targets `y [G, T]`, NaN where one is unknown; or
    with one class of each graph, whole numbers `y [G, 1]`. The graphs are undirected, without
    self-loops.

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
    def task(self) -> Task:
        """Labels that hold or do not, a class, or values."""
        if not self.y.is_floating_point():
            return "classes"
        known = self.y[~self.y.isnan()]
        return "labels" if bool(((known == 0) | (known == 1)).all()) else "values"

    @property
    def outputs(self) -> int:
        """What a network says of a graph: a number for each target, or for each class."""
        return int(self.y.max()) + 1 if self.task == "classes" else self.y.size(1)

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
            require(both or self.task != "labels", one_class)
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
        graphs: list[Data] = []
        places: list[int] = []
        scaffolds: list[str] = []
        unreadable: list[int] = []
        for row in filter(None, rows):  # csv's reader gives a blank line as an empty row
            fields = dict(zip(header, row, strict=False))
            line, molecule = rows.line_num, _read(fields.get("smiles", ""))
            if molecule is None:
                unreadable.append(line)
                continue
            mol, graph = molecule
            graph.y = torch.tensor([_number(fields.get(t, ""), path, t, line) for t in targets])
            graphs.append(graph)
            if split == "column":
                places.append(_part(fields.get("split", ""), path, line))
            elif split == "scaffold":
                scaffolds.append(_scaffold(mol))
    require(len(graphs) + len(unreadable) > 0, f"{path.name} has no rows.")
    require(len(graphs) > 0, f"{path.name}: RDKit can read none of the {len(unreadable):,} SMILES.")
    _check_targets(torch.stack([graph.y for graph in graphs]), targets, path.name)
    if split == "scaffold":
        parts: Tensor | None = scaffold_split(scaffolds, path.name)
    else:
        parts = torch.tensor(places) if split == "column" else None
    found = from_data(name, graphs, parts)
    # What another set of molecules would have, too.
    sizes = (tuple(map(len, names.values())) for names in (x_map, e_map))
    nodes, edges = (
        features._replace(sizes=own)
        for features, own in zip((found.nodes, found.edges), sizes, strict=True)
    )
    left_out = tuple(unreadable)
    return replace(found, nodes=nodes, edges=edges, targets=targets, unreadable=left_out)


def from_data(name: str, graphs: Sequence[Data], split: Tensor | None = None) -> Molecules:
    """A list of PyG's graphs, such as a dataset of PyG: whole numbers are categories, real numbers
    features; `y` is a class, labels or values."""
    require(len(graphs) > 0, f"{name} has no graphs.")
    nodes, edges, ends, y = [], [], [], []
    for i, data in enumerate(graphs):
        count = int(data.num_nodes or 0)
        require(count > 0, f"{name}: graph {i} has no nodes.")
        require(data.y is not None, f"{name}: graph {i} has no y.")
        x, attr = data.x, data.edge_attr
        x = torch.ones(count, 1) if x is None else x
        attr = torch.zeros(data.num_edges, 1, dtype=torch.long) if attr is None else attr
        nodes.append(x if x.dim() > 1 else x.unsqueeze(1))
        edges.append(attr if attr.dim() > 1 else attr.unsqueeze(1))
        ends.append(data.edge_index)
        y.append(data.y.view(1, -1))
    node_count = torch.tensor([len(part) for part in nodes])
    edge_index, attr = torch.cat(ends, dim=1), torch.cat(edges)
    graph = torch.repeat_interleave(torch.tensor([len(part) for part in edges]))
    is_edge = edge_index[0] != edge_index[1]  # not a self-loop
    edge_index, attr, graph = edge_index[:, is_edge], attr[is_edge], graph[is_edge]
    shift = (node_count.cumsum(0) - node_count)[graph]
    undirected = is_undirected(edge_index + shift, num_nodes=int(node_count.sum()))
    require(undirected, f"{name}: the graphs must be undirected.")
    target = torch.cat(y)
    is_class = not target.is_floating_point() and target.size(1) == 1 and int(target.max()) > 1
    return Molecules(
        name,
        _features(torch.cat(nodes), f"{name}: x"),
        _features(attr, f"{name}: edge_attr"),
        edge_index,
        node_count,
        graph.bincount(minlength=len(graphs)),
        target.long() if is_class else target.float(),
        tuple(f"y{i}" for i in range(target.size(1))),
        split,
    )


def _features(x: Tensor, what: str) -> Features:
    """Each row once; of categories, as many as the largest number says."""
    require(x.is_floating_point() or bool((x >= 0).all()), f"{what} must not be negative.")
    table, kind = x.unique(dim=0, return_inverse=True)
    if x.is_floating_point():
        return Features(table.float(), kind)
    sizes = (table.amax(dim=0) + 1).tolist() if len(table) else [1] * x.size(1)
    return Features(table, kind, tuple(sizes))


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
        as_data_error(f"{path.name} is not a CSV file", kinds=no_csv),
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
