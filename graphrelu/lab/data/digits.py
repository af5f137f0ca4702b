"""Scikit-learn's bundled digits, as one graph and as a set of graphs."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import one_hot, subgraph, to_undirected

PER_CLASS = 20  # of those that are graphs themselves


def read_digits(num_neighbors: int = 10) -> Data:
    """Each digit is joined with its nearest neighbours, either way."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
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


def read_digit_graphs() -> list[Data]:
    """The first digits of each class as graphs: a node for each pixel with ink, joined with those
    above, below and beside it. The features are the pixel's ink, and its row and column, one-hot.
    """
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    place = torch.arange(64).view(8, 8)
    pairs = [(place[:-1], place[1:]), (place[:, :-1], place[:, 1:])]
    grid = to_undirected(torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1))
    row_and_col = torch.cat([one_hot(place.view(-1) // 8, 8), one_hot(place.view(-1) % 8, 8)], 1)
    graphs = []
    for i in np.sort(np.concatenate([np.flatnonzero(y == c)[:PER_CLASS] for c in range(10)])):
        ink = torch.from_numpy(pixels[i] / 16).float()
        edge_index, _ = subgraph(ink > 0, grid, relabel_nodes=True, num_nodes=64)
        x = torch.cat([ink.view(-1, 1), row_and_col], dim=1)[ink > 0]
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([y[i]])))
    return graphs
