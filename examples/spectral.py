"""GReLU in a spectral network: the paper's H' = sigma(U g(Lambda) U^T H) on a small graph.

U and Lambda are the eigenvectors and eigenvalues of the normalised Laplacian at the lowest
frequencies, g is a learned polynomial for each pair of channels. The graph: a circle of
communities, whose features are so noisy that a node needs its neighbours to be told apart.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import get_laplacian, to_dense_adj

from graphrelu import GReLU

COMMUNITIES, SIZE, FREQUENCIES = 4, 30, 12


class SpectralConv(torch.nn.Module):
    """U g(Lambda) U^T H, with g(lambda) = sum_p theta_p lambda^p."""

    def __init__(self, in_channels: int, out_channels: int, degree: int = 3) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.empty(degree + 1, in_channels, out_channels))
        torch.nn.init.xavier_uniform_(self.theta)

    def forward(self, h: Tensor, eigenvalues: Tensor, eigenvectors: Tensor) -> Tensor:
        powers = torch.stack([eigenvalues**p for p in range(len(self.theta))])
        signal = eigenvectors.t() @ h
        filtered = torch.einsum("pn,ni,pio->no", powers, signal, self.theta)
        return eigenvectors @ filtered


class SpectralGNN(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = SpectralConv(in_channels, hidden)
        self.act = GReLU(hidden)
        self.conv2 = SpectralConv(hidden, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, *spectrum: Tensor) -> Tensor:
        h = self.act(self.conv1(x, *spectrum), edge_index)  # the activation takes the graph itself
        return self.conv2(h, *spectrum)


def communities() -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and labels; dense inside of a community, sparse towards the next."""
    y = torch.arange(COMMUNITIES).repeat_interleave(SIZE)
    distance = (y.view(1, -1) - y.view(-1, 1)) % COMMUNITIES
    chance = torch.where(distance == 0, 0.2, torch.where(distance == 1, 0.02, 0.0))
    edges = torch.bernoulli(chance).triu(1)
    x = F.one_hot(y) + 1.5 * torch.randn(len(y), COMMUNITIES)
    return x, (edges + edges.t()).nonzero().t(), y


def spectrum(edge_index: Tensor, num_nodes: int, frequencies: int) -> tuple[Tensor, Tensor]:
    """The lowest eigenvalues of I - D^-1/2 A D^-1/2, and their eigenvectors."""
    index, weight = get_laplacian(edge_index, normalization="sym", num_nodes=num_nodes)
    laplacian = to_dense_adj(index, edge_attr=weight, max_num_nodes=num_nodes)[0]
    eigenvalues, eigenvectors = torch.linalg.eigh(laplacian)
    return eigenvalues[:frequencies], eigenvectors[:, :frequencies]


def main(epochs: int = 60) -> None:
    torch.manual_seed(0)
    x, edge_index, y = communities()
    train = torch.rand(len(y)) < 0.3
    model = SpectralGNN(COMMUNITIES, 16, COMMUNITIES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-3)
    inputs = (x, edge_index, *spectrum(edge_index, len(y), FREQUENCIES))
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs)[train], y[train]).backward()
        optimizer.step()
    correct = (model(*inputs).argmax(dim=1) == y)[~train].float().mean()
    print(f"Spectral network with GReLU: {100 * correct:.1f} % of the other nodes are right")


if __name__ == "__main__":
    main()
