"""A run on a set of graphs: its batches, loss, scores and schedule, and the folds' protocols."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from graphrelu.lab import engine
from graphrelu.lab.engine.graph_training import (
    DeviceGraphs,
    Schedule,
    Targets,
    Training,
    network_of,
    schedule_of,
)
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import graph_cell, on_sets
from graphrelu.lab.record.results import Result
from tests.lab.molecule_sets import ring_set

CPU = torch.device("cpu")


def config_of(backbone: str = "gcn", activation: str = "relu", **changes: Any) -> Config:
    settings = {"hidden": 8, "epochs": 4, "layers": 2, "dropout": 0.2, "metric": "ap"} | changes
    return on_sets(
        "rings",
        backbone,
        activation,
        split="column",
        training_options={"batch_size": 4},
        **settings,
    )


def training_of(config: Config, values: bool = False) -> Training:
    graphs = ring_set(values=values)
    return Training(config, graphs, DeviceGraphs(graphs, CPU, network_of(config).walks), 0)


def trained(config: Config, seeds: int = 1, values: bool = False) -> list[Result]:
    graphs = {"rings": ring_set(values=values)}
    return engine.run([config], range(seeds), None, graphs=graphs, device="cpu")


def test_a_batch_holds_its_graphs_in_order() -> None:
    graphs = ring_set()
    data = DeviceGraphs(graphs, CPU)
    order = torch.tensor([7, 2, 11, 5])
    ((index, shape),) = data.batches(order, 4)
    batch = data.gather(index, shape)
    nodes = graphs.nodes.kind.split(graphs.node_count.tolist())
    edges = graphs.edge_index.split(graphs.edge_count.tolist(), dim=1)
    kinds = graphs.edges.kind.split(graphs.edge_count.tolist())
    first = 0
    expected = []
    for graph in order.tolist():
        ends = (edges[graph] + first).t().tolist()
        expected += sorted(
            (*end, kind) for end, kind in zip(ends, kinds[graph].tolist(), strict=True)
        )
        first += len(nodes[graph])
    assert torch.equal(batch.nodes, torch.cat([nodes[graph] for graph in order]))
    assert torch.cat([batch.edge_index, batch.edges.view(1, -1)]).t().tolist() == list(
        map(list, expected)
    )
    assert torch.equal(batch.batch, torch.arange(4).repeat_interleave(graphs.node_count[order]))
    assert torch.equal(batch.edge_index[0].bincount().cumsum(0), batch.rowptr[1:].long())


@pytest.mark.parametrize("activation", ["relu", "grelu", "digraf"])
@pytest.mark.parametrize("conv", ["gcn", "gine", "gin", "gat", "sage", "bond"])
def test_padding_changes_nothing(conv: str, activation: str) -> None:
    more = {
        "feed_forward": conv == "bond",
        "walks": 3,
        "walk_width": 4,
        "virtual_node": conv != "gat",
    }
    training = training_of(config_of(conv, activation, dropout=0.0, **more))
    data, size = training.data, 4
    orders = [training.order(epoch) for epoch in range(4)]
    shape = data.common_shape(orders, size)
    for parameter in training.model.parameters():  # away from ReLU
        torch.nn.init.normal_(parameter, std=0.3)
    start = copy.deepcopy(training.model.state_dict())
    found = []
    (index, exact), padded = data.batches(orders[0], size)[-1], data.padded(orders[0], size)[-1]
    assert len(index) < size  # the last one is filled up with empty graphs
    for own, own_shape in ((index, exact), (padded, shape)):
        training.model.load_state_dict(start)
        training.model.train()
        training.model.zero_grad()
        batch = data.gather(own, own_shape, training.settings)
        out = training.model(batch)
        training.targets.loss(out, own).backward()
        grads = [parameter.grad for parameter in training.model.parameters()]
        state = {k: v for k, v in training.model.state_dict().items() if "tracked" not in k}
        found.append([out[: len(index)], *grads, *state.values()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("activation", ["grelu", "digraf"])
def test_activations_see_the_graphs_of_their_batch(activation: str) -> None:
    """What is prepared for all batches is what the activation prepares of one."""
    training = training_of(config_of("gcn", activation))
    for parameter in training.model.parameters():  # away from ReLU
        torch.nn.init.normal_(parameter, std=0.3)
    ((index, shape),) = training.data.batches(torch.tensor([7, 2, 11, 5]), 4)
    batch, model = training.data.gather(index, shape, training.settings), training.model.eval()
    torch.testing.assert_close(model(batch), model(batch._replace(diffusion=None)))


def test_batches_depend_on_seed_and_epoch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[list[int]]] = {}
    gather = DeviceGraphs.gather
    for activation in ("relu", "grelu"):
        orders = seen.setdefault(activation, [])

        def spy(
            self: DeviceGraphs, index: torch.Tensor, *more: Any, to: list[list[int]] = orders
        ) -> object:
            to.append(index.tolist())
            return gather(self, index, *more)

        monkeypatch.setattr(DeviceGraphs, "gather", spy)
        training = training_of(config_of(activation=activation))
        training.train()
    assert seen["relu"] == seen["grelu"]
    steps = 3 + 2  # of training, and two evaluations of 10 graphs
    epochs = seen["relu"][:3], seen["relu"][steps : steps + 3]
    first, second = ([graph for batch in epoch for graph in batch] for epoch in epochs)
    assert sorted(first) == sorted(second) == training.parts[0].tolist()
    assert first != second


def test_unknown_targets_have_no_loss() -> None:
    graphs = ring_set(targets=2)
    y = graphs.y.clone()
    y[3, 1] = math.nan
    targets = Targets(replace(graphs, y=y), torch.arange(10), CPU)
    out = torch.randn(3, 2)
    index = torch.tensor([3, 4, 5])
    known = torch.tensor([[True, False], [True, True], [True, True]])
    expected = F.binary_cross_entropy_with_logits(out[known], y[index][known])
    torch.testing.assert_close(targets.loss(out, index), expected)


def test_values_are_learned_in_the_units_of_the_training_graphs() -> None:
    """And a diverged run has the score of their mean."""
    graphs, train, index = ring_set(values=True), torch.arange(15), torch.arange(30)
    graphs = replace(graphs, y=100 + 7 * graphs.y)
    targets, own = Targets(graphs, train, CPU), graphs.y[train]
    out = (graphs.y - own.mean()) / own.std(correction=0)
    assert float(targets.loss(out, index)) == pytest.approx(0.0, abs=1e-4)
    far = targets.score("mae", out + 1, index)
    assert float(far) == pytest.approx(-float(own.std(correction=0)), rel=1e-4)
    lost = targets.score("mae", torch.full((30, 1), torch.nan), index)
    assert float(lost) == pytest.approx(-float((graphs.y - own.mean()).abs().mean()), rel=1e-4)


def test_classes() -> None:
    graphs = replace(ring_set(), y=torch.arange(30).view(-1, 1) // 3 % 3)
    targets = Targets(graphs, torch.arange(10), CPU)
    index, out = torch.tensor([0, 4, 8, 9]), torch.randn(4, 3)
    label = graphs.y[index].view(-1)
    torch.testing.assert_close(targets.loss(out, index), F.cross_entropy(out, label))
    area = roc_auc_score(label, out.softmax(dim=1), multi_class="ovr")
    assert float(targets.score("rocauc", out, index)) == pytest.approx(area)
    config = config_of(metric="accuracy", epochs=2)
    (result,) = engine.run([config], [0], None, graphs={"rings": graphs}, device="cpu")
    assert result.parameters is not None


def test_learning_rates() -> None:
    cosine = Schedule(warmup=5, min_lr=0.5)
    assert [cosine.rate(2.0, e, 25) for e in (0, 1, 4, 5)] == [2e-6, 0.4, 1.6, 2.0]
    assert cosine.rate(2.0, 15, 25) == pytest.approx(1.25)
    assert cosine.rate(2.0, 24, 25) > 0.5
    halved = schedule_of(graph_cell("mutag", "gin", "relu"))
    assert [halved.rate(0.01, e, 120) for e in (0, 49, 50, 100)] == [0.01, 0.01, 0.005, 0.0025]
    assert halved.batch_size == 128


def test_a_run_learns_and_reports_its_best_epoch() -> None:
    training = training_of(config_of(epochs=30, lr=0.01))
    epochs: list[int] = []
    training.train(epochs.append)
    result = training.result()
    loss, val, test = (training.curves[name] for name in ("train_loss", "val", "test"))
    assert epochs == list(range(1, 31))
    assert loss[-1] < 0.7 * loss[0]
    assert result.best_epoch == val.index(max(val)) + 1
    assert (result.score, result.val_score) == (test[result.best_epoch - 1], max(val))
    assert (result.steps, result.epochs_run, result.diverged) == (30 * 3, 30, False)
    assert result.curves["val"] == [round(value, 4) for value in val]
    assert result.note == "the split that comes with the set"


def test_alone_as_with_others() -> None:
    """What comes out depends on configuration and seed alone."""
    config = config_of("gine", "grelu", dropout=0.5)
    alone = engine.run([config], [2], None, graphs={"rings": ring_set()}, device="cpu")[0]
    together = trained(config, 3)[2]
    assert replace(alone, seconds=0.0, date="") == replace(together, seconds=0.0, date="")


@pytest.mark.parametrize(
    ("backbone", "pooling", "norm"),
    [("gcn", "mean", None), ("sage", "max", None), ("gin", "sum", "batch")],
)
def test_the_papers_networks(backbone: str, pooling: str, norm: str | None) -> None:
    network = network_of(graph_cell("mutag", backbone, "relu", 16, 2))
    assert (network.conv, network.layers, network.hidden, network.dropout) == (backbone, 2, 16, 0.5)
    assert (network.pooling, network.norm, network.head_layers) == (pooling, norm, 1)
    assert not network.residual
    config = graph_cell("rings", backbone, "grelu", 4, 2, epochs=2)
    model = training_of(config).model
    assert not hasattr(model.node_encoder, "weight") or model.node_encoder.weight is None
    rates = {type(m).__name__: m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {"Dropout": 0.5}  # the last, of the head
    assert model.layers[0].dropout.p == 0.0


def test_the_papers_folds_choose_by_loss() -> None:
    config = graph_cell("rings", "gin", "relu", 4, 1, epochs=6, metric="accuracy")
    for result in trained(config, 10):
        assert result.best_epoch == 1 + min(range(6), key=result.curves["val_loss"].__getitem__)


def test_the_gin_papers_protocol_is_only_read() -> None:
    with pytest.raises(ValueError, match=r"GIN paper's protocol \(gin_folds\) are only read\.$"):
        trained(graph_cell("rings", "gin", "relu", 4, 1, split="gin_folds"))
