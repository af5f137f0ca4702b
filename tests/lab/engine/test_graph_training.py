"""A run on a set of graphs: its batches, loss, scores, schedule, and that it can be resumed."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, roc_auc_score

from graphrelu.lab.engine.graph_training import (
    DeviceGraphs,
    GraphRun,
    Targets,
    Training,
    learning_rate,
    score,
)
from graphrelu.lab.models.graph_networks import Network
from tests.lab.molecule_sets import ring_set

CPU = torch.device("cpu")
RUN = GraphRun("rings", Network("gcn", 2, 8, dropout=0.2), "relu", "ap", epochs=4, batch_size=4)


def training_of(run: GraphRun = RUN, values: bool = False) -> Training:
    graphs = ring_set(values=values)
    return Training(run, graphs, DeviceGraphs(graphs, CPU, run.network.walks))


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
@pytest.mark.parametrize("conv", ["gcn", "gine", "gat", "sage", "bond"])
def test_padding_changes_nothing(conv: str, activation: str) -> None:
    more = {
        "feed_forward": conv == "bond",
        "walks": 3,
        "walk_width": 4,
        "virtual_node": conv != "gat",
    }
    run = replace(RUN, network=Network(conv, 2, 8, **more), activation=activation)
    training = training_of(run)
    data, size = training.data, RUN.batch_size
    orders = [training.order(epoch) for epoch in range(4)]
    shape = data.common_shape(orders, size)
    for parameter in training.model.parameters():  # away from ReLU
        torch.nn.init.normal_(parameter, std=0.5)
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
        training = training_of(replace(RUN, activation=activation))
        training.train()
    assert seen["relu"] == seen["grelu"]
    steps = 3 + 2  # of training, and two evaluations of 10 graphs
    epochs = seen["relu"][:3], seen["relu"][steps : steps + 3]
    first, second = ([graph for batch in epoch for graph in batch] for epoch in epochs)
    assert sorted(first) == sorted(second) == training.parts[0].tolist()
    assert first != second


@pytest.mark.parametrize("metric", ["ap", "rocauc"])
def test_rank_scores_are_those_of_scikit_learn(metric: str) -> None:
    ours = torch.randn(60, 5).mul(4).round() / 4  # with ties
    y = torch.randint(0, 2, (60, 5)).float()
    y[torch.rand(60, 5) < 0.2] = math.nan
    y[:, 4] = 1.0  # one class
    theirs = {"ap": average_precision_score, "rocauc": roc_auc_score}[metric]
    known = [~y[:, t].isnan() for t in range(4)]
    each = [theirs(y[k, t].numpy(), ours[k, t].numpy()) for t, k in enumerate(known)]
    assert float(score(metric, ours, y)) == pytest.approx(sum(each) / 4)


def test_errors_and_accuracy() -> None:
    out = torch.tensor([[1.0, -2.0], [3.0, 4.0], [0.5, 9.0]])
    y = torch.tensor([[0.0, 0.0], [1.0, 1.0], [math.nan, 0.0]])
    assert float(score("mae", out, y)) == pytest.approx((1.5 + 14 / 3) / 2)
    rmse = (math.sqrt(2.5) + math.sqrt((4 + 9 + 81) / 3)) / 2
    assert float(score("rmse", out, y)) == pytest.approx(rmse)
    assert float(score("accuracy", out, y)) == pytest.approx((1 / 2 + 2 / 3) / 2)


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
    graphs = ring_set(values=True)
    graphs = replace(graphs, y=100 + 7 * graphs.y)
    train = torch.arange(15)
    targets = Targets(graphs, train, CPU)
    own = graphs.y[train]
    out = (graphs.y - own.mean()) / own.std(correction=0)
    assert float(targets.loss(out, torch.arange(30))) == pytest.approx(0.0, abs=1e-4)
    far = targets.score("mae", out + 1, torch.arange(30))
    assert float(far) == pytest.approx(float(own.std(correction=0)), rel=1e-4)


def test_classes() -> None:
    graphs = replace(ring_set(), y=torch.arange(30).view(-1, 1) % 3)
    targets = Targets(graphs, torch.arange(10), CPU)
    index, out = torch.tensor([0, 4, 8, 9]), torch.randn(4, 3)
    label = torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(targets.loss(out, index), F.cross_entropy(out, label))
    right = (out.argmax(dim=1) == label).double().mean()
    torch.testing.assert_close(targets.score("accuracy", out, index), right)
    area = roc_auc_score(label, out.softmax(dim=1), multi_class="ovr")
    assert float(targets.score("rocauc", out, index)) == pytest.approx(area)
    run = replace(RUN, metric="accuracy", epochs=2)
    training = Training(run, graphs, DeviceGraphs(graphs, CPU))
    assert training.train()


def test_learning_rates() -> None:
    run = replace(RUN, epochs=25, warmup=5, lr=2.0, min_lr=0.5)
    assert [learning_rate(run, e) for e in (0, 1, 4)] == [2e-6, 0.4, 1.6]
    assert learning_rate(run, 5) == 2.0
    assert learning_rate(run, 15) == pytest.approx(1.25)
    assert learning_rate(run, 24) > 0.5


def test_a_run_learns_and_reports_its_best_epoch() -> None:
    training = training_of(replace(RUN, epochs=30, lr=0.01))
    assert training.train()
    result = training.result()
    loss, val, test = (result["curves"][name] for name in ("train_loss", "val", "test"))
    assert loss[-1] < 0.7 * loss[0]
    assert result["best_epoch"] == val.index(max(val))
    assert result["score"] == pytest.approx(test[result["best_epoch"]], abs=1e-4)
    assert result["steps"] == 30 * 3
    assert GraphRun.from_dict(result["run"]) == training.run


def test_the_best_epoch_of_an_error_is_the_lowest() -> None:
    training = training_of(replace(RUN, metric="mae"), values=True)
    training.curves = {"train_loss": [1.0] * 3, "val": [math.nan, 0.2, 0.3], "test": [0.0, 0.1, 5]}
    training.epoch = 3
    result = training.result()
    assert (result["best_epoch"], result["score"]) == (1, 0.1)
    assert result["curves"]["val"] == [None, 0.2, 0.3]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run = replace(RUN, activation="grelu")
    whole = training_of(run)
    whole.train()
    first = training_of(run)
    assert not first.train(until=0.0)  # an epoch, and time is up
    assert first.epoch == 1
    first.save(tmp_path / "state.pt")
    torch.manual_seed(5)
    second = training_of(run)
    second.resume(tmp_path / "state.pt")
    assert second.train()
    assert second.curves == whole.curves


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"metric": "auc"}, "metric must be one of mae, rmse, rocauc, ap, accuracy, not 'auc'."),
        ({"epochs": 0}, "epochs must be 1 or more, not 0."),
    ],
)
def test_bad_runs_get_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}"):
        replace(RUN, **change)
    with pytest.raises(ValueError, match=r"^A run has no field 'epoch'\.$"):
        GraphRun.from_dict({**RUN.to_dict(), "epoch": 3})
