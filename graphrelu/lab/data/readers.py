"""From files to a PyG `Data` object, or to a set of graphs: nothing is written, and sparse features
stay sparse."""

from __future__ import annotations

import importlib.util
import io
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import fsspec
import numpy as np
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.io import read_planetoid_data
from torch_geometric.utils import coalesce, one_hot, remove_self_loops, to_undirected

from graphrelu.lab.data.archives import check_size, read_arrays
from graphrelu.lab.data.graph import DataError, require
from graphrelu.lab.data.graph_set import GraphSet, graph_set
from graphrelu.lab.data.own_files import sparse_features

DIGITS_PER_CLASS = 20  # of those that are graphs themselves
UNREADABLE = (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error)


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


def read_planetoid(files: Mapping[str, bytes], name: str) -> Data:
    """Cora, CiteSeer or PubMed with the public split's masks, by PyG's own reader.

    It unpickles: the bytes must be known, and are what it reads, by way of a folder in memory.
    """
    memory, folder = fsspec.filesystem("memory"), f"/graphrelu-{uuid4()}"
    try:
        for file, content in files.items():
            memory.pipe_file(f"{folder}/{file}", content)
        with _scipy_or_stand_in(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the pickles use module names that scipy has moved
            return read_planetoid_data(f"memory:/{folder}", name)
    finally:
        memory.rm(folder, recursive=True)


def read_attributed(files: Mapping[str, bytes]) -> Data:
    """The raw files of PyG's ``AttributedGraphDataset``, without its need for pandas.

    PyG turns attributes of up to 10,000 columns into a dense matrix; here they stay sparse.
    """
    attributes = Path("attrs.npz")
    arrays = read_arrays(io.BytesIO(files["attrs.npz"]), attributes)
    edges = whole_numbers(files["edgelist.txt"])
    labels = whole_numbers(files["labels.txt"])[:, 1:] - 1
    return Data(
        x=sparse_features(arrays, "", attributes),
        edge_index=torch.from_numpy(edges).t().contiguous(),
        y=torch.from_numpy(labels).squeeze(1),
    )


def read_tu(files: Mapping[str, bytes], name: str, as_name: str) -> GraphSet:
    """The text files of a TU dataset, as PyG's ``TUDataset`` reads them.

    The features are the node labels, one-hot; node attributes are left out.
    """
    edges, owner, labels, y = (
        torch.from_numpy(whole_numbers(files[f"{name}_{part}.txt"], ","))
        for part in ("A", "graph_indicator", "node_labels", "graph_labels")
    )
    owner = owner.flatten() - 1
    count = int(owner.max()) + 1
    fits = edges.size(1) == 2 and labels.size(0) == owner.numel() and y.numel() == count
    require(fits, f"{as_name}: the files of {name} do not fit each other.")
    columns = labels.unbind(dim=1)
    width = sum(int(column.max()) - int(column.min()) + 1 for column in columns)
    check_size(4 * width * owner.numel(), Path(f"{name}_node_labels.txt"))
    in_order = owner[0] >= 0 and (owner.diff() >= 0).all()
    require(in_order, f"{as_name}: the nodes of {name} are not in the order of its graphs.")
    edge_index, _ = remove_self_loops(edges.t() - 1)
    return graph_set(
        torch.cat([one_hot(column - column.min()) for column in columns], dim=1),
        coalesce(edge_index, num_nodes=owner.numel()),
        owner.bincount(),
        y.flatten().unique(return_inverse=True)[1],
        as_name,
    )


def from_dataset(dataset: Any, name: str) -> GraphSet:
    """PyG's ``TUDataset``, opened with its node attributes: the features are the node labels;
    where there are none, the attributes; where there are none either, 1."""
    batch = Batch.from_data_list(list(dataset))
    x = batch.x
    if dataset.num_node_labels > 0:
        x = x[:, dataset.num_node_attributes :]
    return graph_set(x, batch.edge_index, batch.ptr.diff(), batch.y, name)


def read_digit_graphs(name: str) -> GraphSet:
    """Scikit-learn's bundled digits as graphs: the first of each class, a node for each pixel with
    ink, joined with those above, below and beside it.

    The features are the pixel's ink, and its row and column, one-hot.
    """
    pixels, y = load_digits(name)
    chosen = np.sort(np.concatenate([np.flatnonzero(y == i)[:DIGITS_PER_CLASS] for i in range(10)]))
    images = torch.from_numpy(pixels[chosen]).view(-1, 8, 8) / 16
    image, row, col = (images > 0).nonzero(as_tuple=True)
    node = torch.full((len(chosen), 8, 8), -1)
    node[image, row, col] = torch.arange(len(image))
    pairs = [(node[:, :-1], node[:, 1:]), (node[:, :, :-1], node[:, :, 1:])]
    joined = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    joined = joined[:, (joined >= 0).all(dim=0)]
    ink = images[image, row, col].float().view(-1, 1)
    return graph_set(
        torch.cat([ink, one_hot(row, 8), one_hot(col, 8)], dim=1),
        torch.cat([joined, joined.flip(0)], dim=1),
        image.bincount(),
        torch.from_numpy(y[chosen]),
        name,
    )


def whole_numbers(content: bytes, delimiter: str | None = None) -> np.ndarray:
    """A text file of whole numbers, line by line."""
    if not content.strip():
        raise ValueError("a file of numbers is empty")
    return np.loadtxt(io.BytesIO(content), dtype=np.int64, delimiter=delimiter, ndmin=2)


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


@contextmanager
def _scipy_or_stand_in() -> Iterator[None]:
    """Planetoid's pickles name a class of scipy's; without scipy, a stand-in lets them load."""
    if importlib.util.find_spec("scipy"):
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
