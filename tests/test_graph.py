import re
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch_geometric import EdgeIndex
from torch_geometric.nn import APPNP
from torch_geometric.utils import to_torch_csr_tensor

from graphrelu import GReLU, HeteroGReLU, clear_cache, functional
from graphrelu import graph as graph_module
from graphrelu.graph import DiffusionSettings, prepare
from tests.helpers import Calls, assert_close, diffused, opened, random_graph

POWER = DiffusionSettings(0.2, 4)


def dense_operator(edge_index: torch.Tensor, weight: torch.Tensor, alpha: float) -> torch.Tensor:
    """The printed formula, with dense matrices."""
    N = int(edge_index.max()) + 1
    A = torch.zeros(N, N, dtype=torch.double)
    for (source, target), w in zip(edge_index.t().tolist(), weight.tolist(), strict=True):
        A[target, source] += w
    D = torch.diag(A.sum(dim=1).pow(-0.5).nan_to_num(posinf=0.0))
    return alpha * torch.linalg.inv(torch.eye(N, dtype=torch.double) - (1 - alpha) * D @ A @ D)


@pytest.mark.parametrize("undirected", [False, True])
def test_exact_is_the_printed_inverse(undirected: bool) -> None:
    edge_index = random_graph(15, 40, undirected)
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    x = torch.randn(15, 3, dtype=torch.double)
    expected = dense_operator(edge_index, weight, 0.2) @ x
    assert_close(diffused(x, edge_index, weight, alpha=0.2, kind="exact"), expected)


@pytest.mark.parametrize("undirected", [False, True])
def test_power_is_appnp(undirected: bool) -> None:
    edge_index = random_graph(15, 40, undirected)
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    x = torch.randn(15, 3, dtype=torch.double)
    expected = APPNP(7, 0.3, add_self_loops=False)(x, edge_index, weight)
    assert_close(diffused(x, edge_index, weight, 0.3, 7), expected)


@pytest.mark.parametrize("backend", ["", "torch"])
def test_one_column_in_loops_and_by_the_library(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHRELU_BACKEND", backend)
    edge_index, x = random_graph(15, 40), torch.randn(15, 1, dtype=torch.double)
    graph = prepare(edge_index.clone(), None, 15, torch.double, POWER)
    assert_close(graph.diffuse(x), diffused(x, edge_index, None, 0.2, 4))


def test_backward_saves_no_features() -> None:
    """What autograd keeps does not grow with the number of columns."""
    graph = prepare(random_graph(20, 50), None, 20, torch.float, POWER)
    saved: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        graph.diffuse(torch.randn(20, 1000, requires_grad=True))
    assert max(saved) < 1000


def test_worst_errors_are_those_of_the_documentation() -> None:
    """On [-1, 1], where the spectrum of a normalised adjacency lies."""
    eigenvalue = torch.linspace(-1, 1, 20_001, dtype=torch.double)
    exact = 0.1 / (1 - 0.9 * eigenvalue)
    text = (Path(__file__).parent.parent / "docs" / "cost.md").read_text()
    section = text.partition("## How exact the diffusion is")[2]
    stated = [float(number) for number in re.findall(r"0\.\d{3}", section)]
    errors = []
    nodes = torch.arange(len(exact))
    loops = functional.Edges(nodes, nodes, eigenvalue, len(exact))  # a diagonal matrix
    ones = torch.ones(len(exact), 1, dtype=torch.double)
    for steps in (5, 10, 20):
        out = functional.pagerank(ones, loops, 0.1, steps).squeeze(1)
        errors.append(float((out - exact).abs().max()))
    assert stated == [round(error, 3) for error in errors]


def test_eight_graphs_are_remembered_while_they_live() -> None:
    clear_cache()
    graphs = [random_graph(15, 40) for _ in range(9)]
    made = [prepare(graph, None, 15, torch.double, POWER) for graph in graphs]
    assert prepare(graphs[1], None, 15, torch.double, POWER) is made[1]
    assert len(graph_module._cache) == graph_module.MAX_GRAPHS
    assert prepare(graphs[0], None, 15, torch.double, POWER) is not made[0]
    del graphs
    assert len(graph_module._cache) == 0  # none that is gone


def test_an_undirected_graph_is_kept_once() -> None:
    pairs, weight = torch.combinations(torch.arange(20)).t(), torch.rand(190).repeat(2)
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    matrix, transposed = prepare(edge_index, weight, 20, torch.float, POWER).matrices
    assert matrix is transposed


@pytest.mark.parametrize("kind", ["module", "hetero", "compiled"])
def test_clear_cache_forgets_what_was_remembered(kind: str) -> None:
    """The next call prepares the graph again, with the same output."""
    act, x, edge_index = opened(GReLU(4)), torch.randn(20, 4), random_graph(20, 60)
    hetero, relation = HeteroGReLU({"paper": 4}), ("paper", "cites", "paper")
    run = {
        "module": act,
        "hetero": lambda x, edges: hetero({"paper": x}, {relation: edges})["paper"],
        "compiled": torch.compile(act, backend="aot_eager"),
    }[kind]
    clear_cache()
    before = run(x, edge_index).detach()
    (known,) = graph_module._cache.values()
    matrix = weakref.ref(known.matrices[0].col)
    run(x, edge_index)
    assert next(iter(graph_module._cache.values())) is known
    del known
    clear_cache()
    assert matrix() is None
    assert torch.equal(run(x, edge_index), before)


def test_an_adjacency_that_is_not_coalesced_is_remembered_and_stays_as_it_is() -> None:
    """One with duplicates has the sums of its entries."""
    index, weight = torch.tensor([[0, 1, 1, 2], [1, 2, 2, 0]]), torch.ones(4, dtype=torch.double)
    adjacency = torch.sparse_coo_tensor(index, weight, (3, 3))
    arguments = (None, 3, torch.double, POWER)
    graph, x = prepare(adjacency, *arguments), torch.randn(3, 4, dtype=torch.double)
    summed = prepare(adjacency.to_dense().to_sparse(), *arguments)
    assert_close(graph.diffuse(x), summed.diffuse(x))
    assert not adjacency.is_coalesced()
    assert prepare(adjacency, *arguments) is graph
    adjacency._values().mul_(2)
    assert prepare(adjacency, *arguments) is not graph


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda edge_index: edge_index[0].copy_(edge_index[0].flip(0)),
    "through data": lambda edge_index: edge_index.data[0].copy_(edge_index[0].flip(0)),
    "by numpy": lambda edge_index: edge_index.numpy()[0].sort(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", ["tensor", "EdgeIndex", "adjacency", "compiled"])
def test_a_graph_that_was_written_to_is_another_graph(write: str, kind: str) -> None:
    act, x, graph = opened(GReLU(4)), torch.randn(20, 4), random_graph(20, 60)
    run = torch.compile(act, backend="aot_eager") if kind == "compiled" else act
    held = graph
    if kind == "EdgeIndex":
        graph = EdgeIndex(graph, sparse_size=(20, 20))
        held = graph.as_tensor()
    elif kind == "adjacency":
        pairs = torch.stack([torch.arange(20), torch.randperm(20)])
        graph = to_torch_csr_tensor(pairs, size=20)
        held = graph.col_indices().view(1, -1)
    before = run(x, graph)
    WRITES[write](held)
    after = run(x, graph)
    assert torch.equal(after, run(x, graph.clone()))
    assert not torch.equal(before, after)


@pytest.mark.parametrize(
    ("options", "nodes", "dtype", "message"),
    [
        ({"alpha": 0.2}, 15, torch.float, "prepared for settings=.*alpha=0.2.*got .*alpha=0.1"),
        ({"steps": 3}, 15, torch.float, "prepared for settings=.*steps=3.*got .*steps=10"),
        ({}, 14, torch.float, "prepared for num_nodes=14, got 15"),
        ({}, 15, torch.double, "prepared for dtype=torch.float64, got torch.float32"),
    ],
    ids=str,
)
def test_a_prepared_graph_of_another_module_or_size_is_refused(
    options: dict, nodes: int, dtype: torch.dtype, message: str
) -> None:
    settings = DiffusionSettings(0.1, 10)
    graph = prepare(random_graph(15, 40), None, 15, torch.float, settings)
    act = GReLU(4, **options).to(dtype)
    with pytest.raises(ValueError, match=message):
        act(torch.randn(nodes, 4, dtype=dtype), graph)


class OnApple(Tensor):
    """Says that it is on a device without float64."""

    device = torch.device("mps")


@pytest.mark.parametrize("kind", [OnApple, Tensor])
def test_devices_without_float64_get_none(kind: type[Tensor]) -> None:
    """A graph is normalised, and a softmax over many nodes taken, in float32 there."""
    edge, batch = torch.zeros(20, dtype=torch.long), torch.zeros(9, dtype=torch.long)
    weight, logits = torch.ones(20).as_subclass(kind), torch.ones(9, 1).as_subclass(kind)
    with Calls() as calls:
        functional.normalized_adjacency(functional.Edges(edge, edge, weight, 9))
        functional.weigh(logits, functional.DEFAULT, batch, 3)
        functional.weigh(logits, functional.DEFAULT)
    made = tree_leaves([out for _, _, out in calls.seen])
    assert (torch.double in {t.dtype for t in made}) == (kind is Tensor)
