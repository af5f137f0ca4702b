"""From files to a PyG `Data` object: nothing is written, and sparse features stay sparse."""

from __future__ import annotations

import pickle
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.serialization import get_safe_globals, safe_globals
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import remove_self_loops, to_undirected

from graphrelu.lab.graph import DataError, quiet_csr

UNREADABLE = (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, for use inside a sentence."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def load_digits(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and classes of scikit-learn's bundled digits, for the dataset of that name."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DataError(
            f"{name} needs scikit-learn; install it with: pip install 'graphrelu[lab]'."
        ) from None
    pixels, y = datasets.load_digits(return_X_y=True)
    return pixels, y


def read_digits(num_neighbors: int = 10) -> Data:
    """Scikit-learn's bundled digits, each joined with its nearest neighbours (either way)."""
    pixels, y = load_digits("digits")
    # Pixels are whole numbers up to 16: integer distances and a stable sort, which takes the
    # lower index first among ties, give the same graph on every machine.
    points = pixels.astype(np.int64)
    squares = (points**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * points @ points.T
    np.fill_diagonal(distances, np.iinfo(np.int64).max)
    neighbors = np.argsort(distances, axis=1, kind="stable")[:, :num_neighbors]
    row = torch.arange(len(points)).repeat_interleave(num_neighbors)
    edge_index = torch.stack([row, torch.from_numpy(neighbors).reshape(-1)])
    return Data(
        x=torch.from_numpy(pixels / 16).float(),
        edge_index=to_undirected(edge_index, num_nodes=len(points)),
        y=torch.from_numpy(y).long(),
    )


def read_planetoid(raw: Path, name: str) -> Data:
    """Cora, CiteSeer or PubMed with the public split's masks, by PyG's own reader."""
    with _scipy_or_stand_in(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pickles use module names that scipy has since moved
        return read_planetoid_data(str(raw), name)


def read_attributed(raw: Path) -> Data:
    """The raw files of PyG's ``AttributedGraphDataset``, without its need for pandas.

    PyG turns attributes of up to 10,000 columns into a dense matrix; here they stay sparse.
    """
    attributes = raw / "attrs.npz"
    with attributes.open("rb") as stream:
        x = _sparse_features(np.load(stream, allow_pickle=False), "", attributes)
    edges = np.loadtxt(raw / "edgelist.txt", dtype=np.int64, ndmin=2)
    labels = np.loadtxt(raw / "labels.txt", dtype=np.int64, ndmin=2)[:, 1:] - 1
    return Data(
        x=x,
        edge_index=torch.from_numpy(edges).t().contiguous(),
        y=torch.from_numpy(labels).squeeze(1),
    )


def read_npz(path: Path) -> Data:
    """A graph in the usual GNN-benchmark form, made undirected and without self-loops as in PyG.

    Keys: ``adj_data, adj_indices, adj_indptr, adj_shape``; ``attr_`` with the same endings, or a
    dense ``attr_matrix``; ``labels``; if present, ``train_mask, val_mask, test_mask``. Edge
    weights are left out, as PyG does; features keep their values, where PyG sets them to one.
    """
    try:
        # Opened here: np.load would leave a damaged file open.
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds one array, not a graph.")
            return _parse_npz(file, path)
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read as an .npz file ({first_line(error)}).") from error


def _parse_npz(file: Mapping[str, Any], path: Path) -> Data:
    row, column, _, (num_nodes, width) = _entries(file, "adj_", path)
    if width != num_nodes:
        raise DataError(f"{path}: the adjacency matrix is {num_nodes} x {width}, not square.")
    edge_index, _ = remove_self_loops(torch.stack([row, column]))
    x: Tensor | None = None
    if "attr_data" in file:
        x = _sparse_features(file, "attr_", path)
    elif "attr_matrix" in file:
        x = torch.from_numpy(file["attr_matrix"])
    if x is not None and x.size(0) != num_nodes:
        raise DataError(f"{path} has features of {x.size(0)} nodes, but edges of {num_nodes}.")
    masks = ("train_mask", "val_mask", "test_mask")
    return Data(
        x=x,
        edge_index=to_undirected(edge_index, num_nodes=num_nodes),
        y=torch.from_numpy(file["labels"]) if "labels" in file else None,
        **{key: torch.from_numpy(file[key]) for key in masks if key in file},
    )


def _entries(
    file: Mapping[str, Any], prefix: str, path: Path
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Rows, columns, values and shape of a CSR matrix inside an npz archive."""
    keys = [prefix + key for key in ("data", "indices", "indptr", "shape")]
    if missing := [key for key in keys if key not in file]:
        raise DataError(f"{path} lacks {', '.join(missing)}.")
    values, indices, indptr, shape = (file[key] for key in keys)
    rows, columns = (int(size) for size in shape)
    fits = (
        indptr.shape == (rows + 1,)
        and indptr[0] == 0
        and (np.diff(indptr) >= 0).all()
        and indptr[-1] == len(indices) == len(values)
    )
    if not fits:
        raise DataError(f"{path}: {prefix}indptr does not fit the rest of the sparse matrix.")
    if len(indices) > 0 and not 0 <= indices.min() <= indices.max() < columns:
        raise DataError(
            f"{path}: {prefix}indices must lie between 0 and {columns - 1}, "
            f"but run from {indices.min()} to {indices.max()}."
        )
    return (
        torch.from_numpy(np.repeat(np.arange(rows), np.diff(indptr))),
        torch.from_numpy(indices.astype(np.int64)),
        torch.from_numpy(values.astype(np.float32)),
        (rows, columns),
    )


def _sparse_features(file: Mapping[str, Any], prefix: str, path: Path) -> Tensor:
    row, column, values, shape = _entries(file, prefix, path)
    # By way of COO, which sorts the columns of a row and adds up duplicates.
    features = torch.sparse_coo_tensor(
        torch.stack([row, column]), values, shape, check_invariants=True
    ).coalesce()
    with quiet_csr():
        return features.to_sparse_csr()


def read_pt(path: Path) -> Data:
    """A PyG ``Data`` object saved with ``torch.save``; code inside the file is never run."""
    how = "save it with torch.save(data, path), data a PyG Data object that holds tensors only"
    try:
        # Only the parts that PyG does not declare safe: on leaving, all those listed are forgotten.
        parts = {Data, DataEdgeAttr, DataTensorAttr, GlobalStorage} - set(get_safe_globals())
        with safe_globals(list(parts)), quiet_csr():
            data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise DataError(f"{path} is damaged or holds more than tensors; {how}.") from error
    except Exception as error:  # torch.load raises many kinds on a damaged file
        raise DataError(f"{path} cannot be loaded ({first_line(error)}); {how}.") from error
    if not isinstance(data, Data):
        raise DataError(f"{path} holds a {type(data).__name__}; {how}.")
    return data


class _CSRMatrix:
    """Stands in for scipy's matrix of the same layout while it is unpickled."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    _shape: tuple[int, int]

    def todense(self) -> np.ndarray:
        dense = np.zeros(self._shape, dtype=np.float32)
        row = np.repeat(np.arange(self._shape[0]), np.diff(self.indptr))
        dense[row, self.indices] = self.data
        return dense


def has_scipy() -> bool:
    try:
        import scipy.sparse  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _scipy_or_stand_in() -> Iterator[None]:
    """Planetoid's pickles name a class of scipy's; without scipy, a stand-in lets them load."""
    if has_scipy():
        yield
        return
    names = ("scipy", "scipy.sparse", "scipy.sparse.csr")
    saved = {name: sys.modules.get(name) for name in names}
    for name in names:
        sys.modules[name] = ModuleType(name)
    sys.modules["scipy.sparse.csr"].csr_matrix = _CSRMatrix  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, module in saved.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
