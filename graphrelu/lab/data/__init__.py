"""Graphs and sets of graphs by name or path: named datasets, any of PyG's or OGB's, generated ones,
or the user's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from torch_geometric.data import Data

from graphrelu.lab.data import named, own_files
from graphrelu.lab.data.generated import BlockModel, ColouredGraphs, read_digits
from graphrelu.lab.data.graph import Graph, GraphSet, from_data, undirected
from graphrelu.lab.data.splits import SetSplit
from graphrelu.lab.errors import DataError, as_data_error, hint, require

__all__ = ["GRAPH_NAMES", "GRAPH_SOURCES", "NAMES", "SOURCES", "DataError", "Graph", "GraphSet"]
__all__ += ["at_hand", "data_root", "files_of", "holds_graphs", "load", "load_graphs"]


# Datasets known by name: PyG's, or a file below the data root.
HETEROPHILOUS = "pyg:HeterophilousGraphDataset"
SOURCES = {
    "cora": "pyg:Planetoid/Cora",
    "citeseer": "pyg:Planetoid/CiteSeer",
    "pubmed": "pyg:Planetoid/PubMed",
    "blogcatalog": "pyg:AttributedGraphDataset/BlogCatalog",
    "flickr": "pyg:AttributedGraphDataset/Flickr",
    "photo": "pyg:Amazon/Photo",
    "computers": "pyg:Amazon/Computers",
    "cs": "pyg:Coauthor/CS",
    "physics": "pyg:Coauthor/Physics",
    "minesweeper": f"{HETEROPHILOUS}/minesweeper",
    "tolokers": f"{HETEROPHILOUS}/tolokers",
    "squirrel": "Heterophilous/squirrel_filtered.npz",
    "chameleon": "Heterophilous/chameleon_filtered.npz",
    "actor": "Heterophilous/actor.npz",
}
GRAPH_SOURCES = {"mutag": "pyg:TUDataset/MUTAG", "proteins": "pyg:TUDataset/PROTEINS"}
# Beside these, what scikit-learn brings along, and a file of this package.
NAMES = ("digits", *SOURCES)
GRAPH_NAMES = ("esol", *GRAPH_SOURCES)
LIST_PREFIX = "graphs:"
FILE_READERS: dict[str, Callable[[Path], Data]] = {
    ".npz": own_files.read_npz,
    ".pt": own_files.read_pt,
    ".csv": own_files.read_tables,
}


def data_root(root: str | Path | None = None) -> Path:
    """The argument, else ``$GRAPHRELU_DATA``, else ``graphrelu`` in the user's cache folder."""
    if root is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        root = os.environ.get("GRAPHRELU_DATA") or cache / "graphrelu"
    return Path(root).expanduser()


def load(name: str, root: str | Path | None = None) -> Graph:
    """Load a graph and check it.

    Args:
        name: One of :data:`NAMES`; a path to a ``.npz`` in a usual form, to a ``.pt`` with a saved
            PyG ``Data``, or to a table of edges beside that of the nodes
            (:func:`~graphrelu.lab.data.own_files.read_tables`); ``pyg:CLASS/NAME`` for a dataset
            class of PyG's; or ``csbm:NAME=VALUE,...``, a
            :class:`~graphrelu.lab.data.generated.BlockModel`.
        root: Where the raw files are, or are downloaded to; see :func:`data_root`.
    """
    require(not holds_graphs(name), f"{name} holds many graphs; choose a dataset of one graph.")
    key, home = name.lower(), data_root(root)
    if name.startswith(named.PREFIX):
        return named.read_pyg(name, home)
    if BlockModel.is_named(name):
        model = BlockModel.parse(name)
        return from_data(model.generate(), model.name)
    if key == "digits":
        return from_data(read_digits(), key)
    if key in SOURCES:
        place = SOURCES[key]
        where = place if place.startswith(named.PREFIX) else str(home / place)
        return replace(load(where, root), name=key)
    if files := files_of(name):
        path = files[0]
        called = path.name if len(files) == 1 else f"{path.parent.resolve().name}/{path.name}"
        with as_data_error(f"{called} cannot be used"):
            graph = from_data(FILE_READERS[path.suffix.lower()](path), called)
        return graph if path.suffix.lower() == ".pt" else undirected(graph)
    if Path(name).expanduser().exists():
        raise DataError(f"{name} has an unknown format; {own_files.LAYOUTS}.")
    raise unknown(name)


def load_graphs(
    name: str,
    root: str | Path | None = None,
    targets: Sequence[str] = (),
    split: SetSplit | None = None,
) -> GraphSet:
    """Load a set of graphs and check it.

    Args:
        name: One of :data:`GRAPH_NAMES`; ``pyg:CLASS/NAME`` for a dataset class of PyG's with many
            graphs; ``ogbg-NAME`` for one of OGB's; a CSV file with a column ``smiles``, also
            compressed (``.csv.gz``); ``graphs:PATH`` with the path of a ``.pt`` with a saved
            list of PyG ``Data``; or ``sets:NAME=VALUE,...`` for
            :class:`~graphrelu.lab.data.generated.ColouredGraphs`.
        root: Where the raw files are, or are downloaded to; see :func:`data_root`.
        targets: The columns of a CSV file to predict; all but ``smiles`` and ``split`` unless
            given.
        split: How the set will be split (:func:`~graphrelu.lab.data.splits.split_of`): only
            molecules of a CSV file can be split by ``"scaffold"``, and only a set that comes with
            a split by ``"column"``.
    """
    require(split in (None, *get_args(SetSplit)), f"There is no split {split!r} of graphs.")
    key, home = name.lower(), data_root(root)
    if key == "esol" or key.endswith((".csv", ".csv.gz")):
        path = Path(__file__).with_name("esol.csv") if key == "esol" else files_of(name)[0]
        return own_files.read_molecules(path, targets, split)
    require(not targets, f"{name} has no columns to choose targets from.")
    require(split != "scaffold", f"{name} has no SMILES to find scaffolds in.")
    if name.startswith(named.PREFIX):
        graphs = named.read_pyg_graphs(name, home)
    elif name.startswith(LIST_PREFIX):
        graphs = own_files.read_pt_list(files_of(name)[0])
    elif ColouredGraphs.is_named(name):
        graphs = ColouredGraphs.parse(name).generate()
    elif key.startswith("ogbg-"):
        graphs = named.read_ogb(key, home)
    elif key in GRAPH_SOURCES:
        graphs = replace(named.read_pyg_graphs(GRAPH_SOURCES[key], home), name=key)
    else:
        raise unknown(name)
    own = split != "column" or graphs.split is not None
    require(own, f"{name} has no split of its own; choose random or folds.")
    return graphs


def unknown(name: str) -> DataError:
    """What a name can be, and the nearest one that is known."""
    known = (*NAMES, *GRAPH_NAMES)
    return DataError(
        f"There is no dataset {name!r}{hint(name, known)}; choose from {', '.join(known)}, "
        f"paths to .npz, .pt and .csv files, pyg:CLASS/NAME, ogbg-NAME, "
        f"csbm:NAME=VALUE,..., sets:NAME=VALUE,..., and graphs:PATH."
    )


def holds_graphs(name: str) -> bool:
    """Whether a name is that of a set of graphs, to be loaded with :func:`load_graphs`."""
    key = name.lower()
    if name.startswith(named.PREFIX):
        return named.class_of(name) in named.GRAPH_CLASSES
    if key in GRAPH_NAMES or ColouredGraphs.is_named(name):
        return True
    if key.startswith(("ogbg-", LIST_PREFIX)) or key.endswith(".csv.gz"):
        return True
    return key.endswith(".csv") and own_files.has_smiles(Path(name).expanduser())


def files_of(name: str) -> tuple[Path, ...]:
    """The files of a path, the named file first; none if the name is not a path."""
    path = Path(name.removeprefix(LIST_PREFIX)).expanduser()
    if not (name.startswith(LIST_PREFIX) or name.lower().endswith((*FILE_READERS, ".csv.gz"))):
        return ()
    require(path.is_file(), f"There is no file {path}.")
    is_edges = path.suffix.lower() == ".csv" and not holds_graphs(name)
    return (path, own_files.nodes_beside(path)) if is_edges else (path,)


def at_hand(name: str, root: str | Path | None = None) -> bool:
    """Whether a graph known by name needs no download."""
    if name not in SOURCES:
        return name == "digits"
    place = data_root(root) / SOURCES[name].removeprefix(named.PREFIX)
    # PyG's folders of the social networks have small letters.
    return place.is_file() or any((p / "raw").is_dir() for p in (place, place.parent / name))
