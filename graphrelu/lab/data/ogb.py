"""OGB's sets of graphs, by way of the package `ogb`."""

from __future__ import annotations

import sys
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.errors import DataError, as_data_error


def read_ogb(name: str, root: Path) -> GraphSet:
    """The graphs of ``ogbg-NAME``, with OGB's split, from files in ``root/ogbg_NAME``, laid out as
    OGB does, or downloaded there."""
    home = root / name.replace("-", "_")
    place, kinds = f"; it looks for its files in {home}", (Exception, SystemExit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # OGB asks the network for a newer version of itself
        try:
            make = import_module("ogb.graphproppred").GraphPropPredDataset
        except ImportError:
            remedy = "install it with: pip install ogb."
            raise DataError(f"{name} needs the package ogb; {remedy}") from None
        with as_data_error(f"OGB cannot load {name}", place, kinds), redirect_stdout(sys.stderr):
            # OGB's own cache is a pickle, which torch does not load any more; it is made anew.
            (home / "processed" / "data_processed").unlink(missing_ok=True)
            dataset = make(name, root=str(root))
            graphs = [_graph(*dataset[i]) for i in range(len(dataset))]
            split = torch.empty(len(graphs), dtype=torch.long)
            for part, key in enumerate(("train", "valid", "test")):
                split[torch.as_tensor(dataset.get_idx_split()[key]).long()] = part
            return GraphSet.from_data(name, graphs, split)


def _graph(arrays: dict[str, Any], label: Any) -> Data:
    x, edge_attr = arrays["node_feat"], arrays["edge_feat"]
    return Data(
        x=None if x is None else torch.from_numpy(x),
        edge_index=torch.from_numpy(arrays["edge_index"]),
        edge_attr=None if edge_attr is None else torch.from_numpy(edge_attr),
        y=torch.as_tensor(label).view(1, -1),
        num_nodes=int(arrays["num_nodes"]),
    )
