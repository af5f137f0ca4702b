"""A whole training by the fast path is that by the equations."""

import os
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from graphrelu import GReLU
from tests.helpers import random_graph

STEPS = 300


class Network(torch.nn.Module):
    def __init__(self, K: int) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([GCNConv(6, 16), GCNConv(16, 16)])
        self.acts = torch.nn.ModuleList([GReLU(16, K=K), GReLU(16, K=K)])
        self.lin = torch.nn.Linear(16, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv, act in zip(self.convs, self.acts, strict=True):
            x = act(conv(x, edge_index), edge_index, batch=batch)
        out: Tensor = self.lin(global_mean_pool(x, batch))
        return out


def losses(K: int, backend: str) -> Tensor:
    """Of each step of a training on mini-batches of graphs."""
    torch.manual_seed(0)
    graphs = []
    for size in torch.randint(3, 12, (80,)).tolist():
        x = torch.randn(size, 6, dtype=torch.double)
        edge_index = random_graph(size, 2 * size, undirected=True)
        graphs.append(Data(x=x, edge_index=edge_index, y=(x.mean() ** 2 + x[0, 0]).view(1, 1)))
    model = Network(K).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader, found = DataLoader(graphs, batch_size=16, shuffle=True), []
    with mock.patch.dict(os.environ, GRAPHRELU_BACKEND=backend):
        for _ in range(STEPS // len(loader)):
            for data in loader:
                optimizer.zero_grad()
                out = model(data.x, data.edge_index, data.batch)
                loss = (out - data.y).square().mean()
                loss.backward()
                optimizer.step()
                found.append(loss.detach())
    return torch.stack(found)


@pytest.mark.parametrize("K", [2, 3])
def test_a_training_takes_the_course_of_the_equations(K: int) -> None:
    fast, equations = losses(K, ""), losses(K, "reference")
    assert len(fast) == STEPS
    assert fast[-20:].mean() < 0.3 * fast[:20].mean()  # it learns
    torch.testing.assert_close(fast, equations, rtol=1e-8, atol=1e-8)
