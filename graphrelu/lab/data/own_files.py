"""The user's own files, `.npz` and `.pt`: their size is checked first; no code of a file is run."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch.serialization import add_safe_globals
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.edge_index import EdgeIndex

from graphrelu.lab.data.graph import PARTS
from graphrelu.lab.data.graph_set import GraphSet
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
