"""A run's result depends on its own configuration and seed, not on the runs beside it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import PreparedCells
from graphrelu.lab.engine.timing import undone
from graphrelu.lab.engine.train import Nodes, SeedBatch, build, train_nodes
from graphrelu.lab.errors import Terminated, terminable
from graphrelu.lab.models.backbones import DEEP_BACKBONES
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, modern, recipe
from graphrelu.lab.record.results import Result
from tests.lab.stock import by_pyg

CPU = torch.device("cpu")


def blocks(seed: int = 0, nodes_per_class: int = 16, name: str = "blocks") -> Graph:
    """Three classes, denser inside than between, with sparse features that hint at the class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(3).repeat_interleave(nodes_per_class)
    same = y.view(-1, 1) == y.view(1, -1)
    chance = torch.where(same, 0.3, 0.03)
    upper = (torch.rand(chance.shape, generator=generator) < chance).triu(1)
    edge_index = (upper | upper.t()).nonzero().t().contiguous()
    hint = F.one_hot(y, 3).float().repeat_interleave(10, dim=1)
    x = (torch.rand(len(y), 30, generator=generator) < 0.03 + 0.1 * hint).float()
    return Graph(name, x, edge_index, None, y)


def batch_of(config: Config, graph: Graph, seeds: list[int]) -> SeedBatch:
    inputs = PreparedCells({graph.name: graph}, None, CPU).inputs_of(config)
    return SeedBatch(config, graph, inputs, seeds, CPU)


def results_of(config: Config, graph: Graph, seeds: list[int]) -> list[Result]:
    batch = batch_of(config, graph, seeds)
    batch.run()
    return batch.results(0.0)


def cell(backbone: str, activation: str, graph: str = "blocks", **overrides: Any) -> Config:
    return recipe(graph, backbone, activation, **{"hidden": 4, **overrides})


def deep_cell(backbone: str, activation: str, graph: str = "blocks", **overrides: Any) -> Config:
    settings = {"layers": 3, "hidden": 8, "epochs": 30, "lr": 0.01, "dtype": "float64"}
    return modern(graph, backbone, activation, **settings | overrides)


def test_seconds_are_those_of_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what comes before the first epoch, as the compilation of kernels on a GPU."""
    now, stepper = [0.0], SeedBatch.stepper

    def slow_to_prepare(batch: SeedBatch) -> Callable[[], None]:
        now[0] += 1000.0
        advance = stepper(batch)

        def one_epoch() -> None:
            now[0] += 1.0
            advance()

        return one_epoch

    monkeypatch.setattr(SeedBatch, "stepper", slow_to_prepare)
    monkeypatch.setattr("graphrelu.lab.engine.train.time.perf_counter", lambda: now[0])
    config, graph = cell("gcn", "relu", epochs=6, patience=0), blocks()
    inputs = PreparedCells({graph.name: graph}, None, CPU).inputs_of(config)
    _, results = train_nodes(config, graph, inputs, [0, 1, 2], CPU)
    assert [result.seconds for result in results] == [2.0] * 3


@pytest.mark.usefixtures("own_signals")
def test_a_signal_waits_for_the_end_of_vmap() -> None:
    """An exception between vmap's own bookkeeping would be followed by an error of torch's."""
    batch, passed = batch_of(cell("gcn", "relu"), blocks(), [0, 1]), []
    hooks = [
        batch.skeleton.register_forward_pre_hook(lambda *_: signal.raise_signal(signal.SIGTERM)),
        batch.skeleton.register_forward_hook(lambda *_: passed.append("forward pass")),
    ]
    with pytest.raises(Terminated), terminable():
        batch.descend()
    assert passed == ["forward pass"]
    for hook in hooks:
        hook.remove()
    assert batch.descend().isfinite().all()


@pytest.mark.parametrize("backbone", BACKBONES)
def test_only_the_activation_differs(backbone: str) -> None:
    """Split, seed, budget, and the first parameters of all but the activation are the same."""
    first, *others = (batch_of(cell(backbone, name), blocks(), [5, 6]) for name in ACTIVATIONS)
    for other in others:
        assert torch.equal(other.train.index, first.train.index)
        assert torch.equal(other.test.index, first.test.index)
        own = {n: v for n, v in other.state.items() if not n.startswith("acts.")}
        assert own.keys() == first.state.keys()
        assert all(torch.equal(own[name], value) for name, value in first.state.items())
        changed = {"activation": first.config.activation, "activation_options": {}}
        assert {**other.config.to_dict(), **changed} == first.config.to_dict()
    drawn = others[-1].state["acts.0.node_mlp.weight"]
    assert not torch.equal(*drawn)


def assert_alone_as_together(
    alone: SeedBatch, together: SeedBatch, tolerance: float = 1e-8
) -> None:
    """Trains both; the run of the first batch comes out as in the second one."""
    row = together.seeds.index(alone.seeds[0])
    for batch in (alone, together):
        batch.run()
    # A batch goes on until its last run has stopped.
    kinds = ("best",) if alone.config.patience else ("best", "state")
    for kind in kinds:
        for name, value in getattr(alone, kind).items():
            beside = getattr(together, kind)[name][row]
            torch.testing.assert_close(beside, value[0], rtol=tolerance, atol=tolerance)
    (first,), second = alone.results(0.0), together.results(0.0)[row]
    fields = ("best_epoch", "score", "val_score", "train_loss", "val_loss", "test_loss")
    for field in (*fields, "calibration_error", "parameters", "note"):
        expected = pytest.approx(getattr(second, field), abs=tolerance, nan_ok=True)
        assert getattr(first, field) == expected, field


def masked() -> Graph:
    """With two splits, of different sizes."""
    masks, order = torch.zeros(3, 48, 2, dtype=torch.bool), torch.arange(48) * 11 % 48
    for part, (start, end) in enumerate(((0, 12), (12, 24), (24, 48))):
        masks[part, order[start:end], 0] = True
        masks[part, order.flip(0)[start : end - part], 1] = True
    graph = blocks(name="masked")
    return replace(graph, train_mask=masks[0], val_mask=masks[1], test_mask=masks[2])


def labelled(task: str) -> Graph:
    """With other labels: of values, mean and spread are far from 0 and 1."""
    graph = blocks(nodes_per_class=20, name=task)
    if task == "values":
        y = 1_000 + 50 * (graph.x[:, :10].sum(dim=1) + graph.y).double()
        return replace(graph, y=y)
    y = torch.stack([graph.y > 0, graph.y == 1, graph.y < 2, graph.x[:, 0] > 0], dim=1).float()
    y[::7] = -1
    return replace(graph, y=y)


GRAPHS = {graph.name: graph for graph in (blocks(), masked(), *map(labelled, ("labels", "values")))}
# Rounding grows with the steps, so each precision has its own horizon.
CELLS = [
    *(cell(*names, epochs=5, patience=0) for names in product(BACKBONES, ("relu", "grelu"))),
    *(
        cell(*names, epochs=25, patience=0, dtype="float64")
        for names in (*product(BACKBONES, ("prelu", "grelu")), *product(["gcn"], ACTIVATIONS))
    ),
    *(
        deep_cell(name, "grelu", norm=norm, epochs=12)
        for name, norm in product(DEEP_BACKBONES, ("layer", "batch"))
    ),
    *(
        deep_cell("gcn", "relu", "masked", split="masks", metric=metric, patience=4)
        for metric in ("accuracy", "f1", "rocauc")
    ),
    *(
        deep_cell("sage", "grelu", task, metric=metric, epochs=12, patience=4)
        for task, metrics in (("labels", ("rocauc", "f1")), ("values", ("mae", "r2")))
        for metric in metrics
    ),
    recipe("blocks", "sgc", "none", epochs=10, dtype="float64"),
]


@pytest.mark.parametrize("config", CELLS, ids=lambda config: f"{config.title} {config.metric}")
def test_alone_as_in_a_batch(config: Config) -> None:
    """Dropout on."""
    graph = GRAPHS[config.dataset]
    alone, together = (batch_of(config, graph, seeds) for seeds in ([42], [4, 23, 42]))
    assert_alone_as_together(alone, together, 1e-5 if config.dtype == "float32" else 1e-8)


def test_what_is_kept_of_a_run() -> None:
    config = cell("gcn", "relu", "masked", split="masks", epochs=20, lr=0.05)
    results = results_of(config, masked(), [0, 1])
    for seed, result in enumerate(results):
        assert 0 <= result.score <= 1
        assert result.note == f"the graph's own masks, split {seed + 1} of 2"
        assert 0 < result.calibration_error < 1
        # Two convolutions with biases, from 30 features over 4 hidden units to 3 classes.
        assert result.parameters == 30 * 4 + 4 + 4 * 3 + 3
        assert result.peak_memory is None  # a CPU has none


def follow(batch: SeedBatch, predict: Callable[[Tensor, int], None]) -> None:
    """Trains without learning; ``predict`` fills in the logits ``[R, N, classes]`` of an epoch."""

    def logits(state: dict[str, Tensor], training: bool) -> Tensor:
        out = torch.zeros(2, 48, 3, dtype=torch.double, requires_grad=training)
        if training:
            return out * 1
        predict(out, int(batch.step))
        return out

    batch.logits, batch.update = logits, lambda loss: None  # type: ignore[assignment,method-assign]
    batch.run()


@pytest.mark.parametrize(("patience", "ran"), [(0, 6), (2, 5), (3, 6)])
def test_the_best_epoch_by_score(patience: int, ran: int) -> None:
    """The first of the highest validation scores; of two runs, each has its own."""
    batch = batch_of(deep_cell("gcn", "relu", epochs=6, patience=patience), blocks(), [0, 1])
    right = [[1, 3, 5, 5, 2, 5], [9, 1, 1, 1, 1, 1]]  # of the validation nodes, by epoch

    def predict(out: Tensor, epoch: int) -> None:
        for run in range(2):
            count = right[run][epoch]
            nodes, y = batch.val.index[run], batch.val.label[run]
            out[run, nodes[:count], y[:count]] = 1.0 + epoch
            out[run, nodes[count:], (y[count:] + 1) % 3] = 1.0 + epoch  # the loss grows

    follow(batch, predict)
    assert batch.best_epoch.tolist() == [3, 1]
    assert batch.epochs_run.tolist() == [ran, 6 if patience == 0 else 1 + patience]
    width = len(batch.splits[0].val)
    assert (-batch.best_value * width).tolist() == pytest.approx([5, 9])


@pytest.mark.parametrize(("progress", "ran"), [("score", [3, 3]), ("either", [6, 3])])
def test_a_lower_loss_is_progress_if_it_counts(progress: str, ran: list[int]) -> None:
    """The score rests in both runs; the loss of the first falls up to the fourth epoch, that of the
    second is not finite."""
    config = deep_cell("gcn", "relu", epochs=9, patience=2, progress=progress)
    batch = batch_of(config, blocks(), [0, 1])

    def predict(out: Tensor, epoch: int) -> None:
        out.scatter_(2, batch.graph.y.expand(2, -1).unsqueeze(2), float(min(epoch, 3)) + 1)
        if epoch > 0:
            out[1] = torch.nan

    follow(batch, predict)
    assert batch.best_epoch.tolist() == [1, 1]
    assert batch.epochs_run.tolist() == ran


def test_results_by_score() -> None:
    config = deep_cell("gcn", "prelu", metric="rocauc", epochs=20)
    batch = batch_of(config, blocks(), [0, 1])
    batch.run()
    for row, result in enumerate(batch.results(0.0)):
        assert result.val_score == pytest.approx(-float(batch.best_value[row]))
        val_loss = batch.val.loss(batch.outputs()["val"])
        assert result.val_loss == pytest.approx(float(val_loss[row]))


def test_against_a_plain_loop() -> None:
    """The whole protocol once more, with a stock PyG model and optimiser."""
    graph, seed = blocks(), 3
    config = cell("gcn", "prelu", dtype="float64", epochs=60, patience=5, lr=0.05)
    (result,) = results_of(config, graph, [seed])

    model = build(config, graph, seed)
    split, y = make_split(graph, seed), graph.y
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    x, edge_index = graph.x.double(), graph.edge_index
    best, history, epochs_run = (float("inf"), 0.0, 0), [], 0
    for epoch in range(1, config.epochs + 1):
        model.train()
        optimizer.zero_grad()
        with SeededDropout(torch.tensor(seed), torch.tensor(epoch - 1)):
            out = by_pyg(model, x, edge_index)
        F.cross_entropy(out[split.train], y[split.train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = by_pyg(model, x, edge_index)
        val_loss = float(F.cross_entropy(out[split.val], y[split.val]))
        epochs_run = epoch
        if val_loss < best[0]:
            accuracy = (out[split.test].argmax(dim=1) == y[split.test]).double().mean()
            best = (val_loss, float(accuracy), epoch)
        history.append(val_loss)
        if epoch > config.epochs // 2 and val_loss > sum(history[-6:-1]) / 5:
            break
    assert isinstance(model.convs[0], GCNConv)
    assert result.val_loss == pytest.approx(best[0], abs=1e-9)
    assert result.score == best[1]
    assert (result.best_epoch, result.epochs_run) == (best[2], epochs_run)


def test_test_nodes_choose_nothing() -> None:
    """With other labels on the test nodes everything but the test score stays as it was."""
    graph = blocks()
    config = cell("gcn", "grelu", epochs=30, lr=0.05)
    split = make_split(graph, 1)
    y = graph.y.clone()
    y[split.test] = (y[split.test] + 1) % 3
    batches = [batch_of(config, g, [1]) for g in (graph, replace(graph, y=y))]
    for batch in batches:
        # The split depends on the labels: hold it, and the labels of all other nodes, fixed.
        batch.splits = [split]
        for name in ("train", "val", "test"):
            nodes = type(batch.train).stack([getattr(split, name)], batch.graph.y, CPU)
            setattr(batch, name, nodes)
        batch.run()
    for name, value in batches[0].best.items():
        assert torch.equal(value, batches[1].best[name])
    first, second = (batch.results(0.0)[0] for batch in batches)
    assert first.best_epoch == second.best_epoch
    assert first.score != second.score


def test_what_precedes_a_capture_leaves_no_trace() -> None:
    graph, config = blocks(), cell("sage", "grelu", epochs=8)
    plain, warmed = batch_of(config, graph, [1, 2]), batch_of(config, graph, [1, 2])
    with undone(warmed.changed):
        warmed.epoch()
        warmed.epoch()
    for batch in (plain, warmed):
        batch.run()
    for a, b in zip(plain.results(0.0), warmed.results(0.0), strict=True):
        assert (a.score, a.val_loss, a.curves) == (b.score, b.val_loss, b.curves)


def test_the_units_are_those_of_the_training_nodes() -> None:
    """Other values on the test nodes change the test score, and nothing else."""
    graph = labelled("values")
    split = make_split(graph, 0, "full")
    y = graph.y.clone()
    y[split.test] = 1e6
    config = deep_cell("gcn", "relu", "values", epochs=5, split="full", metric="mae")
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
