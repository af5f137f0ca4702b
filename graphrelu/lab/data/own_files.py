"""The user's own files, `.npz` and `.pt`: their size is checked first; no code of a file is run."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
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

from graphrelu.lab.data.graph import (
    DataError,
    as_data_error,
    checked_edges,
    checked_features,
    quiet_csr,
    require,
)
from graphrelu.lab.data.graph_set import GraphSet, graph_set

# How much a file may declare to hold, in GiB of memory, unless the variable says otherwise.
MOST_GIB = 8.0
MOST_GIB_VARIABLE = "GRAPHRELU_MOST_GIB"
MASKS = ("train_mask", "val_mask", "test_mask")
FIELDS = ("x", "edge_index", "edge_weight", "y", *MASKS)  # of a Data object
DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("bfloat16", "float16", "float32", "float64"),
)
add_safe_globals([Data, DataEdgeAttr, DataTensorAttr, EdgeIndex, GlobalStorage])
CSR_KEYS = {
    prefix: [prefix + ending for ending in ("data", "indices", "indptr", "shape")]
    for prefix in ("adj_", "attr_")
}
LIST_KEYS = ("node_features", "node_labels", "edges")  # of the form with a list of edges
# What a file that is none of these is answered with.
LAYOUTS = (
    "known are .npz files with adj_data, adj_indices, adj_indptr, adj_shape, attr_matrix and "
    "labels, or with node_features, node_labels and edges; .pt files with a PyG Data; and "
    "edges.csv beside nodes.csv, or the folder of both"
)


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file, in hexadecimal."""
    with as_data_error(f"{path} cannot be read", kinds=OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def check_size(num_bytes: int, path: Path) -> None:
    """Raise a :class:`DataError` where a file declares more than is allowed."""
    text = os.environ.get(MOST_GIB_VARIABLE) or str(MOST_GIB)
    try:
        most = float(text)
    except ValueError:
        most = math.nan
    if not most > 0:
        raise ValueError(f"{MOST_GIB_VARIABLE} must be a positive number, not {text!r}.")
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

    Of the heterophilous graphs: ``node_features, node_labels, edges [E, 2]``, each edge once or
    twice; if present, ``train_masks, val_masks, test_masks [splits, N]``. Of the GNN benchmarks:
    ``adj_data, adj_indices, adj_indptr, adj_shape``; ``attr_`` with the same endings, or a
    dense ``attr_matrix``; ``labels``; if present, ``train_mask, val_mask, test_mask``. Edge
    weights are left out, as PyG does; features keep their values, where PyG sets them to one.
    """
    # A damaged file raises many kinds of errors, in numpy and in zipfile.
    with as_data_error(f"{path} cannot be read as an .npz file"):
        arrays = read_arrays(path)
        is_known = not arrays.keys().isdisjoint(("edges", *CSR_KEYS["adj_"]))
        require(is_known, f"{path} is of no known layout; {LAYOUTS}.")
        return _parse_edge_list(arrays, path) if "edges" in arrays else _parse_npz(arrays, path)


def _parse_npz(file: Mapping[str, Any], path: Path) -> Data:
    adjacency = _matrix(file, "adj_", path)
    num_nodes, width = adjacency.shape
    square = f"{path}: the adjacency matrix is {num_nodes} x {width}, not square."
    require(width == num_nodes, square)
    names = {"attr_matrix": "x", "labels": "y"} | {key: key for key in MASKS}
    data = Data(**{name: torch.from_numpy(file[key]) for key, name in names.items() if key in file})
    if "attr_data" in file:
        data.x = _sparse_features(file, path)
    if data.x is not None:
        sentence = f"{path} has features of {data.x.size(0)} nodes, but edges of {num_nodes}."
        require(data.x.size(0) == num_nodes, sentence)
    data.edge_index = adjacency._indices()
    return data


def _parse_edge_list(file: Mapping[str, Any], path: Path) -> Data:
    _require_keys(file, LIST_KEYS, path)
    x, y, edges = (torch.from_numpy(file[key]) for key in LIST_KEYS)
    fits = edges.dim() == 2 and edges.size(1) == 2
    require(fits, f"{path}: edges must have the shape [edges, 2].")
    masks = {key: torch.from_numpy(file[f"{key}s"]) for key in MASKS if f"{key}s" in file}
    for key, mask in masks.items():
        # A split is a row in these files, and a column in PyG.
        if mask.dim() == 2 and mask.size(1) == len(y):
            masks[key] = mask.t()
    return Data(x=x, y=y, edge_index=edges.t(), **masks)


def _require_keys(file: Mapping[str, Any], keys: Sequence[str], path: Path) -> None:
    missing = [key for key in keys if key not in file]
    require(not missing, f"{path} lacks {', '.join(missing)}.")


def _matrix(file: Mapping[str, Any], prefix: str, path: Path) -> Tensor:
    """A CSR matrix inside an npz archive, as a sparse COO tensor with its entries in any order."""
    keys = CSR_KEYS[prefix]
    _require_keys(file, keys, path)
    for key in keys:
        kinds, whole = ("biuf", "") if key == keys[0] else ("iu", "whole ")
        fits = file[key].ndim == 1 and file[key].dtype.kind in kinds
        require(fits, f"{path}: {key} must be a list of {whole}numbers.")
    with np.errstate(over="ignore"):  # what is infinite then is found later
        values = file[keys[0]].astype(np.float32)
    # Differences of unsigned numbers would wrap around.
    indices, indptr, shape = (file[key].astype(np.int64) for key in keys[1:])
    is_shape = len(shape) == 2 and min(shape) >= 0
    require(is_shape, f"{path}: {prefix}shape must be a number of rows and one of columns.")
    rows, columns = shape.tolist()
    fits = (
        indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and (indptr[1:] >= indptr[:-1]).all()
        and indptr[-1] == len(indices) == len(values)
    )
    require(fits, f"{path}: {prefix}indptr does not fit the rest of the sparse matrix.")
    if len(indices) > 0:
        low, high = indices.min(), indices.max()
        bounds = f"between 0 and {columns - 1}, but run from {low} to {high}"
        require(0 <= low <= high < columns, f"{path}: {prefix}indices must lie {bounds}.")
    places = np.stack([np.repeat(np.arange(rows), np.diff(indptr)), indices])
    tensors = torch.from_numpy(places), torch.from_numpy(values)
    return torch.sparse_coo_tensor(*tensors, (rows, columns), check_invariants=True)


def _sparse_features(file: Mapping[str, Any], path: Path) -> Tensor:
    """A sparse CSR tensor from the CSR matrix of attributes."""
    matrix = _matrix(file, "attr_", path)
    check_size(8 * sum(matrix.shape), path)
    with quiet_csr():  # a row's columns are sorted, and duplicates added up
        return matrix.coalesce().to_sparse_csr()


def read_pt(path: Path) -> Data:
    """A PyG ``Data`` object saved with ``torch.save``; code inside the file is never run."""
    how = "save it with torch.save(data, path), data a PyG Data object that holds tensors only"
    data = _loaded(path, how)
    require(not _is_list(data), f"{path} holds many graphs; write graphs:{path}.")
    return _fields(data, path, how)


def read_pt_list(path: Path, name: str) -> GraphSet:
    """Many graphs, each with its class or value as ``y``: a saved list of PyG ``Data`` objects."""
    how = "save them with torch.save(list, path), a list of PyG Data objects that hold tensors only"
    graphs = _loaded(path, how)
    require(_is_list(graphs), f"{path} holds a {type(graphs).__name__}; {how}.")
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    edges, total = [], 0
    for place, graph in enumerate(graphs):
        which, data = f"{name}, graph {place}", _fields(graph, path, how)
        x = checked_features(data.x, which)
        fits = x.layout == torch.strided and x.size(1) == (xs or [x])[0].size(1)
        require(fits, f"{which}: the features must be dense, and as many as graph 0 has.")
        one = data.y is not None and data.y.numel() == 1
        require(one, f"{which} must have one class or one value as y.")
        kind = (ys or [data.y])[0].dtype
        alike = f"{which}: y must be of one type, {kind} as in graph 0."
        require(data.y.dtype == kind, alike)
        edges.append(checked_edges(data.edge_index, x.size(0), which) + total)
        total += x.size(0)
        xs.append(x)
        ys.append(data.y.view(1))
    sizes = torch.tensor([x.size(0) for x in xs])
    return graph_set(torch.cat(xs), torch.cat(edges, dim=1), sizes, torch.cat(ys), name)


def _loaded(path: Path, how: str) -> Any:
    # torch does not check the indices of sparse tensors unless it is told to.
    checked = torch.sparse.check_sparse_tensor_invariants()
    # On a damaged file, torch.load raises many kinds of errors.
    unreadable = as_data_error(f"{path} cannot be loaded", f"; {how}")
    with unreadable, quiet_csr(), checked, path.open("rb") as stream:
        check_size(_unpacked(stream), path)
        try:
            return torch.load(stream, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # whose text advises to run what is in the file
            trap = f"{path} is damaged or holds more than tensors, and nothing of it was run"
            raise DataError(f"{trap}; {how}.") from None


def _is_list(data: Any) -> bool:
    return isinstance(data, list) and len(data) > 0 and isinstance(data[0], Data)


def _fields(data: Any, path: Path, how: str) -> Data:
    """The fields of a graph that are used, as plain tensors."""
    require(isinstance(data, Data), f"{path} holds a {type(data).__name__}; {how}.")
    # The object may not have been put together as PyG does.
    with as_data_error(f"{path} cannot be loaded", f"; {how}"):
        return Data(**{key: _plain(data[key], key, path) for key in FIELDS if key in data})


def _plain(value: Any, key: str, path: Path) -> Tensor | None:
    """A tensor on the CPU, not of a subclass; only the features may be sparse."""
    if value is None:
        return None
    layouts = [torch.strided, *((torch.sparse_coo, torch.sparse_csr) if key == "x" else ())]
    usual = (
        isinstance(value, Tensor)
        and value.layout in layouts
        and str(value.dtype).removeprefix("torch.") in DTYPES
        and value.device.type == "cpu"
        and (value.layout == torch.strided or value.dense_dim() == 0)
    )
    require(usual, f"{path}: {key} must be a plain tensor of numbers.")
    plain: Tensor = value.detach()
    is_dense = plain.layout == torch.strided
    # An expanded tensor is larger than its bytes in the file, a sparse one once it has pointers.
    check_size(8 * (plain.numel() if is_dense else sum(plain.shape)), path)
    return plain.as_subclass(Tensor) if is_dense else plain
