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
from measure import milliseconds, random_graph, save
from runtime import batched
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.engine.timing import captured
from graphrelu.lab.models.activations import GELU, Maxout, PReLU, ReLU
from graphrelu.lab.record.recipes import recipe

ACTIVATIONS = {kind.__name__: kind for kind in (ReLU, PReLU, GELU, Maxout, GReLU)}
Step = Callable[[], None]

# Convolution, nodes, edges and options of :func:`steps_of`, of each case.
SMALL = (3_300, 9_100)
REPLAYED, ONE_THREAD = {"how": "replayed"}, {"how": "one thread"}
REPLAYED_BATCH = {"graphs": 128, "how": "replayed"}
ANYWHERE: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "small graph: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, {}),
    "fresh graph: SAGE, 2,000 nodes, 20,000 edges": ("sage", 2_000, 20_000, {"fresh": True}),
    "fresh graph: SAGE, 100,000 nodes, 1,000,000 edges": ("sage", 10**5, 10**6, {"fresh": True}),
    "GCN, 100,000 nodes, 1,000,000 edges": ("gcn", 10**5, 10**6, {}),
    "compiled: GCN, 20,000 nodes, 200,000 edges": ("gcn", 20_000, 200_000, {"how": "compiled"}),
    "batch of 128 graphs: GIN, 39 nodes and 146 edges each": ("gin", 39, 146, {"graphs": 128}),
    "alone: 100,000 nodes, 1,000,000 edges, C = 64": ("alone", 10**5, 10**6, {}),
}
ON_A_GPU: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "backward in the caller's thread: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, ONE_THREAD),
    "captured as a CUDA graph: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, REPLAYED),
    "captured as a CUDA graph: 128 graphs, GIN, 39 nodes and 146 edges each": (
        *("gin", 39, 146, REPLAYED_BATCH),
    ),
    "make_graphed_callables: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, {"how": "graphed"}),
    "GCN, 1,000,000 nodes, 10,000,000 edges": ("gcn", 10**6, 10**7, {}),
    "alone: 1,000,000 nodes, 10,000,000 edges, C = 64": ("alone", 10**6, 10**7, {}),
    "alone: 200,000 nodes, 4,000,000 edges, C = 256": ("alone", 200_000, 4 * 10**6, {"width": 256}),
}


class Network(torch.nn.Module):
    """Two convolutions with one activation between them, for nodes or for a batch of graphs."""

    def __init__(
        self, conv: Callable[[int], Any], act: torch.nn.Module, width: int, graphs: int = 1
    ) -> None:
        super().__init__()
        self.first, self.act, self.second = conv(width), act, conv(width)
        self.graphs = graphs

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        own = {} if batch is None else {"batch": batch, "batch_size": self.graphs}
        x = self.act(self.first(x, edge_index), edge_index, **own)
        x = self.second(x, edge_index)
        return x if batch is None else global_add_pool(x, batch, self.graphs)


def convolution(name: str, width: int) -> torch.nn.Module:
    if name == "gcn":
        return GCNConv(width, width, cached=True)
    if name == "gat":
        return GATConv(width, width // 8, heads=8)
    return GINConv(torch.nn.Linear(width, width)) if name == "gin" else SAGEConv(width, width)


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
    device: torch.device,
    conv: str,
    nodes: int,
    edges: int,
    width: int = 64,
    fresh: bool = False,
    how: str = "eager",
    graphs: int = 1,
) -> dict[str, Step]:
    """A training step of each rival on one graph, or on a graph that is new in every step; or
    forward and backward of the activation `"alone"`.

    `how` is `"eager"`, `"compiled"`, or on a GPU `"replayed"` as a CUDA graph, `"graphed"`, which
    is the model alone as CUDA graphs, or `"one thread"`, with the backward pass in the caller's.
    """
    torch.manual_seed(0)
    edge_index, batch = random_graph(nodes, edges), None
    if graphs > 1:
        edge_index = torch.cat([edge_index + nodes * graph for graph in range(graphs)], dim=1)
        batch = torch.arange(graphs).repeat_interleave(nodes).to(device)
    edge_index, nodes = edge_index.to(device), nodes * graphs
    x = torch.randn(nodes, width, device=device)
    if conv == "alone":
        return activation_alone(x.requires_grad_(), edge_index)
    y = torch.randint(width, (graphs if graphs > 1 else nodes,), device=device)

    def inputs(graph: Tensor = edge_index) -> tuple[Tensor, ...]:
        of_graph = (x, graph.clone() if fresh else graph)
        return of_graph if batch is None else (*of_graph, batch)

    def network(act: Callable[[int], torch.nn.Module], conv: str = conv) -> torch.nn.Module:
        return Network(partial(convolution, conv), act(width), width, graphs).to(device)

    made = {}
    for name in ("ReLU", "GReLU") if how == "compiled" else ACTIVATIONS:
        model = network(ACTIVATIONS[name])
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


def activation_alone(x: Tensor, edge_index: Tensor) -> dict[str, Step]:
    grad = torch.randn_like(x)

    def both(act: torch.nn.Module) -> None:
        x.grad = None
        act.zero_grad()
        act(x, edge_index).backward(grad)

    return {name: partial(both, act(x.size(1)).to(x.device)) for name, act in ACTIVATIONS.items()}


def seeds_at_once(device: torch.device, seeds: int) -> dict[str, Step]:
    """100 epochs of all seeds of the laboratory, on a generated graph; building the models and, on
    a GPU, capturing an epoch are not counted."""
    graph = load("csbm:nodes=3000,degree=3", None)
    rivals = {name: (name.lower(), "gcn") for name in ("ReLU", "PReLU", "Maxout", "GReLU")}
    if device.type == "cuda":
        rivals["GAT with ReLU"] = ("relu", "gat")
    made = {}
    for name, (activation, backbone) in rivals.items():
        config = recipe(graph.name, backbone, activation, epochs=100, patience=0)
        made[name] = partial(batched(config, graph, seeds, device), config.epochs)
    return made


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
    known = ANYWHERE | (ON_A_GPU if device.type == "cuda" else {})
    made: dict[str, Callable[[], dict[str, Step]]] = {
        name: partial(steps_of, device, *sizes, **options)
        for name, (*sizes, options) in known.items()
    }
    if device.type == "cpu":
        spins = os.environ.get("GOMP_SPINCOUNT")
        name = "alone, on a busy machine" + (f", GOMP_SPINCOUNT={spins}" if spins else "")
        made[name] = partial(steps_of, device, "alone", 10**5, 10**6)
    name = f"{seeds} seeds at once: 100 epochs of a GCN, 3,000 nodes"
    return made | {name: partial(seeds_at_once, device, seeds)}


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
            rows[name] = times = milliseconds(made[name](), device, calls=calls)
        print(f"\n{name}")
        for rival, time in times.items():
            print(f"  {rival:38}{time:10.3f} ms{time / times['ReLU']:8.2f} x ReLU", flush=True)
        # Case by case: a run that is ended early loses none.
        save(args.out, device, {"milliseconds": rows})


if __name__ == "__main__":
    main()
