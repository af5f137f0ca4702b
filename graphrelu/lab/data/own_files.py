"""The user's own files: `.npz` and `.pt`, tables of edges and nodes, and tables of molecules.

The size of a file is checked first, and no code of a file is run.
"""

from __future__ import annotations

import math
import os
import pickle
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.serialization import add_safe_globals
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.utils import from_smiles
from torch_geometric.utils.smiles import e_map, x_map

from graphrelu.lab.data.graph import PARTS, GraphSet
from graphrelu.lab.data.splits import SET_SHARES, SetSplit
from graphrelu.lab.errors import DataError, as_data_error, require

# How much a file may declare to hold, in GiB of memory, unless the variable says otherwise.
MOST_GIB = 8.0
MOST_GIB_VARIABLE = "GRAPHRELU_MOST_GIB"
MASKS = tuple(f"{part}_mask" for part in PARTS)
FIELDS = ("x", "edge_index", "edge_weight", "edge_attr", "y", *MASKS)  # of a Data object
# The fields of a graph by the names that they have in .npz files.
ALIASES = {"node_features": "x", "node_labels": "y"}
LAYOUTS = (
    "use a .npz with x, y and edge_index, or with node_features, node_labels and edges; a .pt with "
    "a PyG Data; edges.csv beside nodes.csv; or a .csv with a column smiles"
)
HOW = "save a PyG Data, or a list of them, that holds tensors only, with torch.save"
PART_OF = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
add_safe_globals([Data, DataEdgeAttr, DataTensorAttr, EdgeIndex, GlobalStorage])


def check_size(num_bytes: int, path: Path) -> None:
    """Raise a :class:`DataError` where a file declares more than is allowed."""
    with as_data_error(f"{MOST_GIB_VARIABLE} must be a number"):
        most = float(os.environ.get(MOST_GIB_VARIABLE) or MOST_GIB)
    require(
        num_bytes <= most * 2**30,
        f"{path} declares {num_bytes / 2**30:,.2f} GiB, more than the {most:g} that are "
        f"allowed; set {MOST_GIB_VARIABLE} to allow more.",
    )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an ``.npz`` file; pickled objects are refused."""
    with path.open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a header is Python's syntax, and may be odd
        check_size(_unpacked(stream), path)
        with np.load(stream, allow_pickle=False) as file:
            return dict(file)


def _unpacked(stream: BinaryIO) -> int:
    """The bytes that a file declares to hold: a zip archive may be compressed."""
    size = stream.seek(0, os.SEEK_END)
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    stream.seek(0)
    return size


def read_npz(path: Path) -> Data:
    """A graph in a usual form, its edges as they are stored.

    As in PyG: ``x, y, edge_index [2, E]``. Of the heterophilous graphs: ``node_features,
    node_labels, edges [E, 2]``, each edge once or twice. Splits, if present, are ``train_mask,
    val_mask, test_mask`` or ``train_masks, ... [splits, N]``.
    """
    # A damaged file raises many kinds of errors, in numpy and zipfile.
    with as_data_error(f"{path} cannot be read as an .npz file"):
        arrays = read_arrays(path)
        known = not arrays.keys().isdisjoint(("edge_index", "edges"))
        require(known, f"{path} has an unknown format; {LAYOUTS}.")
        fields = {ALIASES.get(name, name): array for name, array in arrays.items()}
        data = Data(**{key: torch.from_numpy(fields[key]) for key in FIELDS if key in fields})
        if "edges" in fields:
            edges = fields["edges"]
            fits = edges.ndim == 2 and edges.shape[1] == 2
            require(fits, f"{path}: edges must have the shape [edges, 2].")
            data.edge_index = torch.from_numpy(edges.T)
        for key in MASKS:
            if f"{key}s" in fields:
                mask = torch.from_numpy(fields[f"{key}s"])
                # A split is a row in these files, and a column in PyG.
                is_row = mask.dim() == 2 and data.y is not None and mask.size(1) == len(data.y)
                data[key] = mask.t() if is_row else mask
        return data


def read_pt(path: Path) -> Data:
    """A PyG ``Data`` object saved with ``torch.save``; code inside the file is never run."""
    data = _loaded(path)
    is_list = isinstance(data, list) and len(data) > 0 and isinstance(data[0], Data)
    require(not is_list, f"{path} holds many graphs; write graphs:{path}.")
    return _fields(data, path)


def read_pt_list(path: Path) -> GraphSet:
    """Many graphs, each with what is to be predicted as ``y``: a saved list of PyG ``Data``."""
    graphs = _loaded(path)
    is_list = isinstance(graphs, list) and len(graphs) > 0
    require(is_list, f"{path} holds no list of graphs; {HOW}.")
    data = [_fields(graph, path) for graph in graphs]
    with as_data_error(f"{path} cannot be loaded", f"; {HOW}"):
        return GraphSet.from_data(path.name, data)


def _loaded(path: Path) -> Any:
    # torch does not check the indices of sparse tensors unless it is told to.
    checked = torch.sparse.check_sparse_tensor_invariants()
    # On a damaged file, torch.load raises many kinds of errors.
    unreadable = as_data_error(f"{path} cannot be loaded", f"; {HOW}")
    with unreadable, checked, path.open("rb") as stream:
        check_size(_unpacked(stream), path)
        try:
            return torch.load(stream, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # whose text advises to run what is in the file
            trap = f"{path} is damaged or holds more than tensors, and nothing of it was run"
            raise DataError(f"{trap}; {HOW}.") from None


def _fields(data: Any, path: Path) -> Data:
    """The fields of a graph that are used, as plain tensors."""
    require(isinstance(data, Data), f"{path} holds a {type(data).__name__}; {HOW}.")
    # The object may not have been put together as PyG does.
    with as_data_error(f"{path} cannot be loaded", f"; {HOW}"):
        given = {key: data[key] for key in FIELDS if key in data}
        found = {key: value.detach() for key, value in given.items() if value is not None}
        for value in found.values():
            if value.layout == torch.strided:  # an expanded tensor is larger than its bytes
                check_size(8 * value.numel(), path)
        return Data(**found)


def nodes_beside(edges: Path) -> Path:
    """The table of nodes: named as that of edges, with `nodes` in place of `edges`."""
    head, found, tail = edges.name.rpartition("edges")
    require(
        bool(found),
        f"{edges} has no column smiles; a table of edges must have edges in its name, as in "
        f"edges.csv beside nodes.csv.",
    )
    return edges.with_name(f"{head}nodes{tail}")


def read_tables(edges: Path) -> Data:
    """A graph from a table of edges and that of its nodes.

    A line of the edges names two nodes, and may have a weight; a first line that names no node is a
    header. The nodes have a header: ``label``, for classes whole numbers or words, for values any
    numbers; a class that is not known is -1 or nothing. If present, ``id`` is what the edges call
    the node, which is else its place from 0 on; ``train``, ``val`` and ``test`` hold 0 and 1; and
    every other column is a feature.
    """
    data, names = _read_nodes(nodes_beside(edges))
    data.edge_index, data.edge_weight = _read_edges(edges, names)
    return data


def read_table(path: Path, rows: int | None = None) -> Any:
    """The fields of a table, as texts in a data frame of pandas. Its index counts lines from 0, and
    empty lines are left out."""
    import pandas as pd

    require(path.is_file(), f"There is no file {path}.")
    # A damaged file raises many kinds of errors, in pandas and in what unpacks it.
    with as_data_error(f"{path} cannot be read as a table"):
        table = pd.read_csv(
            path,
            header=None,
            nrows=rows,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            encoding="utf-8-sig",
        )
    table = table.fillna("").apply(lambda column: column.str.strip())
    table = table[(table != "").any(axis=1)]
    require(len(table) > 0, f"{path} is empty.")
    return table


def with_header(table: Any, path: Path) -> Any:
    """The table with its first line as the names of its columns."""
    header = table.iloc[0].tolist()
    require(len(set(header)) == len(header), f"{path} has two columns with the same name.")
    return table.iloc[1:].set_axis(header, axis=1)


def numbers(column: Any, path: Path, name: str, gaps: bool = False) -> np.ndarray:
    """The numbers in a column of texts; with ``gaps``, NaN for no text."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    check_column(column, values.notna() | (gaps & (column == "")), path, name, "numbers")
    return values.to_numpy(np.float64)


def check_column(column: Any, fits: Any, path: Path, name: str, rule: str) -> None:
    """Raise a :class:`DataError` that names the first line of a column that does not fit."""
    if not fits.all():
        line = fits.idxmin()
        raise DataError(f"{path}, line {line + 1}: {name} must hold {rule}, not {column[line]!r}.")


def _read_nodes(path: Path) -> tuple[Data, Any]:
    """Everything except the edges, and the names of the nodes: their places if they have none."""
    import pandas as pd

    table = with_header(read_table(path), path)
    require("label" in table, f"{path} needs a header line with a column label.")
    features = [name for name in table if name not in ("id", "label", *PARTS)]
    for name in features:
        is_odd = name.partition("_")[0] in ("label", *PARTS)
        require(not is_odd, f"{path}: {name} would be a feature; name it otherwise.")
    x = np.empty((len(table), len(features)))
    for column, name in enumerate(features):
        x[:, column] = numbers(table[name], path, name)
    data = Data(x=torch.from_numpy(x), y=_classes(table["label"]))
    for part in filter(table.__contains__, PARTS):
        check_column(table[part], table[part].isin(("0", "1")), path, part, "0 and 1 only")
        data[f"{part}_mask"] = torch.tensor((table[part] == "1").to_numpy())
    names = pd.Index(table["id"] if "id" in table else map(str, range(len(table))))
    require(names.is_unique, f"{path} names a node twice.")
    return data, names


def _classes(column: Any) -> Tensor:
    """Classes or values. Whole numbers stay, words are numbered in order, and an unknown class is
    -1. Numbers that are not all whole are values."""
    import pandas as pd

    known = column[~column.isin(("", "-1"))]
    values = pd.to_numeric(known, errors="coerce")
    is_number = values.notna() | (known.str.lower() == "nan")
    if not is_number.all():
        words = column.where(column.index.isin(known.index)).astype("category")
        return torch.tensor(words.cat.codes.to_numpy(np.int64))
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.reindex(column.index, fill_value=-1).to_numpy(copy=True))
    return torch.tensor(pd.to_numeric(column, errors="coerce").to_numpy(np.float64))


def _read_edges(path: Path, names: Any) -> tuple[Tensor, Tensor | None]:
    """The pairs of nodes as they stand in the table, and their weights, if any."""
    table = read_table(path)
    sentence = f"{path} must have two nodes per line, and optionally a weight."
    require(table.shape[1] in (2, 3), sentence)
    if not table.iloc[0, :2].isin(names).any():
        table = table.iloc[1:]  # a header
    for column in (0, 1):
        known = table[column].isin(names)
        check_column(table[column], known, path, f"column {column + 1}", "names of nodes")
    ends = np.stack([names.get_indexer(table[column]) for column in (0, 1)])
    weight = None
    if table.shape[1] == 3:
        weight = torch.tensor(numbers(table[2], path, "the weight"), dtype=torch.float)
    return torch.from_numpy(ends), weight


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

    molecules = table["smiles"].map(_molecule)
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


def _molecule(smiles: str) -> Data | None:
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
