"""Scikit-learn's bundled digits, as one graph and as a set of graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import one_hot, to_undirected

from graphrelu.lab.data.graph import DataError
from graphrelu.lab.data.graph_set import GraphSet, graph_set

PER_CLASS = 20  # of those that are graphs themselves


def _load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and classes, for the dataset of that name."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DataError(
            f"{name} needs scikit-learn; install it with: pip install 'graphrelu[lab]'."
        ) from None
    pixels, y = datasets.load_digits(return_X_y=True)
    return pixels, y


def read_digits(name: str, num_neighbors: int = 10) -> Data:
    """Each digit is joined with its nearest neighbours, either way."""
    pixels, y = _load(name)
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


def read_digit_graphs(name: str) -> GraphSet:
    """The first digits of each class as graphs: a node for each pixel with ink, joined with those
    above, below and beside it. The features are the pixel's ink, and its row and column, one-hot.
    """
    pixels, y = _load(name)
    chosen = np.sort(np.concatenate([np.flatnonzero(y == i)[:PER_CLASS] for i in range(10)]))
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
