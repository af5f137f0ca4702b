"""Files of any content: a graph or a set of graphs, or an error of one sentence."""

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphrelu.lab.data import load, load_graphs
from graphrelu.lab.errors import DataError

pytest.importorskip("rdkit")

MOLECULES = [
    "C",
    "CCO",
    "CC",
    "C1=CC=CC=C1",
    "[Na+].[Cl-]",
    "C[C@H](N)O",
    "c1ccsc1",
    "[Fe-8]",
    "C(" * 30,
]
LETTERS = "CNOFPSIclnosBr[]()=#@+-\\/%.0123456789H*"
ODD = ["", " ", "nan", "inf", "1e400", "-1", "0.5", '"', "µ", "\x00", "None", "9" * 30]
smiles = st.one_of(st.sampled_from(MOLECULES), st.text(LETTERS, max_size=12))
number = st.one_of(st.integers(-1, 5).map(str), st.floats(-3, 3).map(str))
COLUMNS = {
    "smiles": smiles,
    "split": st.sampled_from(["train", "val", "test", "valid"]),
    "label": st.one_of(st.integers(-1, 3).map(str), st.sampled_from("abc")),
    **dict.fromkeys(("train", "val", "test"), st.sampled_from("01")),
    **dict.fromkeys(("0", "source", "target", "u", "v"), st.integers(0, 4).map(str)),
}


@st.composite
def tables(draw: st.DrawFn, headers: list[list[str]], least: int = 0) -> bytes:
    """Mostly of what their columns should hold; some fields and some bytes are others."""
    header = draw(st.sampled_from(headers))
    odd = st.one_of(st.sampled_from(ODD), st.text(max_size=4))
    is_odd = draw(st.sampled_from([0.0, 0.0, 0.05, 0.5]))
    lines = [header]
    for _ in range(draw(st.integers(least, 12))):
        lines.append([
            draw(odd if draw(st.floats(0, 1)) < is_odd else COLUMNS.get(name, number))
            for name in header
        ])  # fmt: skip
    content = "\n".join(",".join(line) for line in lines).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        place = draw(st.integers(0, len(content)))
        content = content[:place] + draw(st.binary(max_size=2)) + content[place + 1 :]
    return content


def archive(ending: str) -> bytes:
    """A ring of twelve nodes in a file of this kind."""
    stream, node = io.BytesIO(), np.arange(12)
    edges = np.stack([node, (node + 1) % 12])
    if ending == ".npz":
        np.savez(stream, node_features=np.eye(12, 3), node_labels=node % 2, edges=edges.T)
    else:
        x, y = torch.rand(12, 3).to_sparse(), torch.from_numpy(node % 2)
        torch.save(Data(x=x, edge_index=torch.from_numpy(edges), y=y), stream)
    return stream.getvalue()


def changed(content: bytes, chance: random.Random) -> bytes:
    """With a few bytes replaced: of the archive, or inside one of its entries."""
    if chance.random() < 0.2:
        flipped = bytearray(content)
        for _ in range(chance.choice((1, 4))):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        return bytes(flipped)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        # Headers and pickles are the first of what an archive has.
        at = min(chance.randrange(len(old.namelist())) for _ in range(2))
        for place, name in enumerate(old.namelist()):
            part = bytearray(old.read(name))
            if place == at and part:
                part[min(chance.randrange(len(part)) for _ in range(2))] = chance.randrange(256)
            new.writestr(name, bytes(part))
    return stream.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def read(reader: Callable[..., Any], *arguments: Any) -> Any:
    """What is read; none if it is refused in one sentence."""
    try:
        return reader(*arguments)
    except DataError as error:
        sentence = str(error)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return None


@given(
    content=tables([["smiles", "y"], ["smiles", "y", "split"], ["id", "SMILES", "a", "b"]]),
    split=st.sampled_from([None, "random", "scaffold", "column", "folds"]),
)
def test_molecules(folder: Path, content: bytes, split: str | None) -> None:
    path = folder / "molecules.csv"
    path.write_bytes(content)
    graphs = read(load_graphs, str(path), None, (), split)
    assert graphs is None or graphs.num_graphs > 1


@given(
    nodes=tables([["label"], ["label", "a"], ["a", "label", "b", "train", "val", "test"]], 5),
    edges=tables([["0", "0"], ["source", "target"], ["u", "v", "weight"]]),
)
def test_tables_of_a_graph(folder: Path, nodes: bytes, edges: bytes) -> None:
    (folder / "nodes.csv").write_bytes(nodes)
    (folder / "edges.csv").write_bytes(edges)
    graph = read(load, str(folder / "edges.csv"))
    assert graph is None or graph.x.size(0) == len(graph.y)


@pytest.mark.parametrize("ending", [".npz", ".pt"])
@given(chance=st.randoms())
def test_archives(folder: Path, ending: str, chance: random.Random) -> None:
    path = folder / f"file{ending}"
    path.write_bytes(changed(archive(ending), chance))
    graph = read(load, str(path))
    if graph is not None:
        assert 0 <= int(graph.edge_index.min()) <= int(graph.edge_index.max()) < graph.num_nodes
