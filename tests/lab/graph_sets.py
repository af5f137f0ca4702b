"""Small graphs to classify: rings against paths, with features that say little."""

from __future__ import annotations

import torch

from graphrelu.lab.data.fold_set import FoldSet, fold_set


def rings_and_paths(num_graphs: int = 190, seed: int = 0, name: str = "rings") -> FoldSet:
    """Of three to six nodes; a third are rings."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 7, (num_graphs,), generator=generator)
    starts = (sizes.cumsum(0) - sizes).tolist()
    y = (torch.arange(num_graphs) % 3 == 0).long()
    edges = []
    for start, size, ring in zip(starts, sizes.tolist(), y.tolist(), strict=True):
        nodes = torch.arange(size - 1 + ring)
        pairs = torch.stack([nodes, (nodes + 1) % size]) + start
        edges += [pairs, pairs.flip(0)]
    x = 1 + 0.2 * torch.rand(int(sizes.sum()), 3, generator=generator)
    return fold_set(x, torch.cat(edges, dim=1), sizes, y, name)
