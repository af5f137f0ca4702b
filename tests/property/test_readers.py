"""Tables of any content: a graph or a set of graphs, or an error of one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrelu.lab.data import DataError, load, load_graphs

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
    **dict.fromkeys(("train", "val", "test", "label_a"), st.sampled_from("01")),
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def read(reader: Callable[..., Any], *arguments: Any) -> Any:
    """What is read; none if it is refused in one sentence."""
    try:
        return reader(*arguments)
    except DataError as error:
        sentence = str(error)
    assert sentence
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
    nodes=tables(
        [["label"], ["label", "a"], ["a", "label_a"], ["label", "a", "train", "val", "test"]], 5
    ),
    edges=tables([["0", "0"], ["source", "target"], ["u", "v", "weight"]]),
)
def test_tables_of_a_graph(folder: Path, nodes: bytes, edges: bytes) -> None:
    (folder / "nodes.csv").write_bytes(nodes)
    (folder / "edges.csv").write_bytes(edges)
    graph = read(load, str(folder / "edges.csv"))
    assert graph is None or graph.x.size(0) == len(graph.y)
