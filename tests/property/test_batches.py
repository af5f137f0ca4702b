"""Batches of graphs: their order does not matter, and each graph is what it is alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphrelu import GReLU
from tests.helpers import opened, random_graph
from tests.property.comparison import assert_near, expected_of
from tests.property.strategies import TOLERANCE, Graph, Setup, cases

Case = tuple[Graph, Setup]


@given(case=cases(), seed=st.integers(0, 2**16))
def test_order_of_nodes_graphs_and_edges(case: Case, seed: int) -> None:
    """Forward and backward, with the nodes, the graphs and the edges shuffled."""
    graph, setup = case
    act, x = setup.module().double(), setup.x(graph.num_nodes)
    arguments, expected = graph.arguments(), expected_of(act, x, graph)
    generator = torch.Generator().manual_seed(seed)
    number = torch.randperm(len(graph.sizes), generator=generator)  # a graph's new place
    order = torch.randperm(graph.num_nodes, generator=generator)
    batch = arguments["batch"]
    if batch is not None:
        order = order[torch.argsort(number[batch][order], stable=True)]
    edges = torch.randperm(len(graph.edges) * (1 + graph.undirected), generator=generator)
    weight = arguments["edge_weight"]
    shuffled = {
        "edge_index": torch.argsort(order)[arguments["edge_index"][:, edges]],
        "edge_weight": None if weight is None else weight[edges],
        "batch": None if batch is None else number[batch][order],
        "batch_size": arguments["batch_size"],
    }
    out = act(x[order], **shuffled)
    assert_near(out, expected.out[order], 1e-9)
    inputs = [x, *act.parameters()]
    grads = torch.autograd.grad(out, inputs, expected.grad[order], materialize_grads=True)
    for grad, exact in zip(grads, expected.grads, strict=True):
        assert_near(grad, exact, 1e-9, expected.gradient_scale)


@pytest.mark.parametrize("options", [{}, {"K": 3}], ids=["compiled loops", "plain torch"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "sizes",
    [[3, 1, 0, 2] * 750, [2, 5000, 1, 3], [0, 0, 4, 0]],
    ids=["thousands of graphs", "a huge one among small ones", "empty graphs"],
)
def test_a_graph_alone_is_as_in_a_batch(
    sizes: list[int], dtype: torch.dtype, options: dict[str, int]
) -> None:
    torch.manual_seed(0)
    act = opened(GReLU(5, **options))
    graphs = [
        Data(
            x=torch.randn(size, 5).to(dtype),
            edge_index=random_graph(size, 2 * size) if size > 1 else torch.empty(2, 0).long(),
        )
        for size in sizes
    ]
    act = act.double() if dtype == torch.float64 else act
    together = Batch.from_data_list(graphs)

    def run(data: Data, grad: Tensor) -> tuple[Tensor, Tensor]:
        x = data.x.requires_grad_()
        size = len(sizes) if data is together else None
        out = act(x, data.edge_index, batch=getattr(data, "batch", None), batch_size=size)
        return out, torch.autograd.grad(out, x, grad)[0]

    grad = torch.randn_like(together.x)
    shown = sorted({0, 1, 2, 3, len(sizes) - 1})
    found, starts = run(together, grad), together.ptr
    for i in shown:
        part = slice(int(starts[i]), int(starts[i + 1]))
        alone = run(graphs[i], grad[part])
        for own, whole in zip(alone, found, strict=True):
            assert_near(whole[part], own.double(), TOLERANCE[dtype])
