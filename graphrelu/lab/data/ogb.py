"""OGB's datasets of one graph with labelled nodes, by way of the package `ogb`."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, scatter, to_undirected

from graphrelu.lab.data.graph import PARTS, DataError, as_data_error, require

FAILURES = (Exception, SystemExit)


def read_ogb(name: str, root: Path) -> Data:
    """The graph ``ogbn-NAME``, made undirected, with OGB's split as its masks.

    Files are taken from ``root/ogbn_NAME``, laid out as OGB does, or downloaded there.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # OGB asks the network for a newer version of itself
            from ogb.nodeproppred import NodePropPredDataset
    except ImportError:
        raise DataError(
            f"{name} needs the package ogb; install it with: pip install ogb."
        ) from None
    home = root / name.replace("-", "_")
    failed = as_data_error(
        f"OGB cannot load {name}", f"; it looks for its files in {home}", FAILURES
    )
    with failed, redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # OGB's own cache is a pickle, which torch does not load any more; it is made anew.
        (home / "processed" / "data_processed").unlink(missing_ok=True)
        dataset = NodePropPredDataset(name, root=str(root))
        graph, labels = dataset[0]
        split = dataset.get_idx_split()
    several = isinstance(labels, dict)
    require(not several, f"{name} has nodes of several kinds; choose a graph of one kind.")
    return _as_data(graph, labels, split)


def _as_data(graph: dict[str, Any], labels: np.ndarray, split: dict[str, Any]) -> Data:
    num_nodes = int(graph["num_nodes"])
    if labels.dtype.kind == "f" and labels.ndim == 2 and labels.shape[1] == 1:
        labels = np.where(np.isnan(labels), -1, labels).astype(np.int64)  # where none is known
    edge_index = torch.from_numpy(graph["edge_index"])
    x, of_edges = graph["node_feat"], graph.get("edge_feat")
    if x is not None:
        x = torch.from_numpy(x)
    elif of_edges is not None:  # ogbn-proteins: the mean over a node's edges
        x = scatter(torch.from_numpy(of_edges), edge_index[1], 0, num_nodes, "mean")
    masks = {
        f"{name}_mask": index_to_mask(torch.as_tensor(nodes).long(), num_nodes)
        for name, nodes in zip(PARTS, (split["train"], split["valid"], split["test"]), strict=True)
    }
    edge_index = to_undirected(edge_index, num_nodes=num_nodes)
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(labels), **masks)
