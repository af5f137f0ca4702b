"""The user's own files, `.npz` and `.pt`: checked first; no code of a file is run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import MAGIC_PREFIX
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.edge_index import EdgeIndex
from torch_geometric.utils import remove_self_loops, to_undirected

from graphrelu.lab.data.archives import check_size, read_arrays
from graphrelu.lab.data.checkpoints import DTYPES, load_checkpoint
from graphrelu.lab.data.graph import (
    DataError,
    checked_edges,
    checked_features,
    quiet_csr,
    told,
)
from graphrelu.lab.data.graph_set import GraphSet, graph_set

MASKS = ("train_mask", "val_mask", "test_mask")
FIELDS = ("x", "edge_index", "edge_weight", "y", *MASKS)  # of a Data object
DATA_CLASSES = (Data, DataEdgeAttr, DataTensorAttr, EdgeIndex, GlobalStorage)
CSR_ENDINGS = ("data", "indices", "indptr", "shape")
NPZ_KEYS = {"attr_matrix", "labels", *MASKS}
NPZ_KEYS |= {prefix + ending for prefix in ("adj_", "attr_") for ending in CSR_ENDINGS}
LIST_KEYS = ("node_features", "node_labels", "edges")  # of the form with a list of edges
NPZ_KEYS |= {*LIST_KEYS, *(f"{key}s" for key in MASKS)}
# What a file that is none of these is answered with.
LAYOUTS = (
    "known are .npz files with adj_data, adj_indices, adj_indptr, adj_shape, attr_matrix and "
    "labels, or with node_features, node_labels and edges; .pt files with a PyG Data; and "
    "edges.csv beside nodes.csv, or the folder of both"
)


def read_npz(path: Path) -> Data:
    """A graph in a usual form, made undirected and without self-loops as in PyG.

    Of the heterophilous graphs: ``node_features, node_labels, edges [E, 2]``, each edge once or
    twice; if present, ``train_masks, val_masks, test_masks [splits, N]``. Of the GNN benchmarks:
    ``adj_data, adj_indices, adj_indptr, adj_shape``; ``attr_`` with the same endings, or a
    dense ``attr_matrix``; ``labels``; if present, ``train_mask, val_mask, test_mask``. Edge
    weights are left out, as PyG does; features keep their values, where PyG sets them to one.
    """
    # A damaged file raises many kinds of errors, in numpy and in zipfile.
    with told(f"{path} cannot be read as an .npz file"), path.open("rb") as stream:
        if stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
            raise DataError(f"{path} holds one array, not a graph.")
        arrays = read_arrays(stream, path, NPZ_KEYS)
        if not arrays.keys() & {"edges", "adj_data", "adj_indices", "adj_indptr", "adj_shape"}:
            raise DataError(f"{path} is of no known layout; {LAYOUTS}.")
        parse = _parse_edge_list if "edges" in arrays else _parse_npz
        return _checked_size(parse(arrays, path), path)


def _parse_npz(file: Mapping[str, Any], path: Path) -> Data:
    row, column, _, (num_nodes, width) = _entries(file, "adj_", path)
    if width != num_nodes:
        raise DataError(f"{path}: the adjacency matrix is {num_nodes} x {width}, not square.")
    edge_index, _ = remove_self_loops(torch.stack([row, column]))
    x: Tensor | None = None
    if "attr_data" in file:
        x = sparse_features(file, "attr_", path)
    elif "attr_matrix" in file:
        x = torch.from_numpy(file["attr_matrix"])
    if x is not None and x.size(0) != num_nodes:
        raise DataError(f"{path} has features of {x.size(0)} nodes, but edges of {num_nodes}.")
    return Data(
        x=x,
        edge_index=to_undirected(edge_index, num_nodes=num_nodes),
        y=torch.from_numpy(file["labels"]) if "labels" in file else None,
        **{key: torch.from_numpy(file[key]) for key in MASKS if key in file},
    )


def _parse_edge_list(file: Mapping[str, Any], path: Path) -> Data:
    if missing := [key for key in LIST_KEYS if key not in file]:
        raise DataError(f"{path} lacks {', '.join(missing)}.")
    x, y, edges = (torch.from_numpy(file[key]) for key in LIST_KEYS)
    if edges.dim() != 2 or edges.size(1) != 2:
        raise DataError(f"{path}: edges must have the shape [edges, 2].")
    num_nodes = len(y)
    edge_index, _ = remove_self_loops(checked_edges(edges.t(), num_nodes, path.name))
    masks = {key: torch.from_numpy(file[f"{key}s"]) for key in MASKS if f"{key}s" in file}
    for key, mask in masks.items():
        # A split is a row in these files, and a column in PyG.
        if mask.dim() == 2 and mask.size(1) == num_nodes:
            masks[key] = mask.t()
    return Data(x=x, y=y, edge_index=to_undirected(edge_index, num_nodes=num_nodes), **masks)


def _entries(
    file: Mapping[str, Any], prefix: str, path: Path
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Rows, columns, values and shape of a CSR matrix inside an npz archive."""
    keys = [prefix + ending for ending in CSR_ENDINGS]
    if missing := [key for key in keys if key not in file]:
        raise DataError(f"{path} lacks {', '.join(missing)}.")
    for key in keys:
        numbers = "biuf" if key == keys[0] else "iu"
        if file[key].ndim != 1 or file[key].dtype.kind not in numbers:
            raise DataError(
                f"{path}: {key} must be a list of {'' if key == keys[0] else 'whole '}numbers."
            )
    values = file[keys[0]]
    # Differences of unsigned numbers would wrap around.
    indices, indptr, shape = (file[key].astype(np.int64) for key in keys[1:])
    if len(shape) != 2 or min(shape) < 0:
        raise DataError(f"{path}: {prefix}shape must be a number of rows and one of columns.")
    rows, columns = (int(size) for size in shape)
    fits = (
        indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and (indptr[1:] >= indptr[:-1]).all()
        and indptr[-1] == len(indices) == len(values)
    )
    if not fits:
        raise DataError(f"{path}: {prefix}indptr does not fit the rest of the sparse matrix.")
    if len(indices) > 0 and not 0 <= indices.min() <= indices.max() < columns:
        raise DataError(
            f"{path}: {prefix}indices must lie between 0 and {columns - 1}, "
            f"but run from {indices.min()} to {indices.max()}."
        )
    with np.errstate(over="ignore"):  # what is infinite then is found later
        numbers32 = values.astype(np.float32)
    return (
        torch.from_numpy(np.repeat(np.arange(rows), np.diff(indptr))),
        torch.from_numpy(indices),
        torch.from_numpy(numbers32),
        (rows, columns),
    )


def sparse_features(file: Mapping[str, Any], prefix: str, path: Path) -> Tensor:
    """A sparse CSR tensor from a CSR matrix inside an npz archive."""
    row, column, values, shape = _entries(file, prefix, path)
    check_size(8 * shape[0] + 4 * shape[1], path)
    # By way of COO, which sorts the columns of a row and adds up duplicates.
    features = torch.sparse_coo_tensor(
        torch.stack([row, column]), values, shape, check_invariants=True
    ).coalesce()
    with quiet_csr():
        return features.to_sparse_csr()


def read_pt(path: Path) -> Data:
    """A PyG ``Data`` object saved with ``torch.save``; code inside the file is never run."""
    how = "save it with torch.save(data, path), data a PyG Data object that holds tensors only"
    data = _loaded(path, how)
    if _is_list(data):
        raise DataError(f"{path} holds many graphs; write graphs:{path}.")
    return _fields(data, path, how)


def read_pt_list(path: Path, name: str) -> GraphSet:
    """Many graphs, each with its class or value as ``y``: a saved list of PyG ``Data`` objects."""
    how = "save them with torch.save(list, path), a list of PyG Data objects that hold tensors only"
    graphs = _loaded(path, how)
    if not _is_list(graphs):
        raise DataError(f"{path} holds a {type(graphs).__name__}; {how}.")
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    edges, total, size = [], 0, 0
    for place, graph in enumerate(graphs):
        which, data = f"{name}, graph {place}", _fields(graph, path, how)
        size += _size(data)  # an object may be in the list many times
        check_size(size, path)
        x = checked_features(data.x, which)
        if x.layout != torch.strided or x.size(1) != (xs or [x])[0].size(1):
            raise DataError(f"{which}: the features must be dense, and as many as graph 0 has.")
        if data.y is None or data.y.numel() != 1:
            raise DataError(f"{which} must have one class or one value as y.")
        edges.append(checked_edges(data.edge_index, x.size(0), which) + total)
        total += x.size(0)
        xs.append(x)
        if data.y.dtype != (ys or [data.y])[0].dtype:
            raise DataError(f"{which}: y must be of one type, {ys[0].dtype} as in graph 0.")
        ys.append(data.y.view(1))
    node_ptr = torch.tensor([0, *(x.size(0) for x in xs)]).cumsum(0)
    return graph_set(torch.cat(xs), torch.cat(edges, dim=1), node_ptr, torch.cat(ys), name)


def _loaded(path: Path, how: str) -> Any:
    trap = f"{path} is damaged or holds more than tensors"
    refused = told(trap, f", and nothing of it was run; {how}", pickle.UnpicklingError)
    # On a damaged file, torch.load raises many kinds of errors.
    with told(f"{path} cannot be loaded", f"; {how}"), refused:
        return load_checkpoint(path, DATA_CLASSES)


def _is_list(data: Any) -> bool:
    return isinstance(data, list) and len(data) > 0 and isinstance(data[0], Data)


def _fields(data: Any, path: Path, how: str) -> Data:
    """The fields of a graph that are used, as plain tensors."""
    if not isinstance(data, Data):
        raise DataError(f"{path} holds a {type(data).__name__}; {how}.")
    # The object may not have been put together as PyG does.
    with told(f"{path} cannot be loaded", f"; {how}"):
        fields = {key: _plain(data[key], key, path) for key in FIELDS if key in data}
    return _checked_size(Data(**fields), path)


def _plain(value: Any, key: str, path: Path) -> Tensor | None:
    """A tensor on the CPU, not of a subclass; only the features may be sparse."""
    if value is None:
        return None
    layouts = (torch.strided, *((torch.sparse_coo, torch.sparse_csr) if key == "x" else ()))
    if isinstance(value, Tensor):
        is_sparse = value.layout != torch.strided
        usual = value.layout in layouts and str(value.dtype).removeprefix("torch.") in DTYPES
        if usual and value.device.type == "cpu" and not (is_sparse and value.dense_dim()):
            plain: Tensor = value.detach() if is_sparse else value.detach().as_subclass(Tensor)
            return plain
    raise DataError(f"{path}: {key} must be a plain tensor of numbers.")


def _checked_size(data: Data, path: Path) -> Data:
    check_size(_size(data), path)
    return data


def _size(data: Data) -> int:
    """The bytes of a graph in memory; a tensor can be larger than its bytes in a file."""
    total = 0
    for key, tensor in data.to_dict().items():
        if tensor is None:
            continue
        if tensor.layout == torch.strided:
            total += tensor.numel() * (4 if key in ("x", "edge_weight") else 8)
        else:  # a row has a pointer, a column a weight at least, a value its index
            total += 8 * tensor.size(0) + 4 * tensor.size(-1) + 12 * tensor._nnz()
    return total
