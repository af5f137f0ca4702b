"""What GReLU costs where people train: one row for each case, rivals taking turns in one process.

    python benchmarks/cases.py --out benchmarks/results/cases_h200.json
    python benchmarks/cases.py --seeds 10 --out benchmarks/results/cases_cpu.json
    GOMP_SPINCOUNT=1000 python benchmarks/cases.py --only busy --out FILE  # the same file

The same command again measures the cases that the record lacks. Each figure is the median time of
one training step: forward, backward and the optimiser. "No kernels" is GReLU as on a CPU.
"""

import argparse
import copy
import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from activation import random_graph
from measure import milliseconds_in_turn, save
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

from graphrelu import GReLU
from graphrelu.lab.engine.timing import captured
from graphrelu.lab.models.activations import GELU, Maxout, PReLU, ReLU
from graphrelu.lab.record.machine import surroundings

ACTIVATIONS: dict[str, Callable[[int], torch.nn.Module]] = {
    "ReLU": ReLU,
    "PReLU": PReLU,
    "GELU": GELU,
    "Maxout": Maxout,
    "GReLU": GReLU,
}
Step = Callable[[], None]


class Network(torch.nn.Module):
    """Two convolutions with one activation between them, for nodes or for a batch of graphs."""

    def __init__(
        self, conv: Callable[[int, int], Any], act: torch.nn.Module, width: int, batch_size: int
    ) -> None:
        super().__init__()
        self.first, self.act, self.second = conv(width, width), act, conv(width, width)
        self.batch_size = batch_size

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        own = {} if batch is None else {"batch": batch, "batch_size": self.batch_size}
        x = self.act(self.first(x, edge_index), edge_index, **own)
        x = self.second(x, edge_index)
        return x if batch is None else global_add_pool(x, batch, self.batch_size)


def convolution(name: str, width: int, out: int) -> torch.nn.Module:
    if name == "gcn":
        return GCNConv(width, out, cached=True)
    if name == "gat":
        return GATConv(width, out // 8, heads=8)
    if name == "gin":
        return GINConv(torch.nn.Linear(width, out))
    return SAGEConv(width, out)


def training_step(model: torch.nn.Module, inputs: Callable[[], tuple], y: Tensor) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, capturable=y.is_cuda)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*inputs()), y).backward()
        optimizer.step()

    return step


def without_kernels(step: Step) -> None:
    with mock.patch.dict(os.environ, GRAPHRELU_BACKEND="torch"):
        step()


def in_one_thread(step: Step) -> None:
    with torch.autograd.set_multithreading_enabled(False):
        step()


def steps_of(
    conv: str,
    nodes: int,
    edges: int,
    device: torch.device,
    *,
    width: int = 64,
    fresh: bool = False,
    how: str = "eager",
    graphs: int = 1,
) -> dict[str, Step]:
    """A training step of each rival on one graph, or on a graph that is new in every step.

    `how` is `"eager"`, `"compiled"`, or on a GPU `"replayed"` as a CUDA graph, `"graphed"`, which
    is the model alone as CUDA graphs, or `"one thread"`, with the backward pass in the caller's.
    """
    torch.manual_seed(0)
    edge_index = random_graph(nodes, edges, 0)
    batch = None
    if graphs > 1:
        edge_index = torch.cat([edge_index + nodes * graph for graph in range(graphs)], dim=1)
        batch = torch.arange(graphs).repeat_interleave(nodes).to(device)
    edge_index, nodes = edge_index.to(device), nodes * graphs
    x = torch.randn(nodes, width, device=device)
    y = torch.randint(width, (graphs if graphs > 1 else nodes,), device=device)

    def inputs(graph: Tensor = edge_index) -> tuple[Tensor, ...]:
        of_graph = (x, graph.clone() if fresh else graph)
        return of_graph if batch is None else (*of_graph, batch)

    def network(act: Callable[[int], torch.nn.Module], conv: str = conv) -> torch.nn.Module:
        return Network(partial(convolution, conv), act(width), width, graphs).to(device)

    names = {"ReLU": ReLU, "GReLU": GReLU} if how == "compiled" else ACTIVATIONS
    made = {}
    for name, act in names.items():
        model = network(act)
        if how == "compiled":
            # PyG's normalisation cannot be compiled: now the convolutions remember its result.
            model(*inputs())
            made[f"{name}, eager"] = training_step(copy.deepcopy(model), inputs, y)
            model = torch.compile(model, fullgraph=True)
        elif how == "graphed":
            model = torch.cuda.make_graphed_callables(model, inputs())
        made[name] = training_step(model, inputs, y)
    if how == "replayed":
        return {name: captured(step, device) for name, step in made.items()}
    if how == "one thread":
        return {name: partial(in_one_thread, step) for name, step in made.items()}
    if how == "eager" and device.type == "cuda":
        step = training_step(network(GReLU), partial(inputs, edge_index.clone()), y)
        made["GReLU, no kernels"] = partial(without_kernels, step)
    if how == "eager" and conv == "gcn" and not fresh:
        made["GAT with ReLU"] = training_step(network(ReLU, "gat"), inputs, y)
    return made


def activation_alone(
    nodes: int, edges: int, width: int, device: torch.device, **options: Any
) -> dict[str, Step]:
    """Forward and backward of the activation itself."""
    torch.manual_seed(0)
    edge_index = random_graph(nodes, edges, 0).to(device)
    x = torch.randn(nodes, width, device=device, requires_grad=True)
    grad = torch.randn_like(x)

    def both(act: torch.nn.Module) -> None:
        x.grad = None
        act.zero_grad()
        act(x, edge_index).backward(grad)

    acts = {name: act(width).to(device) for name, act in ACTIVATIONS.items()}
    acts["GReLU, Chebyshev"] = GReLU(width, diffusion="chebyshev", steps=5).to(device)
    return {name: partial(both, act) for name, act in acts.items()}


def seeds_at_once(dataset: str, seeds: int, device: torch.device) -> dict[str, Step]:
    """100 epochs of all seeds of the laboratory, on a generated graph; building the models and, on
    a GPU, capturing an epoch are not counted."""
    from graphrelu.lab.data import load
    from graphrelu.lab.record.recipes import recipe
    from graphrelu.lab.reproduce.runtime import batched

    graph = load(dataset, None)

    def training(activation: str, backbone: str) -> Step:
        config = recipe(graph.name, graph.family, backbone, activation, epochs=100, patience=0)
        return partial(batched(config, graph, seeds, device), config.epochs)

    names = {"ReLU": "relu", "PReLU": "prelu", "Maxout": "maxout", "GReLU": "grelu"}
    steps = {name: training(own, "gcn") for name, own in names.items()}
    if device.type == "cuda":
        steps["GAT with ReLU"] = training("relu", "gat")
    return steps


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other processes that never rest, as the workers of a data loader."""
    others = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()


def cases(device: torch.device, seeds: int) -> dict[str, Callable[[], dict[str, Step]]]:
    large = device.type == "cuda"
    made: dict[str, Callable[[], dict[str, Step]]] = {
        "small graph: GCN, 3,300 nodes, 9,100 edges": partial(
            steps_of, "gcn", 3_300, 9_100, device
        ),
        "fresh graph: SAGE, 2,000 nodes, 20,000 edges": partial(
            steps_of, "sage", 2_000, 20_000, device, fresh=True
        ),
        "fresh graph: SAGE, 100,000 nodes, 1,000,000 edges": partial(
            steps_of, "sage", 100_000, 1_000_000, device, fresh=True
        ),
        "GCN, 100,000 nodes, 1,000,000 edges": partial(steps_of, "gcn", 100_000, 1_000_000, device),
        "compiled: GCN, 20,000 nodes, 200,000 edges": partial(
            steps_of, "gcn", 20_000, 200_000, device, how="compiled"
        ),
        "batch of 128 graphs: GIN, 39 nodes and 146 edges each": partial(
            steps_of, "gin", 39, 146, device, graphs=128
        ),
        "alone: 100,000 nodes, 1,000,000 edges, C = 64": partial(
            activation_alone, 100_000, 1_000_000, 64, device
        ),
    }
    if large:
        made |= {
            "backward in the caller's thread: GCN, 3,300 nodes, 9,100 edges": partial(
                steps_of, "gcn", 3_300, 9_100, device, how="one thread"
            ),
            "captured as a CUDA graph: GCN, 3,300 nodes, 9,100 edges": partial(
                steps_of, "gcn", 3_300, 9_100, device, how="replayed"
            ),
            "captured as a CUDA graph: 128 graphs, GIN, 39 nodes and 146 edges each": partial(
                steps_of, "gin", 39, 146, device, graphs=128, how="replayed"
            ),
            "make_graphed_callables: GCN, 3,300 nodes, 9,100 edges": partial(
                steps_of, "gcn", 3_300, 9_100, device, how="graphed"
            ),
            "GCN, 1,000,000 nodes, 10,000,000 edges": partial(
                steps_of, "gcn", 1_000_000, 10_000_000, device
            ),
            "alone: 1,000,000 nodes, 10,000,000 edges, C = 64": partial(
                activation_alone, 1_000_000, 10_000_000, 64, device
            ),
            "alone: 200,000 nodes, 4,000,000 edges, C = 256": partial(
                activation_alone, 200_000, 4_000_000, 256, device
            ),
        }
    else:
        spins = os.environ.get("GOMP_SPINCOUNT")
        name = "alone, on a busy machine" + (f", GOMP_SPINCOUNT={spins}" if spins else "")
        made[name] = partial(activation_alone, 100_000, 1_000_000, 64, device)
    name = f"{seeds} seeds at once: 100 epochs of a GCN, 3,000 nodes"
    made[name] = partial(seeds_at_once, "csbm:nodes=3000,degree=3", seeds, device)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seeds", type=int, default=100, help="that are trained at once")
    parser.add_argument("--out", type=Path, help="where to keep the record (JSON)")
    args = parser.parse_args()
    device = torch.device(args.device)
    rows: dict[str, dict[str, float]] = {}
    if args.out is not None and args.out.exists():
        rows = json.loads(args.out.read_text())["milliseconds"]

    made = cases(device, args.seeds)
    chosen = [args.only] if args.only in made else [name for name in made if args.only in name]
    names = [name for name in chosen if name not in rows]
    if device.type == "cpu" and len(names) > 1:
        # Each in a process of its own, as in a training: in one that has used much memory before,
        # no page is fresh, and some rivals are three times as fast.
        for name in names:
            subprocess.run([sys.executable, *sys.argv, "--only", name], check=True)
        return
    for name in names:
        with busy(2 if "busy" in name else 0):
            calls = 1 if "seeds" in name else None
            rows[name] = times = milliseconds_in_turn(made[name](), device, calls=calls)
        print(f"\n{name}")
        for rival, time in times.items():
            print(f"  {rival:38}{time:10.3f} ms{time / times['ReLU']:8.2f} x ReLU", flush=True)
        if args.out is not None:  # case by case: a run that is ended early loses none
            save(args.out, {**surroundings(device), "milliseconds": rows})


if __name__ == "__main__":
    main()
