"""OGB's datasets of labelled nodes and of graphs, by way of the package `ogb`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, to_undirected

from graphrelu.lab.data.graph import PARTS, DataError, as_data_error
from graphrelu.lab.data.graph_set import GraphSet


@contextmanager
def _opened(name: str, root: Path, module: str, class_name: str) -> Iterator[Any]:
    """The dataset, from files in ``root/ogbn_NAME``, laid out as OGB does, or downloaded there."""
    home = root / name.replace("-", "_")
    place, kinds = f"; it looks for its files in {home}", (Exception, SystemExit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # OGB asks the network for a newer version of itself
        try:
            cls = getattr(import_module(f"ogb.{module}"), class_name)
        except ImportError:
            remedy = "install it with: pip install ogb."
            raise DataError(f"{name} needs the package ogb; {remedy}") from None
        with as_data_error(f"OGB cannot load {name}", place, kinds), redirect_stdout(sys.stderr):
            # OGB's own cache is a pickle, which torch does not load any more; it is made anew.
            (home / "processed" / "data_processed").unlink(missing_ok=True)
            yield cls(name, root=str(root))


def _tensor(array: np.ndarray | None) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(array)


def read_ogb_graphs(name: str, root: Path) -> GraphSet:
    """The graphs of ``ogbg-NAME``, with OGB's split."""
    with _opened(name, root, "graphproppred", "GraphPropPredDataset") as dataset:
        graphs = [
            Data(
                x=_tensor(graph["node_feat"]),
                edge_index=torch.from_numpy(graph["edge_index"]),
                edge_attr=_tensor(graph["edge_feat"]),
                y=torch.as_tensor(label).view(1, -1),
                num_nodes=int(graph["num_nodes"]),
            )
            for graph, label in (dataset[i] for i in range(len(dataset)))
        ]
        split = torch.empty(len(graphs), dtype=torch.long)
        for part, key in enumerate(("train", "valid", "test")):
            split[torch.as_tensor(dataset.get_idx_split()[key]).long()] = part
        return GraphSet.from_data(name, graphs, split)


def read_ogb(name: str, root: Path) -> Data:
    """The graph ``ogbn-NAME``, made undirected, with OGB's split as its masks."""
    with _opened(name, root, "nodeproppred", "NodePropPredDataset") as dataset:
        graph, labels = dataset[0]
        split, num_nodes = dataset.get_idx_split(), int(graph["num_nodes"])
        masks = {
            f"{part}_mask": index_to_mask(torch.as_tensor(split[key]).long(), num_nodes)
            for part, key in zip(PARTS, ("train", "valid", "test"), strict=True)
        }
        edge_index = to_undirected(torch.from_numpy(graph["edge_index"]), num_nodes=num_nodes)
        x, y = _tensor(graph["node_feat"]), torch.from_numpy(labels)
        return Data(x=x, edge_index=edge_index, y=y, **masks)
