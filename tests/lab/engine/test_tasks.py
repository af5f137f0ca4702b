"""Several labels of a node, and values of nodes and of graphs: trained, scored and split."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.folds import fold_split
from graphrelu.lab.data.graph import DataError, Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine.fold_train import FoldBatch, collect
from graphrelu.lab.engine.train import Nodes
from graphrelu.lab.models.backbones import NORMS
from graphrelu.lab.record.recipes import modern
from tests.lab.engine.test_train import CPU, assert_alone_as_together, batch_of, blocks
from tests.lab.graph_sets import rings_and_paths


def labelled(task: str) -> Graph:
    """The graph of blocks, with other labels: of values, mean and spread are far from 0 and 1."""
    graph = blocks(nodes_per_class=20)
    if task == "values":
        y = 1_000 + 50 * (graph.x[:, :10].sum(dim=1) + graph.y).double()
        return replace(graph, y=y, num_classes=1)
    y = torch.stack([graph.y > 0, graph.y == 1, graph.y < 2, graph.x[:, 0] > 0], dim=1).float()
    y[::7] = -1
    return replace(graph, y=y, num_classes=4)


@pytest.mark.parametrize(
    ("task", "metric"),
    [("labels", "rocauc"), ("labels", "f1"), ("values", "mae"), ("values", "r2")],
)
def test_alone_as_in_a_batch(task: str, metric: str) -> None:
    graph = labelled(task)
    settings = {"metric": metric, "hidden": 8, "epochs": 12, "patience": 4, "dtype": "float64"}
    config = modern("blocks", "sage", "grelu", layers=2, **settings)
    assert_alone_as_together(batch_of(config, graph, [5]), batch_of(config, graph, [3, 5, 0]))


def graphs_with_values() -> GraphSet:
    graphs = rings_and_paths(60)
    return replace(graphs, y=300 + graphs.node_ptr.diff().double() ** 2, num_classes=1)


@pytest.mark.parametrize("norm", [None, *NORMS])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gin"])
def test_deep_networks_on_sets_of_graphs(backbone: str, norm: str | None) -> None:
    """Alone as in a batch, with dropout in every layer and other padding beside other runs."""
    graphs = graphs_with_values()
    settings = {"hidden": 4, "epochs": 3, "dtype": "float64", "metric": "mae", "norm": norm}
    config = modern("rings", backbone, "grelu", layers=2, split="folds", **settings)
    alone, together = (
        FoldBatch(config, graphs, collect(config, graphs, CPU), seeds, CPU)
        for seeds in ([7], [4, 18, 7, 12])
    )
    assert_alone_as_together(alone, together)


def test_values_are_learned() -> None:
    """Of rings and of paths: far better than by their median, in the values' own units."""
    graphs = rings_and_paths()
    graphs = replace(graphs, y=300 + 20 * graphs.y.double(), num_classes=1)
    settings = {"norm": "batch", "hidden": 16, "epochs": 24, "lr": 0.05, "dropout": 0.0}
    config = modern("rings", "gin", "relu", layers=2, split="folds", metric="mae", **settings)
    _, (result,) = FoldBatch.trained(config, graphs, collect(config, graphs, CPU), [0], CPU)
    assert -20 / 3 / 2 < result.score < 0
    assert set(result.curves) == {"train_loss", "val_loss"}


def test_the_units_are_those_of_the_training_nodes() -> None:
    """Other values on the test nodes change the test score, and nothing else."""
    graph = labelled("values")
    split = make_split(graph, 0, "full")
    y = graph.y.clone()
    y[split.test] = 1e6
    config = modern(
        "blocks", "gcn", "relu", layers=2, hidden=8, epochs=5, split="full", metric="mae"
    )
    plain, other = (batch_of(config, replace(graph, y=labels), [0]) for labels in (graph.y, y))
    assert plain.train.units is not None
    mean, std = plain.train.units
    assert float(mean) == pytest.approx(float(graph.y[split.train].mean()))
    assert float(std) == pytest.approx(float(graph.y[split.train].std(correction=0)))
    for batch in (plain, other):
        batch.run()
    (first,), (second,) = plain.results(0.0), other.results(0.0)
    assert (first.val_score, first.best_epoch) == (second.val_score, second.best_epoch)
    assert second.score < -9e5


def test_losses_by_hand() -> None:
    """Two runs of two nodes and one; what is padding counts nothing."""
    index = [torch.tensor([0, 1]), torch.tensor([2])]
    y = torch.tensor([10.0, 30.0, 70.0]).double()
    values = Nodes.stack(index, y, CPU, "values")
    values = replace(values, units=values.own_units())
    assert values.units is not None
    assert [unit.view(-1).tolist() for unit in values.units] == [[20, 70], [10, 1]]
    logits = torch.tensor([[[-1.0], [2.0], [9.0]], [[9.0], [9.0], [0.5]]]).double()
    assert values.loss(values.chosen(logits)).tolist() == [
        0.5,
        0.5,
    ]  # |-1 + 1| and |2 - 1|; |0.5 - 0|
    assert values.score(values.chosen(logits), "mae").tolist() == [-5.0, -0.5]
    labels = Nodes.stack(index, torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), CPU, "labels")
    loss = labels.loss(torch.zeros(2, 2, 2).double())
    torch.testing.assert_close(loss, torch.full((2,), 2.0).log().double(), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("task", ["labels", "values"])
def test_splits_without_classes(task: str) -> None:
    graph = labelled(task)
    known = 60 if task == "values" else 51
    for how, shares in (("random", (0.48, 0.32)), ("full", (0.6, 0.2))):
        split = make_split(graph, 3, how)
        assert (len(split.train), len(split.val)) == tuple(round(s * known) for s in shares)
        assert len(split.train) + len(split.val) + len(split.test) == known
        assert bool((graph.strata[split.test] == 0).all())
        assert split.note.endswith("% of the labelled nodes, at random")
    with pytest.raises(DataError, match=r"^The split published is one of classes; choose "):
        make_split(graph, 0, "published")


def test_folds_without_classes() -> None:
    graphs = graphs_with_values()
    tested = torch.cat([fold_split(graphs.strata, seed, "folds").test for seed in range(10)])
    assert tested.sort().values.tolist() == list(range(60))
