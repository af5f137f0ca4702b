"""PyG's dataset classes by name: the raw files lie in the data folder as PyG lays them out."""

from __future__ import annotations

import inspect
import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch_geometric import datasets
from torch_geometric.data import Dataset

from graphrelu.lab.data.graph import PARTS, Graph, from_data
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.errors import as_data_error, hint, require

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
