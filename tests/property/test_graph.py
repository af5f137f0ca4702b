import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphrelu.functional import Edges, exact_operator, normalized_adjacency, pagerank
from graphrelu.graph import DiffusionSettings, PreparedGraph, as_edges
from tests.property.comparison import assert_near, prepared
from tests.property.strategies import Graph, graphs

alphas = st.floats(0.05, 1.0)


def operator(graph: Graph, alpha: float, steps: int, diffusion: str) -> PreparedGraph:
    return prepared(graph, DiffusionSettings(alpha, steps, diffusion, False), torch.double)


def normal(graph: Graph, seed: int, columns: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (graph.num_nodes, columns)
    return torch.randn(shape, generator=generator, dtype=torch.double)


def edges_of(graph: Graph) -> Edges:
    return as_edges(graph.edge_index, graph.edge_weight, graph.num_nodes, torch.double)


def diffusions(graph: Graph) -> list[str]:
    return ["power", "exact", *(["chebyshev"] if graph.undirected else [])]


@given(graph=graphs(), alpha=alphas, steps=st.integers(1, 12), seed=st.integers(0, 99))
def test_prepared_graph_is_the_reference(graph: Graph, alpha: float, steps: int, seed: int) -> None:
    edges, x = normalized_adjacency(edges_of(graph)), normal(graph, seed)
    for diffusion in diffusions(graph):
        out = operator(graph, alpha, steps, diffusion).diffuse(x)
        assert_near(out, pagerank(x, edges, alpha, steps, diffusion), 1e-10)


@given(graph=graphs(), alpha=alphas, steps=st.integers(1, 12), seed=st.integers(0, 99))
def test_backward_is_the_transpose(graph: Graph, alpha: float, steps: int, seed: int) -> None:
    """<S x, y> = <x, S^T y>, and the mass is S^T 1."""
    x, y = normal(graph, seed).requires_grad_(), normal(graph, seed + 1)
    for diffusion in diffusions(graph):
        S = operator(graph, alpha, steps, diffusion)
        columns = S.diffuse(torch.eye(graph.num_nodes, dtype=torch.double))
        (grad,) = torch.autograd.grad((S.diffuse(x) * y).sum(), x)
        assert_near(grad, columns.t() @ y, 1e-10)
        assert_near(S.mass, columns.sum(dim=0), 1e-10)


@given(graph=graphs(), alpha=alphas, seed=st.integers(0, 99))
def test_iterations_converge_to_the_inverse(graph: Graph, alpha: float, seed: int) -> None:
    """By the rates that they have on the spectrum of a normalised adjacency, [-1, 1]."""
    x, decay = normal(graph, seed), 1 - alpha
    expected = exact_operator(normalized_adjacency(edges_of(graph)), alpha) @ x
    # In a directed graph the operator is similar to a stochastic one by the roots of degrees,
    # which lie within a factor of 1e4: the error starts that much larger.
    steps = math.ceil(math.log(1e-12) / math.log(decay)) if decay > 1e-12 else 1
    assert_near(operator(graph, alpha, steps, "power").diffuse(x), expected, 1e-7)
    if graph.undirected:
        rho = (1 - math.sqrt(1 - decay**2)) / decay if decay > 1e-6 else decay
        steps = math.ceil(math.log(1e-12) / math.log(rho)) if rho > 1e-12 else 1
        assert_near(operator(graph, alpha, steps, "chebyshev").diffuse(x), expected, 1e-9)
