"""All seeds at once against a plain PyG loop over seeds: the whole training, in one run.

    python benchmarks/seeds.py --dataset cora --runs 10 --data ROOT

Both sides follow the same protocol: the same splits, Adam, epochs, early stopping, and the test
accuracy at the lowest validation loss. The loop uses stock convolutions with `cached=True`.
"""

import argparse
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import save
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import run, scaled_features
from graphrelu.lab.engine.timing import seconds
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import Result


class StockGCN(torch.nn.Module):
    def __init__(self, graph: Graph, config: Config) -> None:
        super().__init__()
        self.conv1 = GCNConv(graph.num_features, config.hidden, cached=True)
        self.act = GReLU(config.hidden) if config.activation == "grelu" else None
        self.conv2 = GCNConv(config.hidden, graph.num_classes, cached=True)
        self.dropout = config.dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        x = x.relu() if self.act is None else self.act(x, edge_index)
        return self.conv2(F.dropout(x, self.dropout, self.training), edge_index)


def stock_run(config: Config, graph: Graph, x: Tensor, seed: int, device: torch.device) -> float:
    """One training as PyG's benchmark of citation graphs does it; returns the test accuracy."""
    torch.manual_seed(seed)
    split = make_split(graph, seed)
    train, val, test = (part.to(device) for part in (split.train, split.val, split.test))
    y, edge_index = graph.y.to(device), graph.edge_index.to(device)
    model = StockGCN(graph, config).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    best_loss, accuracy, history = float("inf"), 0.0, []
    for epoch in range(1, config.epochs + 1):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(x, edge_index)
            val_loss = float(F.cross_entropy(out[val], y[val]))
        if val_loss < best_loss:
            best_loss = val_loss
            accuracy = float((out[test].argmax(dim=1) == y[test]).float().mean())
        if epoch > config.epochs // 2 and val_loss > statistics.mean(history[-config.patience :]):
            break
        history.append(val_loss)
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--activation", choices=("relu", "grelu"), default="relu")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--data", help="folder of the datasets")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()

    device = torch.device(args.device)
    graph = load(args.dataset, args.data)
    config = recipe(graph.name, graph.family, "gcn", args.activation)
    x = scaled_features(config, graph).to_dense().to(device)
    stock_run(config, graph, x, 0, device)  # the first run loads libraries
    run([config], range(2), None, graphs={graph.name: graph}, device=args.device)

    plain: list[float] = []
    results: list[Result] = []

    def one_by_one() -> None:
        plain.extend(stock_run(config, graph, x, seed, device) for seed in range(args.runs))

    def at_once() -> None:
        graphs = {graph.name: graph}
        results.extend(run([config], range(args.runs), None, graphs=graphs, device=args.device))

    loop, together = seconds(one_by_one, device), seconds(at_once, device)
    ours = [result.score for result in results]
    print(f"{args.dataset}, GCN, {args.activation}, {args.runs} seeds, {config.epochs} epochs")
    print(f"PyG, one by one  {loop:8.1f} s   accuracy {100 * statistics.mean(plain):.1f} %")
    print(f"all at once      {together:8.1f} s   accuracy {100 * statistics.mean(ours):.1f} %")
    print(f"ratio            {loop / together:8.1f}")
    if args.out is not None:
        setting = {"dataset": args.dataset, "activation": args.activation, "runs": args.runs}
        times = {"one_by_one": loop, "at_once": together}
        means = {"one_by_one": statistics.mean(plain), "at_once": statistics.mean(ours)}
        save(
            args.out,
            {"setting": setting, **surroundings(device), "seconds": times, "accuracy": means},
        )


if __name__ == "__main__":
    main()
