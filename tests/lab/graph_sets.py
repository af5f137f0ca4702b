"""Small graphs to classify: rings against paths, with features that say little."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphrelu.lab.data.graph import GraphSet


def rings_and_paths(num_graphs: int = 190, seed: int = 0, name: str = "rings") -> GraphSet:
    """Of three to six nodes; a third are rings."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for i in range(num_graphs):
        size, is_ring = int(torch.randint(3, 7, (1,), generator=generator)), i % 3 == 0
        nodes = torch.arange(size - 1 + is_ring)
        edge_index = to_undirected(torch.stack([nodes, (nodes + 1) % size]))
        x = 1 + 0.2 * torch.rand(size, 3, generator=generator)
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([int(is_ring)])))
    return GraphSet.from_data(name, graphs)
