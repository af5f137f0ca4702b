"""The user's own sets of graphs: a list of PyG's Data in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphrelu.lab import cli
from graphrelu.lab.cli.compare import prepare
from graphrelu.lab.data import DataError, holds_graphs, load, load_graphs


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
    assert holds_graphs(name)
    graphs = load_graphs(name)
    assert (graphs.name, graphs.num_graphs, graphs.num_nodes) == ("rings.pt", 40, 180)
    assert graphs.node_ptr[:6].tolist() == [0, 3, 7, 12, 18, 21]
    assert graphs.y.tolist() == 20 * [0, 1]
    inside = (graphs.edge_index >= 3).all(dim=0) & (graphs.edge_index < 7).all(dim=0)
    assert int(inside.sum()) == 8
    _, configs = prepare(name, "gin", ["relu"], range(10))
    assert configs[0].dataset.startswith("rings.pt@")
    with pytest.raises(
        DataError, match=r"rings\.pt holds many graphs; write graphs:.*rings\.pt\.$"
    ):
        load(str(tmp_path / "rings.pt"))


def test_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(rings(), tmp_path / "rings.pt")
    options = "--activations relu,digraf --runs 2 --epochs 3 --hidden 4 --device cpu"
    assert cli.run(["compare", name, *options.split()]) == 0
    assert "rings.pt: 40 graphs, 180 nodes" in capsys.readouterr().out


def test_a_value_of_each_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = rings()
    for place, graph in enumerate(graphs):
        graph.y = torch.tensor([100.0 + place])
    name = saved(graphs, tmp_path / "rings.pt")
    options = "--norm batch --backbone gin --no-residual --layers 2 --activations relu,grelu"
    options += " --runs 2 --epochs 3 --hidden 4 --device cpu"
    assert cli.run(["compare", name, *options.split()]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 features, values from 100 to 139 (regression)" in shown
    assert "folds split, test mean absolute error Split: 10 stratified folds" in shown
    assert cli.run(["compare", name, "--split", "gin_folds"]) == 2
    sentence = "The split gin_folds chooses an epoch by accuracy, so y must be classes.\n"
    assert capsys.readouterr().err == sentence


def changed(**fields: object) -> list[Data]:
    graphs = rings()
    for key, value in fields.items():
        graphs[5][key] = value
    return graphs


@pytest.mark.parametrize(
    ("graphs", "sentence"),
    [
        ([], r"rings.pt holds a list; save them with torch.save\(list, path\), .*\."),
        (rings()[0], r"rings.pt holds a Data; save them with .*\."),
        ([*rings(), 7], r"rings.pt holds a int; save them with .*\."),
        (changed(x=None), r"graph 5 has no node features \(x is missing\)\."),
        (changed(x=torch.ones(4, 3)), r"graph 5: the features must be dense, and as many as .*\."),
        (changed(x=torch.eye(4, 2).to_sparse()), r"graph 5: the features must be dense, and .*\."),
        (changed(x=[1]), r"rings.pt: x must be a plain tensor of numbers\."),
        (changed(y=None), r"graph 5 must have one class or one value as y\."),
        (changed(y=torch.zeros(2)), r"graph 5 must have one class or one value as y\."),
        (changed(y=torch.tensor([-1])), r"rings.pt: graph 5 has no label\."),
        (
            changed(y=torch.tensor([0.5])),
            r"graph 5: y must be of one type, torch.int64 as in graph 0\.",
        ),
        (changed(edge_index=torch.tensor([[0], [4]])), r"graph 5: an edge names node 4, .*\."),
        (changed(edge_index=None), r"graph 5 has no edges \(edge_index is missing\)\."),
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
    with pytest.raises(
        DataError, match=r"broken\.pt is damaged or holds more than tensors, .*; save them with"
    ):
        load_graphs(f"graphs:{tmp_path / 'broken.pt'}")
    with pytest.raises(DataError, match=r"holds more than tensors, and nothing of it was run"):
        load_graphs(saved([*rings(), Path("x")], tmp_path / "trap.pt"))
