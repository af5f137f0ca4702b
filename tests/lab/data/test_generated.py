"""Generated graphs: what is asked for is measured, and a name is one graph everywhere."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch_geometric.utils import is_undirected

from graphrelu.lab.data import load
from graphrelu.lab.data.generated import BlockModel
from graphrelu.lab.data.graph import DataError, Graph


def region_of(graph: Graph, regions: int = 10) -> torch.Tensor:
    return torch.arange(graph.num_nodes) // graph.num_classes % regions


def homophily_of(graph: Graph, chosen: torch.Tensor | None = None) -> float:
    row, col = graph.edge_index if chosen is None else graph.edge_index[:, chosen]
    return float((graph.y[row] == graph.y[col]).double().mean())


@pytest.mark.parametrize(("classes", "homophily"), [(2, 0.0), (3, 0.3), (2, 1.0)])
def test_counts_degree_and_homophily(classes: int, homophily: float) -> None:
    graph = load(f"csbm:nodes=1200,classes={classes},homophily={homophily},degree=8,features=7")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1200, 7, classes)
    assert graph.y.bincount().tolist() == [1200 // classes] * classes
    assert graph.num_edges / 1200 == pytest.approx(8, rel=0.05)
    assert homophily_of(graph) == pytest.approx(homophily, abs=0.03)
    region = region_of(graph)
    row, col = graph.edge_index
    assert float((region[row] == region[col]).double().mean()) == pytest.approx(0.95, abs=0.02)
    assert not bool((row == col).any())
    assert is_undirected(graph.edge_index)


def test_one_region_has_the_whole_degree_and_opposed_ones_share_it() -> None:
    graph = load("csbm:regions=1,degree=8")
    assert graph.num_edges / graph.num_nodes == pytest.approx(8, rel=0.05)
    graph = load("csbm:homophily=0.9,degree=20,inside=0.5,opposed=1")
    num_odd = (region_of(graph) % 2)[graph.edge_index].sum(dim=0)
    shares = [homophily_of(graph, num_odd == number) for number in range(3)]
    assert shares == pytest.approx([0.9, 0.5, 0.1], abs=0.04)


@pytest.mark.parametrize(("shift", "classes"), [(0, 2), (1, 2), (2, 3)])
def test_features_tell_of_class_and_region(shift: int, classes: int) -> None:
    graph = load(f"csbm:shift={shift},classes={classes},signal=2,marker=0.5,features=12,nodes=3000")
    odd = region_of(graph) % 2
    own = torch.arange(6) % classes
    for label in range(classes):
        for kind in range(2):
            chosen = graph.x[(graph.y == label) & (odd == kind)]
            seen = (label + shift * kind) % classes
            means = torch.where(own == seen, 2.0, -2.0 / (classes - 1))
            means = torch.cat([means, torch.full((6,), 0.5 if kind else -0.5)])
            torch.testing.assert_close(chosen.mean(dim=0), means, atol=0.2, rtol=0)
            torch.testing.assert_close(chosen.std(dim=0), torch.ones(12), atol=0.15, rtol=0)


def test_one_name_one_graph_on_every_machine() -> None:
    graph = load("csbm:shift=1,nodes=100,regions=4,degree=4")
    assert graph.name == "csbm:nodes=100,regions=4,shift=1"
    parts = (graph.x, graph.edge_index, graph.y)
    digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    assert digest == "b6fe07a8c2b1c0c2a256ee1392501b49005b1af3d688860ecebbd69b28f386b3"
    model = BlockModel(homophily=0.1, degree=2, seed=7)
    assert BlockModel.parse(model.name) == model
    assert BlockModel.parse("csbm") == BlockModel.parse("csbm:") == BlockModel()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("degree=nan", r"degree must lie in \[0, 1,000\], not nan\."),
        ("nodes=1e3", "nodes must be a whole number, not '1e3'."),
        ("degree", "degree must be a number, not ''."),
        ("degree=2,degree=3", "csbm:degree=2,degree=3 gives degree twice."),
        ("dregee=2", "csbm has no parameter 'dregee'; it has nodes, classes, regions, degree,"),
        ("features=4,classes=3", "features must be two for each of 3 classes, not 4."),
        ("shift=2", "shift must be below 2 classes, not 2."),
        ("degree=100", r"degree must be below 100\.0: there are too few nodes of one"),
    ],
)
def test_bad_parameters_cost_one_sentence(parameters: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(f"csbm:{parameters}")
