"""The user's own sets of graphs: a list of PyG's Data in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphrelu.lab import cli
from graphrelu.lab.cli.compare import prepare
from graphrelu.lab.data import DataError, load, load_graphs


def rings(count: int = 40) -> list[Data]:
    """Rings of three to six nodes, in two classes that the features tell apart."""
    graphs = []
    for place in range(count):
        node = torch.arange(3 + place % 4)
        edges = torch.stack([node, (node + 1) % len(node)])
        x = torch.ones(len(node), 2) * (place % 2)
        edge_index = torch.cat([edges, edges.flip(0)], dim=1)
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([place % 2])))
    return graphs


def saved(graphs: object, path: Path) -> str:
    torch.save(graphs, path)
    return f"graphs:{path}"


def test_a_list_of_graphs(tmp_path: Path) -> None:
    name = saved(rings(), tmp_path / "rings.pt")
    graphs = load_graphs(name)
    assert (graphs.name, graphs.num_graphs, graphs.num_nodes) == ("rings.pt", 40, 180)
    assert graphs.node_count[:5].tolist() == [3, 4, 5, 6, 3]
    assert graphs.y.view(-1).tolist() == 20 * [0, 1]
    _, configs = prepare(name, "gin", ["relu"], range(10))
    assert configs[0].dataset.startswith("rings.pt@")
    sentence = r"rings\.pt holds many graphs; write graphs:.*rings\.pt\.$"
    with pytest.raises(DataError, match=sentence):
        load(str(tmp_path / "rings.pt"))


def test_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(rings(), tmp_path / "rings.pt")
    options = "--activations relu,digraf --runs 2 --epochs 3 --hidden 4 --device cpu"
    assert cli.run(["compare", name, *options.split()]) == 0
    assert "rings.pt: 40 graphs, 180 nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("graphs", "sentence"),
    [
        ([], r"rings\.pt holds no list of graphs; save them with torch.save\(list, path\), .*\."),
        (rings()[0], r"rings\.pt holds no list of graphs; save them with .*\."),
        ([*rings(), 7], r"rings\.pt holds a int; save them with .*\."),
        ([*rings(), Data(x=[1], y=1)], r"rings\.pt: x must be a plain tensor of numbers\."),
        ([*rings(), Path("x")], r"holds more than tensors, and nothing of it was run; save .*\."),
        ([*rings(), Data(x=torch.eye(2))], r"rings\.pt, graph 40, has no y\."),
    ],
)
def test_faults_cost_one_sentence(tmp_path: Path, graphs: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence + "$") as caught:
        load_graphs(saved(graphs, tmp_path / "rings.pt"))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^There is no file .*none\.pt\.$"):
        load_graphs(f"graphs:{tmp_path / 'none.pt'}")
    (tmp_path / "broken.pt").write_bytes(b"PK")
    sentence = r"broken\.pt is damaged or holds more than tensors, .*; save them with"
    with pytest.raises(DataError, match=sentence):
        load_graphs(f"graphs:{tmp_path / 'broken.pt'}")
