"""All seeds at once against a PyG loop over seeds: the whole training, in one run.

    python benchmarks/seeds.py --dataset cora --runs 10 --data ROOT

All follow the same protocol: the same splits, Adam, epochs, early stopping, and the test accuracy
at the lowest validation loss. The loop uses stock convolutions with `cached=True`, once with the
features as PyG loads them and once with sparse ones: that part of the speed anyone can have. On a
CPU times are CPU time of one thread, which other work on the machine does not lengthen.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import save
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu.lab.data import load
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import features_of, run
from graphrelu.lab.engine.timing import synchronize
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe


class StockGCN(torch.nn.Module):
    def __init__(self, graph: Graph, config: Config) -> None:
        super().__init__()
        self.conv1 = GCNConv(graph.num_features, config.hidden, cached=True)
        self.conv2 = GCNConv(config.hidden, graph.num_classes, cached=True)
        self.dropout = config.dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
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
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--data", help="folder of the datasets")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()

    device = torch.device(args.device)
    graph = load(args.dataset, args.data)
    config = recipe(graph.name, graph.family, "gcn", "relu")
    clock = time.perf_counter
    if device.type == "cpu":
        torch.set_num_threads(1)
        clock = time.process_time
    sparse = features_of(config, graph).to(device)

    def loop(x: Tensor, runs: int) -> list[float]:
        return [stock_run(config, graph, x, seed, device) for seed in range(runs)]

    def at_once(runs: int) -> list[float]:
        graphs = {graph.name: graph}
        results = run([config], range(runs), None, graphs=graphs, device=args.device)
        return [result.score for result in results]

    ways = {
        "one_by_one": partial(loop, sparse.to_dense()),
        "one_by_one_sparse": partial(loop, sparse.to_sparse_csr()),
        "at_once": at_once,
    }
    times, means = {}, {}
    print(f"{args.dataset}, GCN, {args.runs} seeds, {config.epochs} epochs")
    for name, way in ways.items():
        way(runs=2)  # first calls load libraries
        synchronize(device)
        started = clock()
        means[name] = statistics.mean(way(runs=args.runs))
        synchronize(device)
        times[name] = clock() - started
        print(f"{name:18} {times[name]:8.1f} s   accuracy {100 * means[name]:.1f} %")
    setting = {"dataset": args.dataset, "runs": args.runs}
    save(args.out, device, {"setting": setting, "seconds": times, "accuracy": means})


if __name__ == "__main__":
    main()
