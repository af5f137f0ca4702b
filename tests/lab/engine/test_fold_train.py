"""A fold's result depends on its configuration and seed alone, and is that of a plain loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.folds import fold_split, steps_per_epoch, training_order
from graphrelu.lab.engine import fold_train
from graphrelu.lab.engine.fold_train import FoldBatch, build_graph_model, collect, train_folds
from graphrelu.lab.engine.train import Nodes
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import graph_cell
from tests.lab.engine.test_train import CPU, assert_alone_as_together
from tests.lab.graph_sets import rings_and_paths


def cell(backbone: str = "gin", activation: str = "grelu", **overrides: Any) -> Config:
    settings = {"epochs": 3, "dtype": "float64", **overrides}
    return graph_cell("rings", backbone, activation, hidden=4, layers=2, **settings)


def batch_of(config: Config, graphs: GraphSet, seeds: list[int]) -> FoldBatch:
    return FoldBatch(config, graphs, collect(config, graphs, CPU), seeds, CPU)


@pytest.fixture
def own_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer steps of the GIN paper's; each fold chooses an epoch by itself, so that one fold can be
    trained alone."""
    monkeypatch.setattr(fold_train, "GIN_STEPS", 3)
    monkeypatch.setattr(
        fold_train, "_same_assignment", lambda config, seeds: torch.eye(len(seeds)).double()
    )


@pytest.mark.usefixtures("own_epochs")
@pytest.mark.parametrize(("split", "steps"), [("folds", 2), ("gin_paper", 3)])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gin"])
def test_alone_as_in_a_batch(backbone: str, split: str, steps: int) -> None:
    """Dropout on, and other padding beside other runs; running statistics included."""
    graphs, seeds = rings_and_paths(), [4, 18, 7, 12]
    config = cell(backbone, epochs=5, split=split)
    together, alone = batch_of(config, graphs, seeds), batch_of(config, graphs, [7])
    assert together.capacity.nodes > alone.capacity.nodes
    assert together.steps == steps
    assert_alone_as_together(alone, together, 1e-6 if split == "gin_paper" else 1e-8)


def test_features_are_scaled() -> None:
    graphs = rings_and_paths()
    plain, scaled = (collect(cell(feature_scale=scale), graphs, CPU) for scale in (1, 0.5))
    assert bool(plain.x.any())
    assert torch.equal(scaled.x, 0.5 * plain.x)


def chosen(graphs: GraphSet, index: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Some graphs in the order given, in PyG's form."""
    nodes = [torch.arange(graphs.node_ptr[i], graphs.node_ptr[i + 1]) for i in index.tolist()]
    place = torch.full((graphs.num_nodes,), -1)
    place[torch.cat(nodes)] = torch.arange(sum(map(len, nodes)))
    edge_index = place[graphs.edge_index]
    batch = torch.repeat_interleave(torch.tensor([len(part) for part in nodes]))
    inside = edge_index[0] >= 0
    return graphs.x[torch.cat(nodes)].double(), edge_index[:, inside], batch, len(nodes)


@pytest.mark.usefixtures("own_epochs")
@pytest.mark.parametrize("how", ["folds", "gin_paper"])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gin"])
def test_against_a_plain_loop(backbone: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole protocol once more, mini-batch by mini-batch with PyG's convolutions."""
    monkeypatch.setattr(fold_train, "HALVE_EVERY", 2)
    graphs, seed = rings_and_paths(), 13
    config = cell(backbone, "prelu", epochs=5, lr=0.05, split=how)
    (result,) = train_folds(config, graphs, collect(config, graphs, CPU), [seed], CPU)[1]

    model = build_graph_model(config, graphs, seed)
    split, y = fold_split(graphs.y, seed, how), graphs.y
    if how == "folds":
        order = training_order(split, seed, 5, steps_per_epoch(y, how), graphs.num_graphs)
    else:
        order = training_order(split, seed, 5 * 3, 1, graphs.num_graphs, 32).view(5, 3, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    best = (float("inf"), 0.0, 0.0, 0)
    number = 0
    for epoch in range(1, config.epochs + 1):
        model.train()
        for graphs_of_step in order[epoch - 1]:
            index = graphs_of_step[graphs_of_step < graphs.num_graphs]
            optimizer.zero_grad()
            with SeededDropout(torch.tensor(seed), torch.tensor(number)):
                out = model(*chosen(graphs, index))
            F.cross_entropy(out, y[index]).backward()
            optimizer.step()
            number += 1
        scheduler.step()
        model.eval()
        with torch.no_grad():
            val = model(*chosen(graphs, split.val))
            test = model(*chosen(graphs, split.test))
        val_loss = float(F.cross_entropy(val, y[split.val]))
        accuracy = float((test.argmax(dim=1) == y[split.test]).double().mean())
        value = val_loss if how == "folds" else -accuracy
        if value < best[0] - 1e-12:
            best = (value, val_loss, accuracy, epoch)
    assert result.val_loss == pytest.approx(best[1], abs=1e-8)
    assert (result.score, result.best_epoch) == pytest.approx(best[2:])
    assert result.epochs_run == config.epochs


def test_gin_protocol() -> None:
    """One epoch for the ten folds of an assignment: that of their highest mean accuracy."""
    graphs = rings_and_paths()
    config = cell("gin", "relu", split="gin_folds", epochs=24, lr=0.05)
    results = train_folds(config, graphs, collect(config, graphs, CPU), range(20), CPU)[1]
    for part in (results[:10], results[10:]):
        curves = torch.tensor([result.curves["val_accuracy"] for result in part])
        assert curves.shape == (10, 24)  # in full
        mean = curves.double().mean(dim=0)
        (epoch,) = {result.best_epoch for result in part}
        assert mean[epoch - 1] == pytest.approx(float(mean.max()))
        scores = torch.tensor([result.score for result in part])
        torch.testing.assert_close(scores, curves[:, epoch - 1], rtol=1e-3, atol=1e-3)
        assert all(result.score == result.val_score for result in part)
        assert scores.mean() > 0.9  # there is something to learn, and it was learned
    with pytest.raises(ValueError, match="so runs must be a multiple of 10"):
        batch_of(config, graphs, [0, 1, 2])


def test_the_gin_papers_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """17,500 mini-batches of 32 graphs, 350 epochs with a rate that is halved every 50."""
    monkeypatch.setattr(fold_train, "_same_assignment", lambda config, seeds: torch.ones(1, 1))
    batch = batch_of(
        graph_cell("rings", "gin", "relu", 4, split="gin_paper"), rings_and_paths(60), [0]
    )
    assert batch.order.shape == (350 * 50, 1, 32)
    assert batch.parts() == [(batch.descend, 50), (batch.look, 1)]
    expected = [0.01 * 0.5 ** (epoch // 50) for epoch in (0, 49, 50, 349)]
    assert batch.rates[[0, 49, 50, 349]].tolist() == pytest.approx(expected)


def test_test_graphs_choose_nothing() -> None:
    """With other labels on the test graphs everything but the test score stays as it was."""
    graphs, config = rings_and_paths(), cell("gin", "grelu", epochs=6, lr=0.05)
    split = fold_split(graphs.y, 1, "folds")
    y = graphs.y.clone()
    y[split.test] = 1 - y[split.test]
    first, second = (batch_of(config, g, [1]) for g in (graphs, replace(graphs, y=y)))
    # The folds depend on the labels: hold them, and the order of training, fixed.
    second.splits, second.order, second.capacity = first.splits, first.order, first.capacity
    second.train, second.val, second.gathered = first.train, first.val, first.gathered
    second.test = Nodes.stack([split.test], y, CPU)
    for batch in (first, second):
        batch.run()
    for name, value in first.best.items():
        assert torch.equal(value, second.best[name])
    assert first.results(0.0)[0].score == pytest.approx(1 - second.results(0.0)[0].score)


def test_restart_in_place() -> None:
    """What precedes a capture on a GPU leaves no trace."""
    graphs, config = rings_and_paths(), cell()
    plain, warmed = batch_of(config, graphs, [1, 2]), batch_of(config, graphs, [1, 2])
    for part, _ in warmed.parts():
        part()
        part()
    warmed.restart()
    for batch in (plain, warmed):
        batch.run()
    for a, b in zip(plain.results(0.0), warmed.results(0.0), strict=True):
        assert (a.score, a.val_loss, a.curves) == (b.score, b.val_loss, b.curves)


def test_every_activation_gets_the_same() -> None:
    """Folds, order, seed and budget: only the activation differs."""
    graphs = rings_and_paths()
    first, *others = (batch_of(cell("gin", name), graphs, [5, 6]) for name in ("relu", "grelu"))
    for other in others:
        assert torch.equal(other.order, first.order)
        assert torch.equal(other.test.index, first.test.index)
        name = "convs.0.nn.first.weight"
        assert torch.equal(other.parameters[name], first.parameters[name])
