"""The user's own model: trained as it should be, on whatever it is for, and compared as usual."""

from __future__ import annotations

import html
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GAE, GCN, GCNConv, Linear, global_mean_pool
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import subgraph, to_undirected

from graphrelu.lab import TensorBoard, WandB, compare, own_model
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.own_model import ModelComparison
from graphrelu.lab.render.loggers import Epoch
from graphrelu.lab.stats import Splits, over_relu

CPU = torch.device("cpu")
TWO = ["relu", "grelu"]


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


@pytest.mark.parametrize("build", [Net, lambda act: GCN(4, 8, 2, 2, act=act(8))])
def test_nodes_with_a_function_that_builds(build: Any, graph: Data) -> None:
    found = quick(build, graph, epochs=30)
    assert [row.activation for row in found.rows] == ["relu", "prelu", "gelu", "grelu"]
    assert all(row.mean > 60 and row.n == 2 and not row.diverged for row in found.rows)
    assert "part_mask" not in graph  # the data is the user's


@pytest.mark.parametrize("model", [Net(), GCN(4, 8, 2, 2), GCN(-1, 8, 2, 2), GCN(4, 8, 3, 2)])
def test_nodes_with_a_model(model: torch.nn.Module, graph: Data) -> None:
    before = {name: p.clone() for name, p in model.named_parameters() if not is_lazy(p)}
    found = quick(model, graph, epochs=30)
    assert [row.activation for row in found.rows] == ["relu", "grelu"]
    assert found.rows[0].mean > 60
    assert found.verdict.startswith("Whether GReLU is better than your model here is undecided")
    assert "difference to your model" in repr(found)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_values_of_nodes(graph: Data) -> None:
    graph.y = graph.x.sum(dim=1)
    (row,) = quick(lambda act: Net(act, 1), graph, ["relu"], epochs=200).rows
    assert 20 < row.mean <= 100


def test_several_masks(graph: Data) -> None:
    for part in ("train_mask", "val_mask", "test_mask"):
        graph[part] = torch.stack([graph[part], graph[part].roll(1)], dim=1)
    for seed in range(4):
        (batch,) = own_model._parts(own_model._sources(graph, seed), seed, CPU).val
        assert torch.equal(batch.part_mask, graph.val_mask[:, seed % 2])


def own_sampler(graph: Data) -> list[Data]:
    """Each half of the nodes, with the edges between them."""
    batches = []
    for nodes in torch.arange(graph.num_nodes).split(graph.num_nodes // 2):
        edges, _ = subgraph(nodes, graph.edge_index, relabel_nodes=True, num_nodes=40)
        names = ("x", "y", "train_mask", "val_mask", "test_mask")
        batches.append(Data(edge_index=edges, **{name: graph[name][nodes] for name in names}))
    return batches


class Sampler:
    def __init__(self, graph: Data) -> None:
        self.graph = graph

    def __iter__(self) -> Iterator[Data]:
        return iter(own_sampler(self.graph))


@pytest.mark.parametrize("sampler", [own_sampler, Sampler, lambda g: (Sampler(g), g, [g])])
def test_own_sampler(sampler: Any, graph: Data) -> None:
    assert all(row.mean > 50 for row in quick(Net, sampler(graph), TWO, epochs=30).rows)
    assert all(row.mean > 50 for row in quick(Net(), sampler(graph), epochs=30).rows)


@pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")),
    reason="neither pyg-lib nor torch-sparse is installed",
)
def test_neighbor_loader(graph: Data) -> None:
    loaders = tuple(
        NeighborLoader(graph, [5, 5], graph[f"{part}_mask"], batch_size=8)
        for part in ("train", "val", "test")
    )
    assert quick(Net, loaders, epochs=30).rows[0].mean > 50


def test_only_the_first_nodes_of_a_neighbor_loader_count(graph: Data) -> None:
    graph.batch_size = 8
    (batch,) = own_model._parts(own_model._sources(graph, 0), 0, CPU).train
    _, prediction, target = own_model._predicted(Net(), batch)
    assert len(prediction) == len(target) == int(graph.train_mask[:8].sum())


def ring_of_groups() -> Data:
    """Ten groups of eight nodes, in which most pairs are linked."""
    pairs = torch.combinations(torch.arange(80))
    pairs = pairs[(pairs[:, 0] // 8 == pairs[:, 1] // 8) & (torch.rand(len(pairs)) < 0.8)]
    edges = to_undirected(pairs.t().contiguous())
    return Data(x=torch.randn(80, 4), edge_index=edges)


@pytest.mark.parametrize("negatives", [True, False])
@pytest.mark.parametrize(
    "model", [GAE(Net(out=8)), lambda act: GAE(Net(act, 8)), lambda act: Net(act, 8)]
)
def test_links(model: Any, negatives: bool) -> None:
    data = ring_of_groups()
    split = RandomLinkSplit(is_undirected=True, add_negative_train_samples=negatives)
    names = None if isinstance(model, GAE) else TWO
    found = quick(model, lambda seed: split(data), names, epochs=60)
    assert all(row.mean > 65 for row in found.rows)
    assert found.rows[0].std > 0  # each seed has a split of its own


def graphs(values: Callable[[Tensor], Tensor]) -> list[Data]:
    edges = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    inputs = torch.randn(60, 3, 4) + torch.randn(60, 1, 1)
    return [Data(x=x, edge_index=edges, y=values(x.mean()).view(1)) for x in inputs]


def test_values_of_graphs() -> None:
    found = quick(lambda act: Pooled(act, 1), graphs(lambda mean: mean), TWO, epochs=60)
    assert all(50 < row.mean <= 100 for row in found.rows)


def test_classes_of_graphs_in_loaders() -> None:
    data = graphs(lambda mean: (mean > 0).long())
    parts = own_model._parts(own_model._sources(data, 0), 0, CPU)
    assert [sum(batch.num_graphs for batch in part) for part in parts] == [48, 6, 6]
    found = quick(Pooled(), tuple(part.source for part in parts), epochs=30)
    assert found.rows[0].mean > 60


def output_sum(graph: Data) -> Callable[[torch.nn.Module], float]:
    """What gives the parameters of a lazy layer their shapes."""
    return torch.no_grad()(lambda model: float(model(graph.x, graph.edge_index).sum()))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_same_initial_weights(name: str, graph: Data) -> None:
    """Also where the activation draws weights of its own before other layers are made."""

    def build(act: Any) -> torch.nn.Module:
        net = Net(act)
        net.last = torch.nn.Sequential(act(8), Linear(-1, 2))
        net.forward = lambda x, edge_index: net.last[1](net.first(x, edge_index))
        return net

    example = output_sum(graph)
    own, relu = (own_model._built(build, each, 3, CPU, example) for each in (name, "relu"))
    state = relu.state_dict()
    assert sorted(state) == ["first.bias", "first.lin.weight", "last.1.bias", "last.1.weight"]
    assert all(torch.equal(own.state_dict()[key], value) for key, value in state.items())
    other = own_model._built(build, name, 4, CPU, example).state_dict()
    assert not torch.equal(other["first.lin.weight"], state["first.lin.weight"])


def test_same_initial_weights_of_a_conversion(graph: Data) -> None:
    example = output_sum(graph)
    relu, grelu = (own_model._converted(Net(), n, 3, CPU, example) for n in ("relu", "grelu"))
    state = grelu.state_dict()
    assert any("grelus" in name for name in state)
    assert all(torch.equal(state[name], value) for name, value in relu.state_dict().items())


class Dropped(Pooled):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return super().forward(torch.dropout(x, 0.5, self.training), edge_index, batch)


@pytest.mark.parametrize("model", [lambda act: Dropped(act, 1), Dropped(out=1)])
def test_same_dropout_and_batches(model: Any) -> None:
    """GReLU starts as ReLU, and hardly learns here: the losses are ReLU's."""
    told: list[Epoch] = []
    quick(model, graphs(lambda mean: mean), lr=1e-12, callbacks=[told.append])
    relu, grelu = ([t.loss for t in told if t.activation == name] for name in ("relu", "grelu"))
    assert relu == pytest.approx(grelu, rel=1e-6)
    assert len(set(relu)) == 6  # of two seeds and three epochs


def test_same_statistics_as_the_command_line(graph: Data) -> None:
    scores: dict[str, list[float]] = {}

    def evaluate(model: torch.nn.Module, batches: Any) -> float:
        (batch,) = batches
        score = own_model._evaluate(model, batches)
        if torch.equal(batch.part_mask, batch.test_mask):
            scores.setdefault(type(model.act).__name__, []).append(score)
        return score

    found = quick(Net, graph, runs=8, epochs=2, evaluate=evaluate)
    by_seed = {name.lower(): dict(enumerate(own)) for name, own in scores.items()}
    leads = over_relu(by_seed, own_model._splits(own_model._sources(graph, 0), graph))
    assert list(leads) == ["prelu", "gelu", "grelu"]
    assert {row.activation: row.over_relu for row in found.rows[1:]} == leads
    lead = leads["grelu"]
    of_grelu = found.table.loc["grelu"]
    assert of_grelu["over_relu_difference"] == pytest.approx(lead.difference, abs=1e-4)
    assert of_grelu["over_relu_low"] == pytest.approx(lead.low, rel=1e-4)
    assert of_grelu["over_relu_outcome"] == lead.outcome


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
    told: list[Epoch] = []
    quick(Net, graph, callbacks=[told.append])
    graph.y = torch.where(graph.test_mask, 1 - graph.y, graph.y)
    again: list[Epoch] = []
    quick(Net, graph, callbacks=[again.append])
    assert told == again
    assert (told[0][:4], len(told)) == (("relu", 0, 1, 3), 4 * 2 * 3)


def test_what_comes_back(graph: Data) -> None:
    found = quick(Net, graph, TWO)
    assert list(found.table.index) == ["relu", "grelu"]
    assert found.verdict in repr(found)
    assert "<table" in found._repr_html_()
    assert html.escape(found.verdict) in found.to_html()
    assert found.to_latex().startswith(r"\begin{tabular}")
    assert found.to_csv().startswith("activation,mean,std,best,n,over_relu_difference")
    assert found.table["price_parameters"]["grelu"] > found.table["price_parameters"]["relu"] > 0
    assert found.table["price_seconds_per_epoch"].min() > 0
    assert "s per epoch" in repr(found)
    assert "test loss" not in repr(found)


def test_the_margin(graph: Data) -> None:
    """Two runs decide nothing; six with a margin that no score can leave are alike."""
    few, many = (quick(Net, graph, TWO, runs=n, epochs=1, margin=1e3).rows[1] for n in (2, 6))
    assert few.over_relu.margin == 1e3  # type: ignore[union-attr]
    assert few.over_relu.outcome == "undecided"  # type: ignore[union-attr]
    assert many.over_relu.outcome == "no difference"  # type: ignore[union-attr]


def test_the_verdict_says_how_to_go_on(graph: Data) -> None:
    found = quick(Net, graph, TWO, runs=2, epochs=1)
    assert found.verdict.endswith("; 10 seeds give an interval. Go on with runs=10, look=2.")
    third = quick(Net, graph, TWO, runs=6, epochs=2, look=3).rows[1].over_relu
    assert (third.look, third.error) == (3, pytest.approx(0.05 / 12))  # type: ignore[union-attr]


def test_what_the_splits_share(graph: Data) -> None:
    def splits(data: Any) -> Splits:
        return own_model._splits(own_model._sources(data, 0), data)

    one = splits(graph)
    assert (one.count, one.num_test) == (1, int(graph.test_mask.sum()))
    assert one.about(2) == "over seeds of one split; nothing is said about other splits"
    graphs = [graph.clone() for _ in range(20)]
    for part in ("train", "val", "test"):
        for one_graph in graphs:
            del one_graph[f"{part}_mask"]
    assert splits(graphs) == Splits(share=0.8, ratio=2 / 16, num_test=2)  # drawn for each seed
    assert splits(graphs).overlap
    assert splits((graphs[:16], graphs[16:18], graphs[18:])).count == 1
    assert splits(lambda seed: (graphs[:16], graphs[16:18], graphs[18:])).count is None
    links = RandomLinkSplit(is_undirected=True)
    drawn = splits(lambda seed: links(graphs[0]))
    assert (drawn.count, drawn.overlap) == (None, True)
    assert splits(lambda seed: iter_of(graph)) == Splits()  # which nobody can count


def iter_of(graph: Data) -> tuple[Any, ...]:
    """Three parts whose sizes are not known."""
    return tuple((graph for _ in range(2)) for _ in range(3))


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "activation": ({"activations": ["relu", "grul"]}, ValueError, "There is no activation 'grul'"),
    "a string": ({"activations": "relu"}, TypeError, "activations must be a list of names"),
    "none": ({"activations": []}, TypeError, "activations must be a list of names"),
    "margin": ({"margin": -1.0}, ValueError, "margin must be a finite number from 0, not -1.0."),
    "a margin's type": ({"margin": "1"}, TypeError, "margin must be a number, got '1'."),
    "runs": ({"runs": 0}, ValueError, "runs must be at least 1, got 0."),
    "epochs": ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0."),
    "no model": ({"model": 3}, TypeError, "model must be a module or a function, got int."),
    "no module": ({"model": lambda act: 3}, TypeError, "model must return a torch.nn.Module"),
    "without act": ({"model": lambda act: Net()}, ValueError, "model must build its activations"),
    "layers": (
        {"model": lambda act: Net(act, 3 if act is ACTIVATIONS["prelu"] else 2)},
        ValueError,
        "model must build the same layers for every activation, unlike prelu.",
    ),
    "both": ({"model": Net(), "activations": ["relu"]}, ValueError, "activations must be left out"),
    "no masks": ({"data": ring_of_groups()}, ValueError, "data must be a graph or batches with"),
    "parts": ({"data": (1, 2)}, ValueError, "data must have three parts if it is a tuple, got 2."),
    "no data": ({"data": 3}, ValueError, "data must be a graph or batches with"),
    "generator": ({"data": (iter([]),) * 3}, TypeError, "data must be graphs, or batches that"),
    "empty": ({"data": ([], [], [])}, ValueError, "data must have something to train on"),
    "no labels": ({"data": (ring_of_groups(),) * 3}, ValueError, "data must have labels y, or"),
    "no Data": ({"data": ([1], [1], [1])}, TypeError, "data must be of PyG's Data where"),
    "columns": ({"model": lambda act: Net(act, 1)}, ValueError, "model must give a column for"),
    "rows": ({"model": Pooled}, ValueError, "model must give a row for each of the 40 labels"),
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
    with pytest.raises(ValueError, match="model must give a number for each label"):
        quick(Net, graph)


def test_a_model_that_cannot_be_reset(graph: Data) -> None:
    model = Net()
    model.scale = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"model must have reset_parameters .* got a Net without"):
        quick(model, graph)


def test_loggers(graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, init = Mock(), Mock()
    fake = SimpleNamespace(SummaryWriter=board)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    told: list[Epoch] = []
    callbacks = [TensorBoard(tmp_path), WandB(project="p", mode="offline"), told.append]
    quick(Net, graph, ["grelu"], runs=1, epochs=2, callbacks=callbacks)
    logged = [{name: getattr(now, name) for name in ("loss", "val_score")} for now in told]
    assert board.mock_calls == [
        call(str(tmp_path / "grelu" / "0")),
        *(call().add_scalar(*p, i) for i, own in enumerate(logged, start=1) for p in own.items()),
        call().close(),
    ]
    config = {"activation": "grelu", "seed": 0, "epochs": 2}
    assert init.mock_calls == [
        call(name="grelu-0", config=config, project="p", mode="offline"),
        *(call().log(own, step=i) for i, own in enumerate(logged, start=1)),
        call().finish(),
    ]


@pytest.mark.parametrize(
    ("logger", "module", "package"),
    [(TensorBoard, "torch.utils.tensorboard", "tensorboard"), (WandB, "wandb", "wandb")],
)
def test_missing_packages(
    logger: Any, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"needs the package {package}: pip install {package}."):
        logger("x")
