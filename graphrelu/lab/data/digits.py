"""Scikit-learn's bundled digits as a graph."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

NEIGHBOURS = 10


def read_digits() -> Data:
    """Each digit is joined with its nearest neighbours, either way."""
    from sklearn.datasets import load_digits
    from sklearn.metrics.pairwise import euclidean_distances

    pixels, y = load_digits(return_X_y=True)
    # Pixels are whole numbers up to 16: exact distances and a stable sort, which takes the lower
    # index first among ties, give the same graph on every machine.
    distances = euclidean_distances(pixels, squared=True)
    np.fill_diagonal(distances, np.inf)
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, :NEIGHBOURS]
    row = torch.arange(len(y)).repeat_interleave(NEIGHBOURS)
    edge_index = torch.stack([row, torch.from_numpy(neighbours).reshape(-1)])
    return Data(
        x=torch.from_numpy(pixels / 16).float(),
        edge_index=to_undirected(edge_index, num_nodes=len(y)),
        y=torch.from_numpy(y).long(),
    )
