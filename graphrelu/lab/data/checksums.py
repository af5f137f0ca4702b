"""The datasets known by name: where their raw files lie, their SHA-256 sums and their counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphrelu.lab.data.graph import DataError, Family, Graph
from graphrelu.lab.data.graph_set import GraphSet

# Written beside `raw` when PyG downloads an edition of the files that is not the pinned one.
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
    """The contents of files that have these sums: what is returned is what was summed."""
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


SOURCES: dict[str, Source] = {
    "cora": Source(
        pyg_class="Planetoid",
        pyg_name="Cora",
        folder="Planetoid/Cora",
        family="citation",
        counts=Counts(2_708, 10_556, 1_433, 7),
        pinned=True,
        sums=parse_sums("""
9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543  ind.cora.allx
2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71  ind.cora.ally
58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d  ind.cora.graph
297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875  ind.cora.test.index
b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a  ind.cora.tx
41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad  ind.cora.ty
23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab  ind.cora.x
94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1  ind.cora.y
"""),
    ),
    "citeseer": Source(
        pyg_class="Planetoid",
        pyg_name="CiteSeer",
        folder="Planetoid/CiteSeer",
        family="citation",
        counts=Counts(3_327, 9_104, 3_703, 6),
        pinned=True,
        sums=parse_sums("""
2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668  ind.citeseer.allx
f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95  ind.citeseer.ally
d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7  ind.citeseer.graph
2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4  ind.citeseer.test.index
539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21  ind.citeseer.tx
55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce  ind.citeseer.ty
d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6  ind.citeseer.x
8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924  ind.citeseer.y
"""),
    ),
    "pubmed": Source(
        pyg_class="Planetoid",
        pyg_name="PubMed",
        folder="Planetoid/PubMed",
        family="citation",
        counts=Counts(19_717, 88_648, 500, 3),
        pinned=True,
        sums=parse_sums("""
508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e  ind.pubmed.allx
0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e  ind.pubmed.ally
5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9  ind.pubmed.graph
b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5  ind.pubmed.test.index
4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d  ind.pubmed.tx
ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd  ind.pubmed.ty
fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33  ind.pubmed.x
e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3  ind.pubmed.y
"""),
    ),
    "blogcatalog": Source(
        pyg_class="AttributedGraphDataset",
        pyg_name="BlogCatalog",
        folder="AttributedGraphDataset/blogcatalog",
        family="social",
        counts=Counts(5_196, 343_486, 8_189, 6),
        pinned=False,
        sums=parse_sums("""
81f68cba608b5c816beae032c4a6f518a644f8112ed2fb771260a17c4084f432  attrs.npz
cccbf085dca7e4de2c643b7794f792e96d04ce3f2b2f27d17fdbf5630f864cd8  edgelist.txt
7166e9c4dc888dc85e644b57c19babcc1c8645bb5793a10e24e72450cbaa4393  labels.txt
"""),
    ),
    "flickr": Source(
        pyg_class="AttributedGraphDataset",
        pyg_name="Flickr",
        folder="AttributedGraphDataset/flickr",
        family="social",
        counts=Counts(7_575, 479_476, 12_047, 9),
        pinned=False,
        sums=parse_sums("""
91d082bf8a5147a382c1a98499c032b35ad31ddba7882b68cbe40b18aeeac022  attrs.npz
311c3d66cc710ac5412a03004d0a87042128c36de6657e92d67af6fc2d50c8cf  edgelist.txt
264d0a43458933bce89dfd78f28864f97fbfc3fce999c09f16d0548bfd45693f  labels.txt
"""),
    ),
}

# Sets of graphs, with the number of graphs of each class.
CLASS_SIZES: dict[str, tuple[int, ...]] = {"mutag": (63, 125), "proteins": (663, 450)}
GRAPH_SOURCES: dict[str, Source] = {
    "mutag": Source(
        pyg_class="TUDataset",
        pyg_name="MUTAG",
        folder="TUDataset/MUTAG",
        family="other",
        counts=Counts(3_371, 7_442, 7, 2),
        pinned=False,
        sums=parse_sums("""
d9656ca7493f3445d737c711710bb36fd432dddd1c0ea32e1d4713c86ebd28e2  MUTAG_A.txt
7d520a4d6c7961c0cdeabe076d8fe27e795b6d373485c9a2b744987e560a2056  MUTAG_graph_indicator.txt
a1518ea39ba3426bd42f57396b9c4baffe68e9adc718caeeab0119c6591a5f2c  MUTAG_graph_labels.txt
678f429965490e84dd27713017538c995fc05d1621beac910848b600015ee863  MUTAG_node_labels.txt
"""),
    ),
    "proteins": Source(
        pyg_class="TUDataset",
        pyg_name="PROTEINS",
        folder="TUDataset/PROTEINS",
        family="other",
        counts=Counts(43_471, 162_088, 3, 2),
        pinned=False,
        sums=parse_sums("""
4c4b33e272fc95cac6d27ed6d5d12b9a852c8610e91fff59f8f0dbdd5a20df67  PROTEINS_A.txt
8d4ff1e852a5c28561e9bffb44cf9490bc552b13a3b6156dd12dc7f44e9afc4a  PROTEINS_graph_indicator.txt
c0ef9810c440775252872318d0c8adc385588e14bc4c47a2c34aa96ee3c7cdcd  PROTEINS_graph_labels.txt
f758e8ad3d6e3c026b50833d75f6f90735b94eb3345e4243707f495ca8afea8d  PROTEINS_node_labels.txt
"""),
    ),
}
