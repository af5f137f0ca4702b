"""Graphs by name or path: the paper's datasets, any of PyG's, generated ones, or a file."""

from __future__ import annotations

import difflib
import importlib.util
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from graphrelu.lab.data import fetch, generated, ogb, own_files, readers, tables
from graphrelu.lab.data.checksums import (
    EDITION,
    GRAPH_SOURCES,
    SOURCES,
    Counts,
    Source,
    check_counts,
    compare,
    compare_edition,
    read_verified,
    sha256,
)
from graphrelu.lab.data.graph import DataError, Graph, from_data, require, told, undirected
from graphrelu.lab.data.graph_set import GraphSet

__all__ = ["GRAPH_NAMES", "NAMES", "DataError", "DatasetStatus", "Graph", "GraphSet"]
__all__ += ["data_root", "files_of", "holds_graphs", "load", "load_graphs", "survey"]

EMBEDDED = {
    "digits": Counts(1_797, 24_678, 64, 10),
    "digit-graphs": Counts(6_363, 18_962, 17, 10),
}
NAMES = ("digits", *SOURCES)
GRAPH_NAMES = ("digit-graphs", *GRAPH_SOURCES)
# Graphs that are read with a class of PyG's, or from files as a user has them, below the data root.
OF_PYG = {
    "photo": "Amazon/Photo",
    "computers": "Amazon/Computers",
    "cs": "Coauthor/CS",
    "physics": "Coauthor/Physics",
    "minesweeper": "HeterophilousGraphDataset/minesweeper",
    "tolokers": "HeterophilousGraphDataset/tolokers",
}
FILES = {
    "squirrel": "Heterophilous/squirrel_filtered.npz",
    "chameleon": "Heterophilous/chameleon_filtered.npz",
    "actor": "Heterophilous/actor.npz",
}
KNOWN = (*NAMES, *OF_PYG, *FILES, *GRAPH_NAMES)
FILE_READERS = {
    ".npz": own_files.read_npz,
    ".pt": own_files.read_pt,
    ".csv": tables.read_tables,
    ".tsv": tables.read_tables,
}


@dataclass(frozen=True)
class DatasetStatus:
    """The files of a named dataset on disk; ``folder`` holds the raw files."""

    name: str
    folder: Path | None
    missing: tuple[str, ...]
    altered: tuple[str, ...]
    counts: Counts
    note: str = ""

    @property
    def state(self) -> Literal["present", "missing", "altered"]:
        return "altered" if self.altered else "missing" if self.missing else "present"


def data_root(root: str | Path | None = None) -> Path:
    """The argument, else ``$GRAPHRELU_DATA``, else ``graphrelu`` in the user's cache folder."""
    if root is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
        root = os.environ.get("GRAPHRELU_DATA") or cache / "graphrelu"
    return Path(root).expanduser()


def load(name: str, root: str | Path | None = None) -> Graph:
    """Load a graph, check it, and write nothing.

    Args:
        name: One of :data:`NAMES`, :data:`OF_PYG` or :data:`FILES`; a path to a ``.npz`` in a
            usual form, to a ``.pt`` with a saved PyG ``Data``, or to a table of edges beside that
            of the nodes (:func:`~graphrelu.lab.data.tables.read_tables`), or the folder of these;
            ``pyg:CLASS/NAME`` for a dataset class of PyG's; ``ogbn-NAME`` for one of OGB's; or
            ``csbm:NAME=VALUE,...`` for a :class:`~graphrelu.lab.data.generated.BlockModel`.
        root: Where the raw files are, or are downloaded to; see :func:`data_root`.
    """
    require(not holds_graphs(name), f"{name} holds many graphs; choose a dataset of one graph.")
    key, home = name.lower(), data_root(root)
    if name.startswith("pyg:"):
        for known, source in SOURCES.items():
            # PyG would unpickle these without a look at their sums.
            if key == f"pyg:{source.pyg_class}/{source.pyg_name}".lower():
                return replace(load(known, root), name=name)
        return fetch.read_pyg(name, home)
    if generated.is_generated(name):
        model = generated.parse(name)
        return from_data(model.generate(), model.name)
    if key.startswith("ogbn-"):
        return from_data(ogb.read_ogb(key, home), key)
    if files := files_of(name):
        path = files[0]
        require(path.is_file(), f"There is no file {path}.")
        called = path.name if len(files) == 1 else f"{path.parent.resolve().name}/{path.name}"
        ending = path.suffix.lower()
        graph = from_data(FILE_READERS[ending](path), called)
        return graph if ending == ".pt" else undirected(graph)
    if key in OF_PYG:
        return replace(load(f"pyg:{OF_PYG[key]}", root), name=key)
    if key in FILES:
        return replace(load(str(home / FILES[key])), name=key)
    if key == "digits":
        return check_counts(from_data(readers.read_digits(), key), EMBEDDED[key])
    if key in SOURCES:
        return cast(Graph, _load_source(key, SOURCES[key], home))
    if Path(name).expanduser().exists():
        raise DataError(f"{name} is of no known layout; {own_files.LAYOUTS}.")
    close = difflib.get_close_matches(key, KNOWN, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise DataError(
        f"There is no dataset {name!r}{hint}; known are {', '.join(KNOWN)}, "
        f"paths to .npz, .pt, .csv and .tsv files, pyg:CLASS/NAME, ogbn-NAME, and "
        f"csbm:NAME=VALUE,..."
    )


def files_of(name: str) -> tuple[Path, ...]:
    """The files of a path, the named file first; none if the name is not a path.

    A folder stands for its table of edges, unless a dataset is known by its name.
    """
    path = Path(name.removeprefix("graphs:")).expanduser()
    if name.startswith("graphs:"):
        return (path,)
    if name.startswith("pyg:"):
        return ()
    if name.lower() not in KNOWN and path.is_dir():
        tables_in = (path / f"edges{ending}" for ending in (".csv", ".tsv"))
        path = next((file for file in tables_in if file.is_file()), path)
    reader = FILE_READERS.get(path.suffix.lower())
    if reader is tables.read_tables:
        return path, tables.nodes_beside(path)
    return (path,) if reader else ()


def holds_graphs(name: str) -> bool:
    """Whether a name is that of a set of graphs, to be loaded with :func:`load_graphs`."""
    return name.lower() in GRAPH_NAMES or name.startswith((f"pyg:{fetch.GRAPH_CLASS}", "graphs:"))


def load_graphs(name: str, root: str | Path | None = None) -> GraphSet:
    """Load a set of graphs, check it, and write nothing.

    Args:
        name: One of :data:`GRAPH_NAMES`, ``pyg:TUDataset/NAME``, or ``graphs:PATH`` with the path
            of a ``.pt`` with a saved list of PyG ``Data``.
        root: Where the raw files are, or are downloaded to; see :func:`data_root`.
    """
    key = name.lower()
    if name.startswith("pyg:"):
        return fetch.read_pyg_graphs(name, data_root(root))
    if name.startswith("graphs:"):
        (path,) = files_of(name)
        require(path.is_file(), f"There is no file {path}.")
        return own_files.read_pt_list(path, path.name)
    if key == "digit-graphs":
        return check_counts(readers.read_digit_graphs(key), EMBEDDED[key])
    if key in GRAPH_SOURCES:
        return cast(GraphSet, _load_source(key, GRAPH_SOURCES[key], data_root(root)))
    raise DataError(
        f"There is no set of graphs {name!r}; known are {', '.join(GRAPH_NAMES)}, "
        f"pyg:{fetch.GRAPH_CLASS}/NAME, and graphs:PATH."
    )


def survey(root: str | Path | None = None) -> list[DatasetStatus]:
    """What is there, missing or altered of every dataset known by name."""
    return [
        status
        for embedded, sources in (("digits", SOURCES), ("digit-graphs", GRAPH_SOURCES))
        for status in (_embedded(embedded), *_on_disk(sources, data_root(root)))
    ]


def _embedded(name: str) -> DatasetStatus:
    missing = () if importlib.util.find_spec("sklearn") else ("scikit-learn",)
    return DatasetStatus(name, None, missing, (), EMBEDDED[name], "comes with scikit-learn")


def _on_disk(sources: dict[str, Source], root: Path) -> Iterator[DatasetStatus]:
    for name, source in sources.items():
        folder = root / source.folder
        missing, altered, sums = compare_edition(source, folder)
        note = "" if sums == source.sums else "as PyG downloads it, not the files of our results"
        found = tuple(missing), tuple(altered)
        yield DatasetStatus(name, folder / "raw", *found, source.counts, note)


def _load_source(name: str, source: Source, root: Path) -> Graph | GraphSet:
    """The graph, or the set of graphs, of raw files that are there or can be downloaded."""
    folder = root / source.folder
    raw = folder / "raw"
    missing, altered, sums = compare_edition(source, folder)
    files = ", ".join(str(raw / file) for file in altered)
    require(
        not altered,
        f"{name}: the SHA-256 sum of {files} is not the known one, it may be truncated; "
        f"remove the folder {raw} to have it downloaded again.",
    )
    if not missing:
        return _read(name, source, raw, sums)
    with tempfile.TemporaryDirectory(prefix="graphrelu-") as staging:
        # There may be no network, a moved address, a damaged archive.
        fault = f"{name} is not complete and cannot be downloaded"
        with told(fault, f"; put {', '.join(missing)} into {raw}"):
            staged = fetch.download(source, Path(staging))
        graph = _check_download(name, source, staged, raw)
        fetch.publish(staged.parent, folder)
    return graph


def _check_download(name: str, source: Source, staged: Path, raw: Path) -> Graph | GraphSet:
    """Read freshly downloaded files; where they are another edition, note their sums."""
    lacking, differing = compare(staged, source.sums)
    files = ", ".join(lacking or differing)
    known = not lacking and not (differing and source.pinned)
    require(known, f"{name}: the SHA-256 sum of the downloaded {files} is not the known one.")
    sums = source.sums | {file: sha256(staged / file) for file in differing}
    _, other_edition = compare(raw, sums)
    require(
        not other_edition,
        f"{name}: {raw} holds {', '.join(other_edition)} of another edition than the one that "
        f"PyG downloads; complete or remove that folder.",
    )
    graph = _read(name, source, staged, sums)
    if differing:
        record = "".join(f"{digest}  {file}\n" for file, digest in sums.items())
        (staged.parent / EDITION).write_text(record)
    return graph


def _read(name: str, source: Source, raw: Path, sums: dict[str, str]) -> Graph | GraphSet:
    files = read_verified(raw, sums)
    loaded: Graph | GraphSet
    with told(f"{name} cannot be read", kinds=readers.UNREADABLE):
        if source.pyg_class == "TUDataset":
            loaded = readers.read_tu(files, source.pyg_name, name)
        elif source.pyg_class == "Planetoid":
            data = readers.read_planetoid(files, source.pyg_name)
            loaded = from_data(data, name, source.family)
        else:
            loaded = from_data(readers.read_attributed(files), name, source.family)
    return check_counts(loaded, source.counts, source.class_sizes)
