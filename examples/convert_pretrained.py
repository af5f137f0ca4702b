"""A trained GCN of PyG with ReLU, converted to GReLU and trained further, without a download.

The graph: the handwritten digits that scikit-learn carries, each joined to its ten nearest
neighbours. The converted model starts where the trained one stands, to the last bit. Then both
are trained for the same number of epochs; the accuracy is that of 1,000 nodes without known label.
"""

import copy

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN

from graphrelu import convert, replacements
from graphrelu.lab.data import load
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import Split, make_split


def train(model: torch.nn.Module, graph: Graph, split: Split, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    model.train()
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(graph.x, graph.edge_index)
        F.cross_entropy(out[split.train], graph.y[split.train]).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: torch.nn.Module, graph: Graph, split: Split) -> float:
    out = model.eval()(graph.x, graph.edge_index)
    return 100 * float((out[split.test].argmax(dim=1) == graph.y[split.test]).float().mean())


def main(epochs: int = 100) -> None:
    graph = load("digits")
    split = make_split(graph, seed=0)
    torch.manual_seed(0)
    trained = GCN(graph.num_features, 32, 3, out_channels=graph.num_classes, dropout=0.5)
    train(trained, graph, split, epochs)
    print(f"trained with ReLU       test accuracy {accuracy(trained, graph, split):.1f} %")

    converted = convert(trained)
    print(replacements(converted))
    with torch.no_grad():
        before, after = (m.eval()(graph.x, graph.edge_index) for m in (trained, converted))
    print(f"the same output: {torch.equal(before, after)}")

    for name, model in (("ReLU", copy.deepcopy(trained)), ("GReLU", converted)):
        torch.manual_seed(1)
        train(model, graph, split, epochs)
        print(f"and further with {name:5}  test accuracy {accuracy(model, graph, split):.1f} %")


if __name__ == "__main__":
    main()
