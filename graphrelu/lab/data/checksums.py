"""The datasets known by name: where their raw files lie, their SHA-256 sums and their counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeVar

from graphrelu.lab.data.graph import Family, Graph, require, told
from graphrelu.lab.data.graph_set import GraphSet

# Beside this module, the known sums; beside `raw`, those of a download that is another edition.
EDITION = "SHA256SUMS"
G = TypeVar("G", Graph, GraphSet, Graph | GraphSet)
FAMILIES: dict[str, Family] = {"Planetoid": "citation", "AttributedGraphDataset": "social"}


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
    the others are also in circulation as other files with the same graph. ``class_sizes`` is the
    number of graphs of each class in a set of graphs.
    """

    pyg_class: str
    pyg_name: str
    folder: str
    counts: Counts
    pinned: bool
    sums: dict[str, str]
    class_sizes: tuple[int, ...] = ()

    @property
    def family(self) -> Family:
        return FAMILIES.get(self.pyg_class, "other")


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with told(f"{path} cannot be read", kinds=OSError), path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_verified(raw: Path, sums: dict[str, str]) -> dict[str, bytes]:
    """The contents of files, after their sums were checked on the same bytes."""
    contents = {}
    for name, known in sums.items():
        with told(f"{raw / name} cannot be read", kinds=OSError):
            contents[name] = (raw / name).read_bytes()
        found = hashlib.sha256(contents[name]).hexdigest()
        require(found == known, f"{raw / name} was changed while it was read.")
    return contents


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
    recorded = _parse_sums(record.read_text(encoding="utf-8", errors="replace"))
    sums = {file: recorded.get(file, "") for file in source.sums}
    return *compare(folder / "raw", sums), sums


def check_counts(graph: G, expected: Counts, class_sizes: tuple[int, ...] = ()) -> G:
    """The graph; a :class:`DataError` unless it has the counts that its name promises."""
    found = Counts(graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    wrong = [
        f"{have:,} {what} instead of {want:,}"
        for what, have, want in zip(Counts._fields, found, expected, strict=True)
        if have != want
    ]
    if class_sizes and (sizes := tuple(graph.y.bincount().tolist())) != class_sizes:
        have, want = (" and ".join(map(str, counts)) for counts in (sizes, class_sizes))
        wrong.append(f"{have} graphs of its classes instead of {want}")
    require(not wrong, f"{graph.name} has {', '.join(wrong)}.")
    return graph


def _parse_sums(text: str) -> dict[str, str]:
    """File names and their sums, from the lines that ``sha256sum`` prints."""
    lines = (line.split() for line in text.splitlines())
    return {line[1]: line[0] for line in lines if len(line) == 2}


@cache
def _known_sums() -> dict[str, str]:
    return _parse_sums(files("graphrelu.lab.data").joinpath(EDITION).read_text(encoding="utf-8"))


def _source(pyg_class: str, name: str, *counts: int, class_sizes: tuple[int, ...] = ()) -> Source:
    is_social = pyg_class == "AttributedGraphDataset"  # where PyG's folders have small letters
    folder = f"{pyg_class}/{name.lower() if is_social else name}"
    start = f"{folder}/raw/"
    sums = {
        path.removeprefix(start): digest
        for path, digest in _known_sums().items()
        if path.startswith(start)
    }
    pinned = pyg_class == "Planetoid"
    return Source(pyg_class, name, folder, Counts(*counts), pinned, sums, class_sizes)


SOURCES: dict[str, Source] = {
    "cora": _source("Planetoid", "Cora", 2_708, 10_556, 1_433, 7),
    "citeseer": _source("Planetoid", "CiteSeer", 3_327, 9_104, 3_703, 6),
    "pubmed": _source("Planetoid", "PubMed", 19_717, 88_648, 500, 3),
    "blogcatalog": _source("AttributedGraphDataset", "BlogCatalog", 5_196, 343_486, 8_189, 6),
    "flickr": _source("AttributedGraphDataset", "Flickr", 7_575, 479_476, 12_047, 9),
}
GRAPH_SOURCES: dict[str, Source] = {
    "mutag": _source("TUDataset", "MUTAG", 3_371, 7_442, 7, 2, class_sizes=(63, 125)),
    "proteins": _source("TUDataset", "PROTEINS", 43_471, 162_088, 3, 2, class_sizes=(663, 450)),
}
