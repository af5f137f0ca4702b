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
from measure import milliseconds, peak_mebibytes, random_graph, save
from runtime import batched
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, ModuleList, Sequential
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINEConv, SAGEConv, global_mean_pool

from graphrelu import GReLU
from graphrelu.lab.data import load
from graphrelu.lab.engine.timing import captured
from graphrelu.lab.models.activations import GELU, Maxout, PReLU, ReLU
from graphrelu.lab.models.digraf import DiGRAF
from graphrelu.lab.record.recipes import recipe

ACTIVATIONS = {kind.__name__: kind for kind in (ReLU, PReLU, GELU, Maxout, GReLU)}
Step = Callable[[], None]

# Convolution, nodes, edges and options of :func:`steps_of`, of each case.
SMALL = (3_300, 9_100)
REPLAYED, ONE_THREAD = {"how": "replayed"}, {"how": "one thread"}
ANYWHERE: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "small graph: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, {}),
    "fresh graph: SAGE, 2,000 nodes, 20,000 edges": ("sage", 2_000, 20_000, {"fresh": True}),
    "fresh graph: SAGE, 100,000 nodes, 1,000,000 edges": ("sage", 10**5, 10**6, {"fresh": True}),
    "GCN, 100,000 nodes, 1,000,000 edges": ("gcn", 10**5, 10**6, {}),
    "compiled: GCN, 20,000 nodes, 200,000 edges": ("gcn", 20_000, 200_000, {"how": "compiled"}),
    "alone: 100,000 nodes, 1,000,000 edges, C = 64": ("alone", 10**5, 10**6, {}),
}
ON_A_GPU: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "backward in the caller's thread: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, ONE_THREAD),
    "captured as a CUDA graph: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, REPLAYED),
    "make_graphed_callables: GCN, 3,300 nodes, 9,100 edges": ("gcn", *SMALL, {"how": "graphed"}),
    "GCN, 1,000,000 nodes, 10,000,000 edges": ("gcn", 10**6, 10**7, {}),
    "alone: 1,000,000 nodes, 10,000,000 edges, C = 64": ("alone", 10**6, 10**7, {}),
    "alone: 200,000 nodes, 4,000,000 edges, C = 256": ("alone", 200_000, 4 * 10**6, {"width": 256}),
}
# A batch that is new in every step: convolution, layers, channels, graphs, nodes of a graph. The
# sizes are those of ZINC, and of Peptides with the network of Toenshoff et al.
BATCHES: dict[str, tuple[str, int, int, int, int]] = {
    "fresh batch of 128 molecules: GCN, 4 x 64": ("gcn", 4, 64, 128, 23),
    "fresh batch of 128 molecules: GINE, 4 x 64": ("gine", 4, 64, 128, 23),
    "fresh batch of 200 peptides: GCN, 6 x 235": ("gcn", 6, 235, 200, 150),
    "alone on a batch of 128 molecules, C = 64": ("alone", 1, 64, 128, 23),
}


class Network(torch.nn.Module):
    """Two convolutions with one activation between them."""

    def __init__(self, conv: Callable[[int], Any], act: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.first, self.act, self.second = conv(width), act, conv(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.act(self.first(x, edge_index), edge_index), edge_index)


class GraphNetwork(torch.nn.Module):
    """Convolutions with batch normalisation and skips, and a mean over each graph."""

    def __init__(self, conv: str, layers: int, width: int, act: Callable[[int], Any]) -> None:
        super().__init__()
        self.convs = ModuleList(convolution(conv, width) for _ in range(layers))
        self.norms = ModuleList(BatchNorm1d(width) for _ in range(layers))
        self.acts = ModuleList(act(width) for _ in range(layers))

    def forward(self, data: Data) -> Tensor:
        x, graph = data.x, data.edge_index
        for conv, norm, act in zip(self.convs, self.norms, self.acts, strict=True):
            of_edges = (data.edge_attr,) if isinstance(conv, GINEConv) else ()
            own = norm(conv(x, graph, *of_edges))
            x = x + act(own, graph, batch=data.batch, batch_size=data.num_graphs)
        return global_mean_pool(x, data.batch, data.num_graphs)


def convolution(name: str, width: int, cached: bool = False) -> torch.nn.Module:
    if name == "gcn":
        return GCNConv(width, width, cached=cached)
    if name == "gat":
        return GATConv(width, width // 8, heads=8)
    if name == "gine":
        return GINEConv(Sequential(Linear(width, width), torch.nn.ReLU(), Linear(width, width)))
    return SAGEConv(width, width)


def molecule(nodes: int, width: int) -> Data:
    """A random tree of low degree with a ring for each eight nodes."""
    node = torch.arange(1, nodes)
    before = node - 1 - (torch.rand(nodes - 1) * node.clamp(max=3)).long()
    closing = torch.randint(6, nodes, (nodes // 8,))
    ends = torch.cat([torch.stack([node, before]), torch.stack([closing, closing - 6])], dim=1)
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    edge_attr = torch.randn(edge_index.size(1), width)
    return Data(x=torch.randn(nodes, width), edge_index=edge_index, edge_attr=edge_attr)


def batch_steps(
    device: torch.device, conv: str, layers: int, width: int, graphs: int, nodes: int
) -> dict[str, Step]:
    """A training step of each rival on a batch that no step has seen before; or forward and
    backward of the activation `"alone"`, beside a convolution."""
    torch.manual_seed(0)
    sizes = [int(size) for size in torch.randint(nodes // 2, nodes + nodes // 2, (graphs,))]
    batch: Any = Batch.from_data_list([molecule(size, width) for size in sizes]).to(device)
    if conv == "alone":
        x, graph = batch.x.requires_grad_(), (batch.edge_index, None, batch.batch, graphs)
        convolution = GCNConv(width, width).to(device)
        rivals = ACTIVATIONS | {"DiGRAF": DiGRAF}
        steps = {name: both(make(width).to(device), x, *graph) for name, make in rivals.items()}
        return steps | {"GCNConv": both(convolution, x, batch.edge_index)}

    def fresh() -> tuple[Data]:
        batch.edge_index = batch.edge_index.clone()
        return (batch,)

    y = torch.randint(width, (graphs,), device=device)

    def step(act: Callable[[int], Any]) -> Step:
        return training_step(GraphNetwork(conv, layers, width, act).to(device), fresh, y)

    return {name: step(act) for name, act in ACTIVATIONS.items()}


def training_step(model: torch.nn.Module, inputs: Callable[[], tuple], y: Tensor) -> Step:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, capturable=y.is_cuda)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(*inputs()), y).backward()
        optimizer.step()

    return step


def with_backend(name: str, step: Step) -> None:
    with mock.patch.dict(os.environ, GRAPHRELU_BACKEND=name):
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
) -> dict[str, Step]:
    """A training step of each rival on one graph, or on a graph that is new in every step; or
    forward and backward of the activation `"alone"`.

    `how` is `"eager"`, `"compiled"`, or on a GPU `"replayed"` as a CUDA graph, `"graphed"`, which
    is the model alone as CUDA graphs, or `"one thread"`, with the backward pass in the caller's.
    """
    torch.manual_seed(0)
    edge_index = random_graph(nodes, edges).to(device)
    x = torch.randn(nodes, width, device=device)
    if conv == "alone":
        x.requires_grad_()
        return {n: both(act(width).to(device), x, edge_index) for n, act in ACTIVATIONS.items()}
    y = torch.randint(width, (nodes,), device=device)

    def inputs(graph: Tensor = edge_index) -> tuple[Tensor, ...]:
        return x, graph.clone() if fresh else graph

    def network(act: Callable[[int], torch.nn.Module], conv: str = conv) -> torch.nn.Module:
        return Network(partial(convolution, conv, cached=True), act(width), width).to(device)

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
        made["GReLU, no kernels"] = partial(with_backend, "torch", step)
    if how == "eager" and conv == "gcn" and not fresh:
        made["GAT with ReLU"] = training_step(network(ReLU, "gat"), inputs, y)
    return made


def both(module: torch.nn.Module, x: Tensor, *graph: Any) -> Step:
    """Forward and backward of a module alone."""
    grad = torch.randn_like(x)

    def step() -> None:
        x.grad = None
        module.zero_grad()
        module(x, *graph).backward(grad)

    return step


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
    } | {name: partial(batch_steps, device, *sizes) for name, sizes in BATCHES.items()}
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
    peaks: dict[str, dict[str, float]] = {}
    if args.out is not None and args.out.exists():
        record = json.loads(args.out.read_text())
        rows, peaks = record["milliseconds"], record.get("mebibytes", {})

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
            steps = made[name]()
            rows[name] = times = milliseconds(steps, device, calls=calls)
            peaks[name] = {rival: peak_mebibytes(step, device) for rival, step in steps.items()}
        print(f"\n{name}")
        for rival, time in times.items():
            ratios = f"{time / times['ReLU']:8.2f} x", f"{peaks[name][rival]:9.1f} MiB"
            print(f"  {rival:38}{time:10.3f} ms{''.join(ratios)}", flush=True)
        # Case by case: a run that is ended early loses none.
        save(args.out, device, {"milliseconds": rows, "mebibytes": peaks})


if __name__ == "__main__":
    main()
