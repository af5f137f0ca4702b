import re
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import APPNP

from graphrelu import functional
from graphrelu.diffusion import DiffusionSettings, as_edges, prepare
from graphrelu.functional import diffuse
from tests.helpers import assert_close, random_graph


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
    assert_close(diffuse(x, edge_index, weight, alpha=0.2, diffusion="exact"), expected)


@pytest.mark.parametrize("add_self_loops", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
def test_power_is_appnp(undirected: bool, add_self_loops: bool) -> None:
    edge_index = random_graph(15, 40, undirected)
    edge_index = edge_index.unique(dim=1)  # PyG drops all but one of several loops of a node
    weight = torch.rand(edge_index.size(1), dtype=torch.double)
    x = torch.randn(15, 3, dtype=torch.double)
    expected = APPNP(7, 0.3, add_self_loops=add_self_loops)(x, edge_index, weight)
    out = diffuse(x, edge_index, weight, 0.3, 7, add_self_loops=add_self_loops)
    assert_close(out, expected)


@pytest.mark.parametrize(("method", "steps"), [("power", 250), ("chebyshev", 60)])
def test_iterations_converge_to_exact(method: str, steps: int) -> None:
    edge_index = random_graph(30, 60, undirected=True)
    x = torch.randn(30, 4, dtype=torch.double)
    exact = diffuse(x, edge_index, diffusion="exact")
    assert_close(diffuse(x, edge_index, steps=steps, diffusion=method), exact)


def test_power_converges_on_a_directed_graph() -> None:
    edge_index = random_graph(30, 60)
    x = torch.randn(30, 4, dtype=torch.double)
    assert_close(diffuse(x, edge_index, steps=250), diffuse(x, edge_index, diffusion="exact"), 1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_chebyshev_is_the_minimax_polynomial(alpha: float, steps: int) -> None:
    """The error takes its largest value, with alternating signs, at `steps + 2` points."""
    coefficients = functional.chebyshev_coefficients(alpha, steps)
    points = torch.linspace(-1, 1, 200_001, dtype=torch.double)
    angles = torch.arccos(points)
    polynomial = sum(c * torch.cos(k * angles) for k, c in enumerate(coefficients))
    error = polynomial - alpha / (1 - (1 - alpha) * points)
    if alpha == 1.0:
        assert error.abs().max() < 1e-12
        return
    largest = error.abs().max()
    extremes = error[error.abs() > (1 - 1e-6) * largest].sign()
    assert int((extremes[1:] != extremes[:-1]).sum()) + 1 == steps + 2


def test_chebyshev_beats_power_at_equal_cost() -> None:
    edge_index = random_graph(200, 300, undirected=True)
    x = torch.randn(200, 4, dtype=torch.double)
    exact = diffuse(x, edge_index, diffusion="exact")
    errors = {
        (method, steps): (diffuse(x, edge_index, None, 0.1, steps, method) - exact).abs().max()
        for method, steps in (("power", 10), ("chebyshev", 5), ("chebyshev", 10))
    }
    assert errors["chebyshev", 5] < errors["power", 10]
    assert errors["chebyshev", 10] < 0.1 * errors["power", 10]


@pytest.mark.parametrize("method", ["power", "chebyshev", "exact"])
def test_prepared_graph_is_the_reference(method: str) -> None:
    edge_index = random_graph(25, 60, undirected=method == "chebyshev")
    settings = DiffusionSettings(0.15, 6, method, False)
    graph = prepare(edge_index, None, 25, torch.double, settings, None, True)
    x = torch.randn(25, 3, dtype=torch.double, requires_grad=True)
    out, expected = graph.diffuse(x), diffuse(x, edge_index, None, 0.15, 6, method)
    assert_close(out, expected)
    weight = torch.randn_like(out)
    grad, expected_grad = (torch.autograd.grad((y * weight).sum(), x)[0] for y in (out, expected))
    assert_close(grad, expected_grad)
    # S^T 1, the weight of each node in the sum of all
    assert_close(graph.mass @ x, expected.sum(dim=0))


@pytest.mark.parametrize("method", ["power", "chebyshev"])
def test_backward_saves_no_features(method: str) -> None:
    """What autograd keeps does not grow with the number of columns."""
    edge_index = random_graph(20, 50, undirected=True)
    settings = DiffusionSettings(0.1, 10, method, False)
    graph = prepare(edge_index, None, 20, torch.float, settings, None, True)
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        graph.diffuse(torch.randn(20, 1000, requires_grad=True))
    assert max(tensor.numel() for tensor in saved) < 1000


def test_symmetric_graph_is_kept_once() -> None:
    pairs = torch.combinations(torch.arange(20)).t()
    edge_index, weight = torch.cat([pairs, pairs.flip(0)], dim=1), torch.rand(190).repeat(2)
    graph = prepare(
        edge_index, weight, 20, torch.float, DiffusionSettings(0.1, 2, "power", True), None, True
    )
    assert graph.matrices is not None
    assert graph.matrices[0] is graph.matrices[1]


def test_pagerank_vmap() -> None:
    edge_index = random_graph(12, 30)
    graph = prepare(
        edge_index, None, 12, torch.double, DiffusionSettings(0.1, 5, "power", False), None, True
    )
    x = torch.randn(4, 3, 12, 2, dtype=torch.double)
    out = torch.func.vmap(torch.func.vmap(graph.diffuse))(x)
    expected = torch.stack([torch.stack([graph.diffuse(z) for z in row]) for row in x])
    assert_close(out, expected)
    out = torch.func.vmap(graph.diffuse, in_dims=1, out_dims=1)(x[0].transpose(0, 1))
    assert_close(out, torch.stack([graph.diffuse(z) for z in x[0]], dim=1))


def test_vmap_over_graphs() -> None:
    """Edge weights that differ between the replicas: each gets its own operator."""
    edge_index, x = random_graph(12, 30), torch.randn(12, 2, dtype=torch.double)
    weights = torch.rand(3, 30, dtype=torch.double)
    settings = DiffusionSettings(0.1, 5, "power", False)

    def run(weight: torch.Tensor) -> torch.Tensor:
        return prepare(edge_index, weight, 12, torch.double, settings, None, False).diffuse(x)

    expected = torch.stack([run(weight) for weight in weights])
    assert_close(torch.func.vmap(run)(weights), expected)


def test_as_edges_reads_adj_t() -> None:
    adj_t = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse_csr()
    edges = as_edges(adj_t, None, 2, torch.float)
    assert (edges.source.tolist(), edges.target.tolist()) == ([1], [0])
    assert edges.weight.tolist() == [2.0]


def test_worst_errors_are_those_of_the_documentation() -> None:
    """On [-1, 1], where the spectrum of a normalised adjacency lies."""
    eigenvalue = torch.linspace(-1, 1, 20_001, dtype=torch.double)
    exact = 0.1 / (1 - 0.9 * eigenvalue)
    text = (Path(__file__).parent.parent / "docs" / "cost.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| error at worst")]
    stated = [float(number) for number in re.findall(r"0\.\d{3}", line)]
    errors = []
    nodes = torch.arange(len(exact))
    loops = functional.Edges(nodes, nodes, eigenvalue, len(exact))  # a diagonal matrix
    ones = torch.ones(len(exact), 1, dtype=torch.double)
    for form in ("power", "chebyshev"):
        for steps in (5, 10):
            out = functional.pagerank(ones, loops, 0.1, steps, form).squeeze(1)
            errors.append(float((out - exact).abs().max()))
    assert stated == [round(error, 3) for error in errors]
