"""Graphs by name or path: the paper's datasets, any of PyG's, generated ones, or a file."""

from __future__ import annotations

import difflib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, cast

from graphrelu.lab.data import fetch, generated, ogb, own_files, readers, tables
from graphrelu.lab.data.checksums import (
    CLASS_SIZES,
    EDITION,
    GRAPH_SOURCES,
    SOURCES,
    Counts,
    Source,
    check_class_sizes,
    check_counts,
    compare,
    compare_edition,
    read_verified,
    sha256,
)
from graphrelu.lab.data.graph import DataError, Graph, from_data, told
from graphrelu.lab.data.graph_set import GraphSet

__all__ = ["GRAPH_NAMES", "NAMES", "DataError", "DatasetStatus", "Graph", "GraphSet"]
__all__ += ["data_root", "files_of", "holds_graphs", "load", "load_graphs", "survey"]

DIGITS_COUNTS = Counts(1_797, 24_678, 64, 10)
DIGIT_GRAPHS_COUNTS = Counts(6_363, 18_962, 17, 10)
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
FILE_READERS = {
    ".npz": own_files.read_npz,
    ".pt": own_files.read_pt,
    ".csv": tables.read_tables,
    ".tsv": tables.read_tables,
}

Files: TypeAlias = dict[str, bytes]  # the contents of raw files, by name


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
        root = os.environ.get("GRAPHRELU_DATA") or None
    if root is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "graphrelu"
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
    if holds_graphs(name):
        raise DataError(f"{name} holds many graphs; choose a dataset of one graph.")
    if name.startswith("pyg:"):
        for key, source in SOURCES.items():
            # PyG would unpickle these without a look at their sums.
            if name.lower() == f"pyg:{source.pyg_class}/{source.pyg_name}".lower():
                return replace(cast(Graph, _load_source(key, source, data_root(root))), name=name)
        data, family = fetch.read_pyg(name.removeprefix("pyg:"), data_root(root))
        return from_data(data, name, family)
    if generated.is_generated(name):
        model = generated.parse(name)
        return from_data(model.generate(), model.name)
    key = name.lower()
    if key.startswith("ogbn-"):
        return from_data(ogb.read_ogb(key, data_root(root)), key)
    if files := files_of(name):
        path = files[0]
        if not path.is_file():
            raise DataError(f"There is no file {path}.")
        called = path.name if len(files) == 1 else f"{path.parent.resolve().name}/{path.name}"
        return from_data(FILE_READERS[path.suffix.lower()](path), called)
    if key in OF_PYG:
        return replace(load(f"pyg:{OF_PYG[key]}", root), name=key)
    if key in FILES:
        return replace(load(str(data_root(root) / FILES[key]), root), name=key)
    if key == "digits":
        graph = from_data(readers.read_digits(), key)
        check_counts(graph, DIGITS_COUNTS)
        return graph
    if key in SOURCES:
        return cast(Graph, _load_source(key, SOURCES[key], data_root(root)))
    if Path(name).expanduser().exists():
        raise DataError(f"{name} is of no known layout; {own_files.LAYOUTS}.")
    known = (*NAMES, *OF_PYG, *FILES, *GRAPH_NAMES)
    close = difflib.get_close_matches(key, known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise DataError(
        f"There is no dataset {name!r}{hint}; known are {', '.join(known)}, "
        f"paths to .npz, .pt, .csv and .tsv files, pyg:CLASS/NAME, ogbn-NAME, and "
        f"csbm:NAME=VALUE,..."
    )


def files_of(name: str) -> tuple[Path, ...]:
    """The files of a path, the named file first; none if the name is not a path.

    A folder stands for its table of edges, unless a dataset is known by its name.
    """
    if name.startswith("graphs:"):
        return (Path(name.removeprefix("graphs:")).expanduser(),)
    path = Path(name).expanduser()
    is_known = name.lower() in (*NAMES, *OF_PYG, *FILES, *GRAPH_NAMES)
    if not is_known and not name.startswith("pyg:") and path.is_dir():
        tables_in = (path / f"edges{ending}" for ending in (".csv", ".tsv"))
        path = next((file for file in tables_in if file.is_file()), path)
    if name.startswith("pyg:") or path.suffix.lower() not in FILE_READERS:
        return ()
    if FILE_READERS[path.suffix.lower()] is tables.read_tables:
        return path, tables.nodes_beside(path)
    return (path,)


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
    if name.startswith("pyg:"):
        return fetch.read_pyg_graphs(name.removeprefix("pyg:"), data_root(root), name)
    if name.startswith("graphs:"):
        (path,) = files_of(name)
        if not path.is_file():
            raise DataError(f"There is no file {path}.")
        return own_files.read_pt_list(path, path.name)
    key = name.lower()
    if key == "digit-graphs":
        graphs = readers.read_digit_graphs(key)
        check_counts(graphs, DIGIT_GRAPHS_COUNTS)
        return graphs
    if key in GRAPH_SOURCES:
        return cast(GraphSet, _load_source(key, GRAPH_SOURCES[key], data_root(root)))
    raise DataError(
        f"There is no set of graphs {name!r}; known are {', '.join(GRAPH_NAMES)}, "
        f"pyg:{fetch.GRAPH_CLASS}/NAME, and graphs:PATH."
    )


def survey(root: str | Path | None = None) -> list[DatasetStatus]:
    """What is there, missing or altered of every dataset known by name."""
    return [
        _embedded("digits", DIGITS_COUNTS),
        *_on_disk(SOURCES, data_root(root)),
        _embedded("digit-graphs", DIGIT_GRAPHS_COUNTS),
        *_on_disk(GRAPH_SOURCES, data_root(root)),
    ]


def _embedded(name: str, counts: Counts) -> DatasetStatus:
    missing = () if importlib.util.find_spec("sklearn") else ("scikit-learn",)
    return DatasetStatus(name, None, missing, (), counts, "comes with scikit-learn")


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
    if altered:
        files = ", ".join(str(raw / file) for file in altered)
        raise DataError(
            f"{name}: the SHA-256 sum of {files} is not the known one, it may be truncated; "
            f"remove the folder {raw} to have it downloaded again."
        )
    if not missing:
        return _read(name, source, read_verified(raw, sums))
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
    if lacking or (differing and source.pinned):
        files = ", ".join(lacking or differing)
        raise DataError(f"{name}: the SHA-256 sum of the downloaded {files} is not the known one.")
    others = {file: sha256(staged / file) for file in differing}
    sums = source.sums | others
    _, other_edition = compare(raw, sums)
    if other_edition:
        raise DataError(
            f"{name}: {raw} holds {', '.join(other_edition)} of another edition than the one that "
            f"PyG downloads; complete or remove that folder."
        )
    graph = _read(name, source, read_verified(staged, sums))
    if differing:
        record = "".join(f"{digest}  {file}\n" for file, digest in sums.items())
        (staged.parent / EDITION).write_text(record)
    return graph


def _read(name: str, source: Source, files: Files) -> Graph | GraphSet:
    with told(f"{name} cannot be read", kinds=readers.UNREADABLE):
        loaded = SOURCE_READERS[source.pyg_class](files, source, name)
    check_counts(loaded, source.counts)
    if isinstance(loaded, GraphSet):
        check_class_sizes(loaded, CLASS_SIZES[name])
    return loaded


# The classes of PyG whose raw files are read here.
SOURCE_READERS: dict[str, Callable[[Files, Source, str], Graph | GraphSet]] = {
    "Planetoid": lambda files, source, name: from_data(
        readers.read_planetoid(files, source.pyg_name), name, source.family
    ),
    "AttributedGraphDataset": lambda files, source, name: from_data(
        readers.read_attributed(files), name, source.family
    ),
    "TUDataset": lambda files, source, name: readers.read_tu(files, source.pyg_name, name),
}
