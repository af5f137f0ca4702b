"""The user's own model: trained as it should be, on whatever it is for, and compared as usual."""

from __future__ import annotations

import html
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GAE, GCN, GCNConv, Linear, global_mean_pool
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import subgraph, to_undirected

from graphrelu.lab import compare, own_model
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.own_model import ModelComparison
from graphrelu.lab.stats import Decision, Splits, over_relu

TWO = ["relu", "grelu"]
PARTS = ("train_mask", "val_mask", "test_mask")


class Net(torch.nn.Module):
    """Two convolutions, with the activation given or, without one, a function."""

    def __init__(self, act: Callable[[int], torch.nn.Module] | None = None, out: int = 2) -> None:
        super().__init__()
        self.first, self.last = GCNConv(4, 8), GCNConv(8, out)
        self.act = act(8) if act else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index)
        return self.last(self.act(x, edge_index) if self.act else x.relu(), edge_index)


class Pooled(Net):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_mean_pool(super().forward(x, edge_index), batch)


@pytest.fixture
def graph() -> Data:
    """Two groups of twenty nodes that are told apart by a noisy feature."""
    y = torch.arange(40) % 2
    pairs = torch.randint(20, (2, 100)) * 2 + torch.randint(2, (100,))
    masks = torch.randperm(40) % 4
    return Data(
        x=torch.randn(40, 4) + y.view(-1, 1),
        edge_index=to_undirected(pairs, num_nodes=40),
        y=y,
        train_mask=masks < 2,
        val_mask=masks == 2,
        test_mask=masks == 3,
    )


def quick(model: Any, data: Any, *args: Any, **kwargs: Any) -> ModelComparison:
    return compare(model, data, *args, **{"runs": 2, "epochs": 3, "device": "cpu", **kwargs})


def lead(found: ModelComparison) -> Decision:
    """GReLU's over ReLU, the last row."""
    decision = found.rows[-1].over_relu
    assert decision is not None
    return decision


def own_sampler(graph: Data) -> list[Data]:
    """Each half of the nodes, with the edges between them."""
    batches = []
    for nodes in torch.arange(graph.num_nodes).split(graph.num_nodes // 2):
        edges, _ = subgraph(nodes, graph.edge_index, relabel_nodes=True, num_nodes=40)
        own = {name: graph[name][nodes] for name in ("x", "y", *PARTS)}
        batches.append(Data(edge_index=edges, **own))
    return batches


class Sampler:
    def __init__(self, graph: Data) -> None:
        self.graph = graph

    def __iter__(self) -> Iterator[Data]:
        return iter(own_sampler(self.graph))


def graphs(values: Callable[[Tensor], Tensor]) -> list[Data]:
    edges = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    inputs = torch.randn(60, 3, 4) + torch.randn(60, 1, 1)
    return [Data(x=x, edge_index=edges, y=values(x.mean()).view(1)) for x in inputs]


def valued(graph: Data) -> Data:
    graph.y = graph.x.sum(dim=1)
    return graph


# A model, its data made from the graph, activations, epochs, and the least score.
LEARNED: dict[str, tuple[Any, Callable[[Data], Any], list[str] | None, int, float]] = {
    "a function": (Net, lambda graph: graph, None, 30, 60),
    "GCN": (lambda act: GCN(4, 8, 2, 2, act=act(8)), lambda graph: graph, None, 30, 60),
    "values of nodes": (lambda act: Net(act, 1), valued, ["relu"], 200, 20),
    "a model": (Net(), lambda graph: graph, None, 30, 60),
    "GCN, a model": (GCN(4, 8, 3, 2), lambda graph: graph, None, 30, 60),
    "lazy GCN, a model": (GCN(-1, 8, 2, 2), lambda graph: graph, None, 30, 60),
    "own batches": (Net, own_sampler, TWO, 30, 50),
    "own loader, a model": (Net(), Sampler, None, 30, 50),
    "three parts": (Net, lambda graph: (Sampler(graph), graph, [graph]), TWO, 30, 50),
    "graphs": (lambda act: Pooled(act, 1), lambda _: graphs(lambda mean: mean), TWO, 60, 50),
    "graphs, a model": (Pooled(), lambda _: graphs(lambda mean: (mean > 0).long()), None, 30, 50),
}


@pytest.mark.parametrize("case", LEARNED)
def test_it_learns(case: str, graph: Data) -> None:
    model, data, names, epochs, least = LEARNED[case]
    is_model = isinstance(model, torch.nn.Module)
    known = [p for p in model.parameters() if not is_lazy(p)] if is_model else []
    before = [p.clone() for p in known]
    found = quick(model, data(graph), names, epochs=epochs)
    usual = TWO if is_model else ["relu", "prelu", "gelu", "grelu"]
    assert [row.activation for row in found.rows] == (names or usual)
    assert all(least < row.mean <= 100 and row.n == 2 and not row.diverged for row in found.rows)
    assert "part_mask" not in graph  # the data is the user's
    if is_model:  # and so is the model
        assert all(map(torch.equal, before, known))
        assert found.verdict.startswith("Whether GReLU is better than your model here is undecided")
        assert "difference to your model" in repr(found)


def test_each_seed_takes_one_of_several_masks(graph: Data) -> None:
    for part in PARTS:
        graph[part] = torch.stack([graph[part], graph[part].roll(1)], dim=1)
    seen = []

    def evaluate(model: torch.nn.Module, batches: Any) -> float:
        seen.extend(batch.part_mask for batch in batches)
        return 0.5

    quick(Net, graph, ["relu"], runs=3, epochs=1, evaluate=evaluate)
    expected = [graph[part][:, seed % 2] for seed in range(3) for part in PARTS[1:]]
    assert all(map(torch.equal, seen, expected))
    assert len(seen) == len(expected)


@pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")),
    reason="neither pyg-lib nor torch-sparse is installed",
)
def test_neighbor_loader(graph: Data) -> None:
    loaders = tuple(NeighborLoader(graph, [5, 5], graph[part], batch_size=8) for part in PARTS)
    assert quick(Net, loaders, epochs=30).rows[0].mean > 50


def test_only_the_first_nodes_of_a_neighbor_loader_count(graph: Data) -> None:
    """The labels of the others, which no classes have, are not looked at."""
    for part in PARTS:
        graph[part] = torch.ones(40, dtype=torch.bool)
    graph.batch_size, graph.y = 8, torch.where(torch.arange(40) < 8, graph.y, 99)
    assert quick(Net, graph, ["relu"], epochs=30).rows[0].mean > 50


def groups() -> Data:
    """Ten groups of eight nodes, in which most pairs are linked."""
    pairs = torch.combinations(torch.arange(80))
    pairs = pairs[(pairs[:, 0] // 8 == pairs[:, 1] // 8) & (torch.rand(len(pairs)) < 0.8)]
    return Data(x=torch.randn(80, 4), edge_index=to_undirected(pairs.t().contiguous()))


@pytest.mark.parametrize("negatives", [True, False])
@pytest.mark.parametrize(
    "model", [GAE(Net(out=8)), lambda act: GAE(Net(act, 8)), lambda act: Net(act, 8)]
)
def test_links(model: Any, negatives: bool) -> None:
    data = groups()
    split = RandomLinkSplit(is_undirected=True, add_negative_train_samples=negatives)
    names = None if isinstance(model, GAE) else TWO
    found = quick(model, lambda seed: split(data), names, epochs=60)
    assert all(row.mean > 65 for row in found.rows)
    assert found.rows[0].std > 0  # each seed has a split of its own


def lazy_net(act: Any) -> torch.nn.Module:
    """The activation draws weights of its own before another layer is made."""
    net = Net(act)
    net.last = torch.nn.Sequential(act(8), Linear(-1, 2))
    net.forward = lambda x, edge_index: net.last[1](net.first(x, edge_index))
    return net


@pytest.mark.parametrize(
    ("model", "names"), [(lazy_net, list(ACTIVATIONS)), (Net(), None)], ids=["built", "converted"]
)
def test_same_initial_weights(model: Any, names: Any, graph: Data) -> None:
    states: list[dict[str, Tensor]] = []

    def train(own: torch.nn.Module, batches: Any, optimizer: Any) -> float:
        states.append({name: value.clone() for name, value in own.state_dict().items()})
        return 1.0

    quick(model, graph, names, epochs=1, train=train)
    half = len(states) // 2
    for first, *others in (states[:half], states[half:]):
        assert len(first) == 4  # two layers
        for other in others:
            assert all(torch.equal(other[name], value) for name, value in first.items())
    assert len(states[half - 1]) > 4
    assert not torch.equal(states[0]["first.lin.weight"], states[-1]["first.lin.weight"])


class Dropped(Pooled):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return super().forward(torch.dropout(x, 0.5, self.training), edge_index, batch)


def losses_of(model: Any, data: Any, **options: Any) -> list[float]:
    """Of all epochs of all activations of all seeds."""
    losses: list[float] = []

    def train(own: torch.nn.Module, batches: Any, optimizer: Any) -> float:
        losses.append(own_model._train(own, batches, optimizer))
        return losses[-1]

    quick(model, data, train=train, **options)
    return losses


@pytest.mark.parametrize("model", [lambda act: Dropped(act, 1), Dropped(out=1)])
def test_same_dropout_and_batches(model: Any) -> None:
    """GReLU starts as ReLU, and hardly learns here: the losses are ReLU's."""
    names = None if isinstance(model, torch.nn.Module) else TWO
    losses = losses_of(model, graphs(lambda mean: mean), activations=names, lr=1e-12)
    assert len(set(losses)) >= 6  # of two seeds and three epochs
    for first in (0, 6):
        assert losses[first : first + 3] == pytest.approx(losses[first + 3 : first + 6], rel=1e-6)


def test_same_statistics_as_the_command_line(graph: Data) -> None:
    scores: dict[str, list[float]] = {}

    def evaluate(model: torch.nn.Module, batches: Any) -> float:
        (batch,) = batches
        right = model(batch.x, batch.edge_index).argmax(dim=1) == batch.y
        score = float(right[batch.part_mask].float().mean())
        if torch.equal(batch.part_mask, batch.test_mask):
            scores.setdefault(type(model.act).__name__, []).append(score)
        return score

    found = quick(Net, graph, runs=8, epochs=2, evaluate=evaluate)
    by_seed = {name.lower(): dict(enumerate(own)) for name, own in scores.items()}
    leads = over_relu(by_seed, Splits(0.5, 0.5, 10, 1))
    assert {row.activation: row.over_relu for row in found.rows[1:]} == leads
    assert lead(found).about == "over seeds of one split; nothing is said about other splits"
    assert list(found.table.index) == ["relu", "prelu", "gelu", "grelu"]
    of_grelu = found.table.loc["grelu"]
    assert of_grelu["over_relu_difference"] == leads["grelu"].difference
    assert of_grelu["over_relu_outcome"] == leads["grelu"].outcome


def test_the_best_validation_epoch_gives_the_test_score(graph: Data) -> None:
    """And the test part is looked at once for each run."""
    seen: list[str] = []
    val_scores = iter([0.1, 0.7, float("nan"), 0.7, 0.3])

    def train(model: torch.nn.Module, batches: Any, optimizer: Any) -> float:
        with torch.no_grad():
            model.last.bias += 1
        return 1.0

    def evaluate(model: torch.nn.Module, batches: Any) -> float:
        (batch,) = batches
        seen.append("val" if torch.equal(batch.part_mask, graph.val_mask) else "test")
        return next(val_scores) if seen[-1] == "val" else float(model.last.bias[0]) / 10

    (row,) = quick(Net, graph, ["relu"], runs=1, epochs=5, train=train, evaluate=evaluate).rows
    assert seen == ["val"] * 5 + ["test"]
    assert row.mean == pytest.approx(20)  # the second epoch's, first of the best


def test_test_labels_change_no_training(graph: Data) -> None:
    before = losses_of(Net, graph)
    graph.y = torch.where(graph.test_mask, 1 - graph.y, graph.y)
    assert losses_of(Net, graph) == before
    assert len(before) == 4 * 2 * 3


def test_what_comes_back(graph: Data) -> None:
    found = quick(Net, graph, TWO)
    assert found.verdict in repr(found)
    assert "<table" in found._repr_html_()
    assert html.escape(found.verdict) in found._repr_html_()
    assert list(found.shown.columns[:3]) == ["mean", "std", "runs"]
    assert found.table["price_parameters"]["grelu"] > found.table["price_parameters"]["relu"] > 0
    assert found.table["price_seconds_per_epoch"].min() > 0
    assert "s per epoch" in repr(found)
    assert "test loss" not in repr(found)


def test_margin_and_looks(graph: Data) -> None:
    """Two runs decide nothing; six with a margin that no score can leave are alike."""
    few, many = (quick(Net, graph, TWO, runs=n, epochs=1, margin=1e3) for n in (2, 6))
    assert (lead(few).margin, lead(few).outcome) == (1e3, "undecided")
    assert lead(many).outcome == "no difference"
    assert few.verdict.endswith("; 10 seeds give an interval. Continue with runs=10, look=2.")
    third = lead(quick(Net, graph, TWO, runs=6, epochs=2, look=3))
    assert (third.look, third.error) == (3, pytest.approx(0.05 / 12))


@pytest.mark.parametrize(
    ("parts", "count", "share"),
    [
        (lambda graphs: graphs, None, 0.8),  # drawn for each seed
        (lambda graphs: (graphs[:16], graphs[16:18], graphs[18:]), 1, 0.8),
        (lambda graphs: lambda seed: (graphs[:16], graphs[16:18], graphs[18:]), None, 0.8),
        (lambda graphs: lambda seed: tuple((g for g in graphs) for _ in PARTS), None, 0.0),
    ],
    ids=["list", "tuple", "function", "not countable"],
)
def test_what_the_splits_share(parts: Any, count: int | None, share: float) -> None:
    data = parts(graphs(lambda mean: mean)[:20])
    found = own_model._splits(*own_model._sources(data, 0))
    assert (found.count, found.share) == (count, share)


def test_a_graph_without_masks_is_split_for_each_seed(graph: Data) -> None:
    for part in PARTS:
        del graph[part]
    seen: list[Data] = []

    def train(model: torch.nn.Module, batches: Any, optimizer: Any) -> float:
        seen.extend(batches)
        return 1.0

    found = quick(Net, graph, TWO, epochs=1, train=train)
    assert [int(batch.part_mask.sum()) for batch in seen] == [24] * 4
    assert torch.equal(seen[0].part_mask, seen[1].part_mask)
    assert not torch.equal(seen[0].part_mask, seen[2].part_mask)
    assert lead(found).about.startswith("over other data like this")
    assert "train_mask" not in graph


def test_progress_on_a_terminal(
    graph: Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(Net, graph, TWO, epochs=1)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    quick(Net, graph, TWO, epochs=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert "GReLU, seed 1" in err
    assert "/4" in err


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "activation": ({"activations": ["relu", "grul"]}, ValueError, "There is no activation 'grul'"),
    "a string": ({"activations": "relu"}, TypeError, "activations must be a list of names"),
    "none": ({"activations": []}, TypeError, "activations must be a list of names"),
    "margin": (
        {"margin": -1.0},
        ValueError,
        "margin must be a finite number of at least 0, not -1.0.",
    ),
    "a margin's type": ({"margin": "1"}, TypeError, "margin must be a number, got '1'."),
    "runs": ({"runs": 0}, ValueError, "runs must be at least 1, got 0."),
    "epochs": ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0."),
    "no model": ({"model": 3}, TypeError, "model must be a module or a function, got int."),
    "no module": ({"model": lambda act: 3}, TypeError, "model must return a torch.nn.Module"),
    "a class without act": (
        {"model": torch.nn.Flatten},
        TypeError,
        "model must take an argument act",
    ),
    "without act": ({"model": lambda act: Net()}, ValueError, "model must make its activations"),
    "layers": (
        {"model": lambda act: Net(act, 3 if act is ACTIVATIONS["prelu"] else 2)},
        ValueError,
        "model must build the same layers for every activation, unlike prelu.",
    ),
    "both": ({"model": Net(), "activations": ["relu"]}, ValueError, "activations must be left out"),
    "no masks": ({"data": groups()}, ValueError, "data must be a graph or batches with"),
    "parts": ({"data": (1, 2)}, ValueError, "data must have three parts if it is a tuple, got 2."),
    "no data": ({"data": 3}, ValueError, "data must be a graph or batches with"),
    "generator": ({"data": (iter([]),) * 3}, TypeError, "data must be graphs, or batches that"),
    "empty": ({"data": ([], [], [])}, ValueError, "data must have something to train on"),
    "no labels": ({"data": (groups(),) * 3}, ValueError, "data must have labels y, or"),
    "no Data": ({"data": ([1], [1], [1])}, TypeError, "data must hold PyG Data if"),
    "columns": ({"model": lambda act: Net(act, 1)}, ValueError, "model must return a column for"),
    "rows": ({"model": Pooled}, ValueError, "model must return a row for each of the 40 labels"),
    "finite": ({"evaluate": lambda *_: float("nan")}, ValueError, "evaluate must return a finite"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, graph: Data) -> None:
    changed, kind, message = BAD[case]
    if case == "rows":
        graph.batch = torch.zeros(40, dtype=torch.long)
    arguments = {"model": Net, "data": graph, **changed}
    with pytest.raises(kind) as raised:
        quick(**arguments)
    assert str(raised.value).startswith(message)
    assert str(raised.value).endswith(".")


def test_float_classes_are_no_values(graph: Data) -> None:
    graph.y = graph.y.float()
    with pytest.raises(ValueError, match="evaluate must be given for labels"):
        quick(lambda act: Net(act, 1), graph)
    with pytest.raises(ValueError, match="model must return a number for each label"):
        quick(Net, graph)


def test_a_model_that_cannot_be_reset(graph: Data) -> None:
    model = Net()
    model.scale = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"model must have reset_parameters .* got a Net without"):
        quick(model, graph)
