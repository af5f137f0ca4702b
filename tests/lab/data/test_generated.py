"""Generated graphs: what is asked for is measured, and a name means the same graphs everywhere."""

from __future__ import annotations

import hashlib
from typing import get_args

import numpy as np
import pytest
import torch
from torch_geometric.utils import is_undirected

from graphrelu.lab.data import files_of, holds_graphs, load, load_graphs
from graphrelu.lab.data.generated import BlockModel, ColouredGraphs, Label
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.errors import DataError


def region_of(graph: Graph) -> torch.Tensor:
    return torch.arange(graph.num_nodes) // 2 % 10


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_counts_degree_and_homophily(homophily: float) -> None:
    graph = load(f"csbm:nodes=1200,degree=8,homophily={homophily}")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (1200, 16, 2)
    assert graph.y.bincount().tolist() == [600, 600]
    assert graph.num_edges / 1200 == pytest.approx(8, rel=0.05)
    assert is_undirected(graph.edge_index)
    row, col = graph.edge_index
    assert not bool((row == col).any())
    for group, share in ((graph.y, homophily), (region_of(graph), 0.95)):
        assert float((group[row] == group[col]).double().mean()) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("shift", [0, 1])
def test_features_tell_of_class_and_region(shift: int) -> None:
    graph = load(f"csbm:shift={shift},signal=2,nodes=4000")
    odd = region_of(graph) % 2
    for label in range(2):
        for kind in range(2):
            chosen = graph.x[(graph.y == label) & (odd == kind)]
            seen = (label + shift * kind) % 2
            means = torch.where(torch.arange(8) % 2 == seen, 2.0, -2.0)
            means = torch.cat([means, torch.full((8,), 0.1 if kind else -0.1)])
            torch.testing.assert_close(chosen.mean(dim=0), means, atol=0.15, rtol=0)
            torch.testing.assert_close(chosen.std(dim=0), torch.ones(16), atol=0.1, rtol=0)
    marker = graph.x[:, 8:].mean(dim=1)
    assert float(marker[odd == 1].mean()) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize(
    ("name", "written", "digest"),
    [
        (
            "csbm:shift=1,nodes=100,degree=2",
            "csbm:nodes=100,degree=2.0,shift=1",
            "94bbb730b9cac8ae02737c28f6a8d5bdeaed9981fcc02348f20392721d44c25d",
        ),
        ("csbm", "csbm", "35d2bc0d0273cc462de5ae3c0039e993f33cad209ccb2e9e2871686696771751"),
    ],
)
def test_one_name_one_graph_on_every_machine(name: str, written: str, digest: str) -> None:
    graph = load(name)
    assert graph.name == written
    parts = (graph.x, graph.edge_index, graph.y)
    assert hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest() == digest
    assert BlockModel.parse(written).name == written
    assert BlockModel.parse("csbm") == BlockModel.parse("csbm:") == BlockModel()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("degree=nan", r"degree must lie in \[0, 1,000\], not nan\."),
        ("nodes=1e3", "nodes must be a whole number, not '1e3'."),
        ("degree", "degree must be a number, not ''."),
        ("degree=2,degree=3", "csbm:degree=2,degree=3 gives degree twice."),
        ("dregee=2", "csbm has no parameter 'dregee'; it has nodes, degree, homophily, signal,"),
        ("degree=100", r"degree must be below 100\.0: there are too few nodes of one"),
    ],
)
def test_bad_parameters_cost_one_sentence(parameters: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(f"csbm:{parameters}")


@pytest.mark.parametrize("label", get_args(Label))
def test_a_set(label: Label) -> None:
    model = ColouredGraphs(label=label, nodes=20, graphs=200, seed=3)
    assert ColouredGraphs.parse(model.name) == model
    assert holds_graphs(model.name)
    assert files_of(model.name) == ()
    graphs = load_graphs(model.name)
    assert (graphs.name, len(graphs.y), graphs.task) == (model.name, 200, "classes")
    assert graphs.y.float().mean() == pytest.approx(0.5, abs=0.06)  # less the ties
    assert graphs.nodes.sizes == (4,)
    assert (graphs.node_count.min(), graphs.node_count.max()) == (14, 26)
    degree = graphs.edge_count.sum() / graphs.node_count.sum()
    assert 3.5 < degree < 4.5


def test_one_name_one_set_on_every_machine() -> None:
    graphs = load_graphs("sets:graphs=50,nodes=20,label=both")
    assert graphs.name == "sets:label=both,nodes=20,graphs=50"
    parts = (graphs.nodes.table[graphs.nodes.kind], graphs.edge_index, graphs.y)
    digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    assert digest == "74eb1c910f5c142358e2c51facc0ec7f4362346fc6290e6560ee47699db2dbd9"


@pytest.mark.parametrize(
    ("label", "value"), [("share", 2), ("local", 3), ("whole", 5), ("both", 8)]
)
def test_what_a_label_is_about(label: Label, value: int) -> None:
    """Of a path of six nodes: the second, third and fifth have neighbours of two colours, and no
    colour is more frequent than 1 around all but the first."""
    colour = np.array([0, 0, 1, 1, 1, 2])
    joined = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    assert ColouredGraphs(label=label).value(colour, joined) == pytest.approx(value / 6)


def test_bad_parameters_of_sets_cost_one_sentence() -> None:
    with pytest.raises(DataError, match="label must be one of share, local, whole, both, not all"):
        load_graphs("sets:label=all")
    with pytest.raises(DataError, match=r"nodes must lie in \[5, 500\], not 2\."):
        load_graphs("sets:nodes=2")
