"""Time of a forward and a backward pass against the sizes that the paper's section 4.4 names."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv

from graphrelu import GReLU
from graphrelu.diffusion import DiffusionSettings, prepared
from graphrelu.lab.engine import choose_device
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.entries import Entries, Entry
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing
from graphrelu.lab.reproduce.timing import captured, seconds

HEAD_WIDTH = 8
IDENTITY = ("axis", "value", "what", "nodes", "edges", "channels", "K", "device")


@dataclass(frozen=True)
class Sweep:
    """One size from ``first`` to ``last`` in ``count`` equal ratios, the others as given.

    ``edges`` are directed ones. Channels follow the heads, :data:`HEAD_WIDTH` for each.
    """

    axis: str
    first: int
    last: int
    count: int
    nodes: int = 0
    edges: int = 0
    channels: int = 0
    K: int = 2


class Point(NamedTuple):
    """One measurement."""

    axis: str
    value: int
    what: str
    nodes: int
    edges: int
    channels: int
    K: int


# Two decades in edges, nodes and channels each, such that the varied term dominates from the
# smallest size on; what a GPU's kernels cost at the least asks for far larger sizes there.
SWEEPS = {
    "cpu": (
        Sweep("edges", 300_000, 30_000_000, 7, nodes=1_000, channels=1),
        Sweep("nodes", 10_000, 1_000_000, 7, edges=10_000, channels=64),
        Sweep("channels", 16, 1_600, 7, nodes=50_000, edges=10_000),
        Sweep("segments", 1, 16, 5, nodes=50_000, edges=100_000, channels=64),
        Sweep("heads", 1, 16, 5, nodes=20_000, edges=200_000),
    ),
    "cuda": (
        Sweep("edges", 4_000_000, 400_000_000, 7, nodes=100_000, channels=1),
        Sweep("nodes", 500_000, 50_000_000, 7, edges=100_000, channels=64),
        Sweep("channels", 160, 16_000, 5, nodes=200_000, edges=100_000),
        Sweep("segments", 1, 16, 5, nodes=1_000_000, edges=1_000_000, channels=64),
        Sweep("heads", 1, 16, 5, nodes=1_000_000, edges=10_000_000),
    ),
    "quick": (
        Sweep("edges", 100_000, 10_000_000, 5, nodes=1_000, channels=1),
        Sweep("nodes", 5_000, 500_000, 5, edges=5_000, channels=64),
        Sweep("channels", 16, 1_600, 5, nodes=20_000, edges=5_000),
        Sweep("segments", 1, 16, 5, nodes=20_000, edges=100_000, channels=64),
        Sweep("heads", 1, 16, 5, nodes=5_000, edges=50_000),
    ),
}
FIELDS: dict[str, kinds.Kind] = {
    "axis": kinds.one_of({sweep.axis for sweeps in SWEEPS.values() for sweep in sweeps}),
    "what": kinds.one_of(("grelu", "gcn+grelu", "gat")),
    **dict.fromkeys(("value", "seconds"), kinds.positive),
    **dict.fromkeys(("nodes", "edges", "channels", "K", "steps"), kinds.whole),
    "repeats": kinds.listed(kinds.positive),
    "preparation": kinds.optional(kinds.number),
    "diffusion": kinds.text,
    **kinds.SURROUNDINGS,
}
# The default on a CPU; on a GPU the form with fewer products, of the same worst-case accuracy.
DIFFUSION: dict[str, dict[str, Any]] = {
    "cpu": {"diffusion": "power", "steps": 10},
    "cuda": {"diffusion": "chebyshev", "steps": 5},
}


class GCNLayer(torch.nn.Module):
    """A convolution with GReLU, to compare with a layer of attention."""

    def __init__(self, channels: int, act: GReLU) -> None:
        super().__init__()
        self.conv = GCNConv(channels, channels, cached=True)
        self.act = act

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.act(self.conv(x, edge_index), edge_index)
        return out


def points(sweeps: tuple[Sweep, ...]) -> Iterator[Point]:
    """All measurements, from the smallest size of each sweep to the largest."""
    for sweep in sweeps:
        ratio = (sweep.last / sweep.first) ** (1 / (sweep.count - 1))
        for i in range(sweep.count):
            value = round(sweep.first * ratio**i)
            sizes = {name: getattr(sweep, name) for name in ("nodes", "edges", "channels", "K")}
            if sweep.axis == "heads":
                sizes["channels"] = HEAD_WIDTH * value
            else:
                sizes["K" if sweep.axis == "segments" else sweep.axis] = value
            for what in ("grelu", "gcn+grelu", "gat") if sweep.axis == "heads" else ("grelu",):
                yield Point(sweep.axis, value, what, **sizes)


def record_of(path: Path) -> Entries:
    return Entries(path, "timed", IDENTITY, FIELDS)


def collect(request: Request) -> str:
    """Measures the points that the record lacks."""
    request.stays_here()
    deadline = request.deadline()
    device = choose_device(request.device)
    record = record_of(output.check_record(request.out))
    wanted = list(points(SWEEPS["quick" if request.quick else device.type]))
    done = {record.key(entry) for entry in record.read()}
    finished = 0
    for point in wanted:
        entry = point._asdict() | {"device": device_name(device)}
        if record.key(entry) not in done:
            if time.monotonic() > deadline:
                continue
            record.append([entry | measure(point, request.runs, device) | surroundings(device)])
        finished += 1
    return standing(finished, len(wanted), request.out, "timings")


def measure(point: Point, repeats: int, device: torch.device) -> Entry:
    """Seconds of a forward and a backward pass, and apart from it of preparing the graph."""
    torch.manual_seed(0)
    settings = DIFFUSION[device.type]
    edge_index = random_graph(point.nodes, point.edges, device)
    x = torch.randn(point.nodes, point.channels, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    act = GReLU(point.channels, K=point.K, device=device, validate=False, **settings)
    with torch.no_grad():
        for parameter in act.parameters():  # zeros would hide a part of the work
            parameter.fill_(0.1)

    def prepare() -> None:  # remembered by the graph, so that the calls below find it
        form = DiffusionSettings(act.alpha, act.steps, act.diffusion, act.add_self_loops)
        prepared(edge_index, None, point.nodes, x.dtype, form, None, False)

    model: torch.nn.Module = act
    if point.what == "gcn+grelu":
        model = GCNLayer(point.channels, act).to(device)
    elif point.what == "gat":
        model = GATConv(point.channels, HEAD_WIDTH, heads=point.channels // HEAD_WIDTH).to(device)
    preparation = None if point.what == "gat" else seconds(prepare, device)
    leaves = [x, *model.parameters()]

    def step() -> None:
        torch.autograd.grad(model(x, edge_index), leaves, grad)

    step()  # first calls allocate and choose kernels
    if device.type == "cuda" and point.what == "grelu":
        step = captured(step, device)  # else launches would hide what a size costs
    times = [seconds(step, device) for _ in range(repeats)]
    return {
        "seconds": statistics.median(times),
        "repeats": times,
        "preparation": preparation,
        **settings,
    }


def random_graph(nodes: int, edges: int, device: torch.device) -> Tensor:
    """An undirected graph, its ends drawn uniformly."""
    ends = torch.randint(nodes, (2, edges // 2), device=device)
    return torch.cat([ends, ends.flip(0)], dim=1)


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of all measurements on record."""
    from graphrelu.lab.reproduce.complexity_page import write

    return write(record_of(record).required(), record)


EXPERIMENT = Experiment(runs=7, quick_runs=3, collect=collect, render=render)
