"""The datasets known by name: where their raw files lie, their SHA-256 sums and their counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from graphrelu.lab.data.graph import DataError, Family, Graph
from graphrelu.lab.data.graph_set import GraphSet

# Beside this module, the known sums; beside `raw`, those of a download that is another edition.
EDITION = "SHA256SUMS"


class Counts(NamedTuple):
    """What a dataset must hold; an undirected edge counts twice, as in PyG."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Source:
    """A dataset of PyG's, by class and name, with the raw files that it is read from.

    ``folder`` is relative to the data root. ``pinned`` means that PyG downloads these very bytes;
    the social networks are also in circulation as other files with the same graph.
    """

    pyg_class: str
    pyg_name: str
    folder: str
    family: Family
    counts: Counts
    pinned: bool
    sums: dict[str, str]


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error
    return digest.hexdigest()


def read_verified(raw: Path, sums: dict[str, str]) -> dict[str, bytes]:
    """The contents of files, after their sums were checked on the same bytes."""
    files = {}
    for name, known in sums.items():
        try:
            files[name] = (raw / name).read_bytes()
        except OSError as error:
            raise DataError(f"{raw / name} cannot be read ({error.strerror}).") from error
        if hashlib.sha256(files[name]).hexdigest() != known:
            raise DataError(f"{raw / name} was changed while it was read.")
    return files


def parse_sums(text: str) -> dict[str, str]:
    """File names and their sums, from the lines that ``sha256sum`` prints."""
    lines = (line.split() for line in text.splitlines())
    return {line[1]: line[0] for line in lines if len(line) == 2}


def compare(raw: Path, sums: dict[str, str]) -> tuple[list[str], list[str]]:
    """The names of the files that are missing from a raw folder, and of those that differ."""
    missing = [name for name in sums if not (raw / name).is_file()]
    present = (name for name in sums if name not in missing)
    return missing, [name for name in present if sha256(raw / name) != sums[name]]


def compare_edition(source: Source, folder: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Missing files, altered files, and the sums that are meant: the known ones, or those of the
    day of a download."""
    missing, altered = compare(folder / "raw", source.sums)
    record = folder / EDITION
    if not (missing or altered) or source.pinned or not record.is_file():
        return missing, altered, source.sums
    recorded = parse_sums(record.read_text(encoding="utf-8", errors="replace"))
    sums = {file: recorded.get(file, "") for file in source.sums}
    return *compare(folder / "raw", sums), sums


def check_counts(graph: Graph | GraphSet, expected: Counts) -> None:
    """Raise a :class:`DataError` unless a graph has the counts that its name promises."""
    found = Counts(graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    wrong = [
        f"{have:,} {what} instead of {want:,}"
        for what, have, want in zip(Counts._fields, found, expected, strict=True)
        if have != want
    ]
    if wrong:
        raise DataError(f"{graph.name} has {', '.join(wrong)}.")


def check_class_sizes(graphs: GraphSet, expected: tuple[int, ...]) -> None:
    """Raise a :class:`DataError` unless there are as many graphs of each class as there must be."""
    found = tuple(graphs.y.bincount().tolist())
    if found != expected:
        sizes, promised = (" and ".join(map(str, counts)) for counts in (found, expected))
        raise DataError(f"{graphs.name} has {sizes} graphs of its classes instead of {promised}.")


def _source(
    pyg_class: str, pyg_name: str, folder: str, family: Family, *counts: int, pinned: bool
) -> Source:
    """A source with the sums of the file ``SHA256SUMS`` beside this module."""
    place = f"{pyg_class}/{folder}"
    known = files("graphrelu.lab.data").joinpath(EDITION).read_text(encoding="utf-8")
    sums = {
        path.removeprefix(f"{place}/raw/"): digest
        for path, digest in parse_sums(known).items()
        if path.startswith(f"{place}/")
    }
    return Source(pyg_class, pyg_name, place, family, Counts(*counts), pinned, sums)


_PAPERS, _SOCIAL, _GRAPHS = "Planetoid", "AttributedGraphDataset", "TUDataset"
SOURCES: dict[str, Source] = {
    "cora": _source(_PAPERS, "Cora", "Cora", "citation", 2_708, 10_556, 1_433, 7, pinned=True),
    "citeseer": _source(
        _PAPERS, "CiteSeer", "CiteSeer", "citation", 3_327, 9_104, 3_703, 6, pinned=True
    ),
    "pubmed": _source(_PAPERS, "PubMed", "PubMed", "citation", 19_717, 88_648, 500, 3, pinned=True),
    "blogcatalog": _source(
        _SOCIAL, "BlogCatalog", "blogcatalog", "social", 5_196, 343_486, 8_189, 6, pinned=False
    ),
    "flickr": _source(
        _SOCIAL, "Flickr", "flickr", "social", 7_575, 479_476, 12_047, 9, pinned=False
    ),
}
# Sets of graphs, with the number of graphs of each class.
CLASS_SIZES: dict[str, tuple[int, ...]] = {"mutag": (63, 125), "proteins": (663, 450)}
GRAPH_SOURCES: dict[str, Source] = {
    "mutag": _source(_GRAPHS, "MUTAG", "MUTAG", "other", 3_371, 7_442, 7, 2, pinned=False),
    "proteins": _source(
        _GRAPHS, "PROTEINS", "PROTEINS", "other", 43_471, 162_088, 3, 2, pinned=False
    ),
}
