"""Datasets of PyG and of OGB by name, from raw files that lie in the data folder as these lay them
out."""

from __future__ import annotations

import inspect
import io
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch_geometric import datasets
from torch_geometric.data import Data, Dataset

from graphrelu.lab.data.graph import PARTS, Graph, GraphSet, from_data
from graphrelu.lab.errors import DataError, as_data_error, hint, require

PREFIX = "pyg:"
GRAPH_CLASSES = (  # of sets of graphs
    *("AQSOL", "BA2MotifDataset", "BAMultiShapesDataset", "GNNBenchmarkDataset", "LRGBDataset"),
    *("MalNetTiny", "MoleculeNet", "NeuroGraphDataset", "QM7b", "QM9", "TUDataset", "ZINC"),
)
GRAPH_OPTIONS = {"subset": True, "use_node_attr": True}  # of those that take them


def class_of(name: str) -> str:
    """The class in ``pyg:CLASS/NAME``."""
    return name.removeprefix(PREFIX).partition("/")[0]


def read_pyg(name: str, root: Path) -> Graph:
    """The graph of any PyG dataset class, ``pyg:CLASS`` or ``pyg:CLASS/NAME``."""
    with open_dataset(name, root) as make:
        dataset = make()
        spec = name.removeprefix(PREFIX)
        sentence = f"{spec} holds {len(dataset)} graphs; choose a dataset of one graph."
        require(len(dataset) == 1, sentence)
        return from_data(dataset[0], name)


def read_pyg_graphs(name: str, root: Path) -> GraphSet:
    """All graphs of one of :data:`GRAPH_CLASSES`, with their own split where they have one.

    The features of a ``TUDataset`` are its node labels; where there are none, the attributes. Of
    ``ZINC`` it is the usual subset of 12,000 graphs.
    """
    with open_dataset(name, root) as make:
        takes = inspect.signature(make).parameters
        options = {key: value for key, value in GRAPH_OPTIONS.items() if key in takes}
        if "split" not in takes or name.endswith("/CSL"):  # which PyG has not split
            dataset = make(**options)
            graphs, split = list(dataset), None
            if getattr(dataset, "num_node_labels", 0):
                for graph in graphs:
                    graph.x = graph.x[:, dataset.num_node_attributes :]
        else:
            parts = [list(make(split=part, **options)) for part in PARTS]
            graphs = list(chain(*parts))
            split = torch.arange(3).repeat_interleave(torch.tensor([*map(len, parts)]))
        return GraphSet.from_data(name, graphs, split)


@contextmanager
def open_dataset(name: str, root: Path) -> Iterator[Callable[..., Any]]:
    """A function that makes the dataset ``pyg:CLASS`` or ``pyg:CLASS/NAME``, given more arguments.

    PyG downloads raw files that are missing to ``root/CLASS``. What it makes of them goes to a
    temporary folder, so that the data folder may be read-only.
    """
    spec = name.removeprefix(PREFIX)
    class_name, _, own_name = spec.partition("/")
    cls: Any = getattr(datasets, class_name, None)
    known = inspect.isclass(cls) and issubclass(cls, Dataset)
    nearest = hint(class_name, datasets.__all__)
    require(known, f"PyG has no dataset class {class_name!r}{nearest}.")
    arguments = {"name": own_name} if own_name else {}
    if "root" in inspect.signature(cls).parameters:  # the others are made up on the spot
        arguments["root"] = str(root / class_name)

    def process_quietly(dataset: Any) -> None:
        with redirect_stderr(io.StringIO()):
            cls._process(dataset)

    remedy = f"; if a download broke off, remove {root / spec} and try again"
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        changes = {"processed_dir": folder, "_process": process_quietly}
        with as_data_error(f"PyG cannot load {spec}", remedy):
            yield partial(type(class_name, (cls,), changes), **arguments)


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
