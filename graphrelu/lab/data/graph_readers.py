"""From files to sets of labelled graphs; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.utils import coalesce, one_hot, remove_self_loops

from graphrelu.lab.data.archives import check_size
from graphrelu.lab.data.graph import DataError
from graphrelu.lab.data.graph_set import GraphSet, graph_set
from graphrelu.lab.data.readers import load_digits, whole_numbers

DIGITS_PER_CLASS = 20


def read_tu(files: Mapping[str, bytes], name: str, as_name: str) -> GraphSet:
    """The text files of a TU dataset, as PyG's ``TUDataset`` reads them.

    The features are the node labels, one-hot; node attributes are left out.
    """
    edges, owner, labels, y = (
        torch.from_numpy(whole_numbers(files[f"{name}_{part}.txt"], ","))
        for part in ("A", "graph_indicator", "node_labels", "graph_labels")
    )
    owner = owner.flatten() - 1
    if edges.size(1) != 2 or labels.size(0) != owner.numel() or y.numel() != int(owner.max()) + 1:
        raise DataError(f"{as_name}: the files of {name} do not fit each other.")
    width = sum(int(column.max()) - int(column.min()) + 1 for column in labels.unbind(dim=1))
    check_size(4 * width * owner.numel(), Path(f"{name}_node_labels.txt"))
    if int(owner.min()) < 0 or bool((owner.diff() < 0).any()):
        raise DataError(f"{as_name}: the nodes of {name} are not in the order of its graphs.")
    edge_index, _ = remove_self_loops(edges.t() - 1)
    features = [one_hot(column - column.min()) for column in labels.unbind(dim=1)]
    return graph_set(
        torch.cat(features, dim=1),
        coalesce(edge_index, num_nodes=owner.numel()),
        _starts(owner.bincount()),
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
    return graph_set(x, batch.edge_index, batch.ptr, batch.y, name)


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
        _starts(image.bincount()),
        torch.from_numpy(y[chosen]),
        name,
    )


def _starts(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
