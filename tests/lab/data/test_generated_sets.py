"""Generated sets of graphs: a name is one set everywhere, and what the labels depend on."""

from __future__ import annotations

import hashlib
from typing import get_args

import numpy as np
import pytest

from graphrelu.lab.data import files_of, holds_graphs, load_graphs
from graphrelu.lab.data.generated_sets import ColouredGraphs, Label
from graphrelu.lab.errors import DataError


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


def test_bad_parameters_cost_one_sentence() -> None:
    with pytest.raises(DataError, match="label must be one of share, local, whole, both, not all"):
        load_graphs("sets:label=all")
    with pytest.raises(DataError, match=r"nodes must lie in \[5, 500\], not 2\."):
        load_graphs("sets:nodes=2")
