"""A two-layer GCN with GReLU, trained on parts of a graph and evaluated on all of it.

The graph is that of scikit-learn's handwritten digits, each joined to its ten nearest neighbours. A
batch is a random part of the nodes with the edges among them, and counts as a graph of its own.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.data.splits import make_split


class GCN(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, 32)
        self.act = GReLU(32)
        self.conv2 = GCNConv(32, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.act(self.conv1(x, edge_index), edge_index)
        return self.conv2(F.dropout(x, training=self.training), edge_index)


def main(epochs: int = 100, num_parts: int = 4) -> None:
    torch.manual_seed(0)
    graph = load("digits")
    split = make_split(graph, seed=0)
    train_mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
    train_mask[split.train] = True
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y, train_mask=train_mask)
    loader = RandomNodeLoader(data, num_parts, shuffle=True)

    model = GCN(graph.num_features, graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        for part in loader:
            optimizer.zero_grad()
            out = model(part.x, part.edge_index)
            F.cross_entropy(out[part.train_mask], part.y[part.train_mask]).backward()
            optimizer.step()

    model.eval()
    with torch.no_grad():
        out = model(data.x, data.edge_index)[split.test]
    accuracy = 100 * (out.argmax(dim=1) == data.y[split.test]).float().mean()
    print(f"test accuracy {accuracy:.1f} %")


if __name__ == "__main__":
    main()
