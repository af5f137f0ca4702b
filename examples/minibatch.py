"""A two-layer GCN with GReLU, trained on parts of a graph and evaluated a few nodes at a time.

The graph: the handwritten digits that scikit-learn carries, each joined to its ten nearest
neighbours. A training batch is a random part of the nodes with the edges among them. In evaluation
the running statistics stand for the whole graph, so that a node's output is the same in any batch
that holds its neighbourhood.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader
from torch_geometric.nn import GCNConv
from torch_geometric.utils import k_hop_subgraph

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.data.splits import make_split

STEPS = 2
# One for each convolution, those of the diffusion, and one for the degrees of the outermost nodes.
HOPS = 2 + STEPS + 1


class GCN(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, 32)
        self.act = GReLU(32, steps=STEPS, track_running_stats=True)
        self.conv2 = GCNConv(32, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.act(self.conv1(x, edge_index), edge_index)
        return self.conv2(F.dropout(x, training=self.training), edge_index)


@torch.no_grad()
def evaluate(model: GCN, data: Data, nodes: Tensor, batch_size: int) -> Tensor:
    """The outputs of `nodes`, from batches that hold their neighbourhoods only."""
    parts = []
    for seeds in nodes.split(batch_size):
        subset, edges, position, _ = k_hop_subgraph(
            seeds, HOPS, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes
        )
        parts.append(model(data.x[subset], edges)[position])
    return torch.cat(parts)


def main(epochs: int = 100, num_parts: int = 4, batch_size: int = 10) -> None:
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
        whole = model(data.x, data.edge_index)[split.test]
    parts = evaluate(model, data, split.test, batch_size)
    for name, out in (("whole graph", whole), ("mini-batches", parts)):
        accuracy = 100 * (out.argmax(dim=1) == data.y[split.test]).float().mean()
        print(f"{name:12}  test accuracy {accuracy:.1f} %")
    print(f"largest difference of an output {(whole - parts).abs().max():.1e}")


if __name__ == "__main__":
    main()
