"""PyG's dataset classes by name: the raw files lie in the data folder as PyG lays them out."""

from __future__ import annotations

import inspect
import io
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TypeVar

from torch_geometric import datasets
from torch_geometric.data import Batch, Dataset

from graphrelu.lab.data.graph import Family, Graph, as_data_error, from_data, require
from graphrelu.lab.data.graph_set import GraphSet, graph_set
from graphrelu.lab.names import hint

PREFIX = "pyg:"
GRAPH_CLASS = "TUDataset"  # of sets of graphs
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("Planetoid", "CitationFull", "CoraFull"), "citation"),
    "AttributedGraphDataset": "social",
}
T = TypeVar("T")


def read_pyg(name: str, root: Path) -> Graph:
    """The graph of any PyG dataset class, ``pyg:CLASS`` or ``pyg:CLASS/NAME``."""
    spec = name.removeprefix(PREFIX)

    def only_graph(dataset: Any) -> Any:
        sentence = f"{spec} holds {len(dataset)} graphs; choose a dataset of one graph."
        require(len(dataset) == 1, sentence)
        return dataset[0]

    family = FAMILIES.get(spec.partition("/")[0], "other")
    return from_data(open_dataset(spec, root, only_graph), name, family)


def read_pyg_graphs(name: str, root: Path) -> GraphSet:
    """All graphs of ``pyg:TUDataset/NAME``: the features are the node labels; where there are
    none, the attributes; where there are none either, 1."""

    def graphs(dataset: Any) -> GraphSet:
        batch = Batch.from_data_list(list(dataset))
        x = batch.x
        if dataset.num_node_labels > 0:
            x = x[:, dataset.num_node_attributes :]
        return graph_set(x, batch.edge_index, batch.ptr.diff(), batch.y, name)

    return open_dataset(name.removeprefix(PREFIX), root, graphs, use_node_attr=True)


def open_dataset(spec: str, root: Path, use: Callable[[Any], T], **options: Any) -> T:
    """What ``use`` makes of a PyG dataset, ``CLASS`` or ``CLASS/NAME``.

    PyG downloads raw files that are missing to ``root/CLASS``. What it makes of them goes to a
    temporary folder, so that the data folder may be read-only.
    """
    class_name, _, name = spec.partition("/")
    cls: Any = getattr(datasets, class_name, None)
    known = inspect.isclass(cls) and issubclass(cls, Dataset)
    nearest = hint(class_name, datasets.__all__)
    require(known, f"PyG has no dataset class {class_name!r}{nearest}.")
    options |= _arguments(cls, class_name, name, root / class_name)
    remedy = f"; if a download broke off, remove {root / spec} and try again"
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as folder:
        changes = {"processed_dir": folder, "_process": _quiet(cls._process)}
        with as_data_error(f"PyG cannot load {spec}", remedy):
            return use(type(class_name, (cls,), changes)(**options))


def _quiet(process: Callable[[Any], None]) -> Callable[[Any], None]:
    """PyG reports to the standard error that it processes raw files."""

    def quietly(dataset: Any) -> None:
        with redirect_stderr(io.StringIO()):
            process(dataset)

    return quietly


def _arguments(cls: Any, class_name: str, name: str, home: Path) -> dict[str, str]:
    parameters = inspect.signature(cls).parameters
    takes_name = "name" in parameters
    needs_name = takes_name and parameters["name"].default is inspect.Parameter.empty
    unwanted = f"PyG's {class_name} takes no name; write pyg:{class_name}."
    require(takes_name or not name, unwanted)
    lacking = f"PyG's {class_name} needs a name; write pyg:{class_name}/NAME."
    require(bool(name) or not needs_name, lacking)
    given = {"root": str(home), "name": name}
    return {key: value for key, value in given.items() if key in parameters and value}
