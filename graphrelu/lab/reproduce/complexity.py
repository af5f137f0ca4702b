"""The paper's section 4.4: time of a forward and a backward pass against every size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv

from graphrelu import GReLU
from graphrelu.graph import DiffusionSettings, prepared
from graphrelu.lab import stats
from graphrelu.lab.engine import choose_device
from graphrelu.lab.engine.timing import captured, seconds
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.entries import Entries, Entry, origin
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.render import export, figures
from graphrelu.lab.reproduce.experiment import Experiment, Request, filled, standing

HEAD_WIDTH = 8
SIZES = ("nodes", "edges", "channels", "K")
IDENTITY = ("axis", "value", "what", *SIZES, "device", "diffusion", "steps")
AXES = {
    "edges": "directed edges |E|",
    "nodes": "nodes |V|",
    "channels": "channels C",
    "segments": "segments K",
    "heads": f"heads M, {HEAD_WIDTH} channels each",
}
WHAT = {"grelu": "GReLU", "gcn+grelu": "GCN layer with GReLU", "gat": "GAT layer"}
FIELDS: dict[str, kinds.Kind] = {
    "axis": kinds.one_of(AXES),
    "what": kinds.one_of(WHAT),
    **dict.fromkeys(("value", "seconds"), kinds.positive),
    **dict.fromkeys((*SIZES, "steps"), kinds.whole),
    "repeats": kinds.listed(kinds.positive),
    "preparation": kinds.optional(kinds.number),
    "diffusion": kinds.text,
    **kinds.SURROUNDINGS,
}
record_of = partial(Entries, event="timed", identity=IDENTITY, fields=FIELDS)  # of a path


class Sweep(NamedTuple):
    """One size at so many points from ``first`` to ``last``, in equal ratios; the others are fixed.

    ``edges`` are directed. A sweep over heads has :data:`HEAD_WIDTH` channels for each head.
    """

    axis: str
    first: int
    last: int
    points: int
    nodes: int = 0
    edges: int = 0
    channels: int = 0
    K: int = 2


# Two decades in edges, nodes and channels, where the varied term dominates from the smallest size
# on. Every kernel of a GPU has a fixed cost, so that a GPU needs far larger sizes.
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


class Point(NamedTuple):
    """One measurement."""

    axis: str
    value: int
    what: str
    nodes: int
    edges: int
    channels: int
    K: int


def points(sweeps: Sequence[Sweep]) -> Iterator[Point]:
    """All measurements, from the smallest size of each sweep to the largest."""
    for sweep in sweeps:
        ratio = (sweep.last / sweep.first) ** (1 / (sweep.points - 1))
        for i in range(sweep.points):
            value = round(sweep.first * ratio**i)
            sizes = {name: getattr(sweep, name) for name in SIZES}
            if sweep.axis == "heads":
                sizes["channels"] = HEAD_WIDTH * value
            else:
                sizes["K" if sweep.axis == "segments" else sweep.axis] = value
            for what in WHAT if sweep.axis == "heads" else ("grelu",):
                yield Point(sweep.axis, value, what, **sizes)


def collect(request: Request) -> str:
    """Measure the points that the record lacks."""
    request.stays_here()
    deadline = request.deadline
    device = choose_device(request.device)
    record = record_of(output.check_record(request.out))
    wanted = list(points(SWEEPS["quick" if request.quick else device.type]))
    done = {record.key(entry) for entry in record.read()}
    act = GReLU(1)
    where = {"device": device_name(device), "diffusion": act.diffusion, "steps": act.steps}
    missing = [point for point in wanted if record.key(point._asdict() | where) not in done]
    request.announce(lambda: expected_seconds(missing, request.runs, device))
    finished = len(wanted) - len(missing)
    for point in missing:
        if time.monotonic() > deadline:
            break
        found = measure(point, request.runs, device) | surroundings(device)
        record.append([point._asdict() | where | found])
        finished += 1
    return standing(finished, len(wanted), request.out, "timings")


def expected_seconds(missing: Sequence[Point], repeats: int, device: torch.device) -> float:
    """The time of all points, from one measurement of each sweep: time grows with the size."""
    sweeps: dict[tuple[str, str], list[Point]] = {}
    for point in missing:
        sweeps.setdefault((point.axis, point.what), []).append(point)
    total = 0.0
    for several in sweeps.values():
        found = measure(several[0], 1, device)
        one = (found["preparation"] or 0.0) + (1 + repeats) * found["seconds"]
        total += one * sum(point.value for point in several) / several[0].value
    return total


def measure(point: Point, repeats: int, device: torch.device) -> Entry:
    """Seconds of a forward and a backward pass, and seconds of preparing the graph."""
    torch.manual_seed(0)
    edge_index = random_graph(point.nodes, point.edges, device)
    x = torch.randn(point.nodes, point.channels, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    act = GReLU(point.channels, K=point.K).to(device)
    with torch.no_grad():
        for parameter in act.parameters():  # zeros would hide a part of the work
            parameter.fill_(0.1)

    def prepare() -> None:  # remembered by the graph, so that the calls below find it
        form = DiffusionSettings(act.alpha, act.steps, act.diffusion)
        prepared(edge_index, None, point.nodes, x.dtype, form, None, x.is_cpu)

    layers: list[torch.nn.Module] = [act]
    if point.what == "gcn+grelu":
        layers = [GCNConv(point.channels, point.channels, cached=True).to(device), act]
    elif point.what == "gat":
        heads = point.channels // HEAD_WIDTH
        layers = [GATConv(point.channels, HEAD_WIDTH, heads=heads).to(device)]
    preparation = None if point.what == "gat" else seconds(prepare, device)
    leaves = [x, *(parameter for layer in layers for parameter in layer.parameters())]

    def step() -> None:
        out = x
        for layer in layers:
            out = layer(out, edge_index)
        torch.autograd.grad(out, leaves, grad)

    step()  # first calls allocate and choose kernels
    if device.type == "cuda" and point.what == "grelu":
        step = captured(step, device)  # else launches would hide what a size costs
    times = [seconds(step, device) for _ in range(repeats)]
    median = statistics.median(times)
    return {"seconds": median, "repeats": times, "preparation": preparation}


def random_graph(nodes: int, edges: int, device: torch.device) -> Tensor:
    """An undirected graph, its ends drawn uniformly."""
    ends = torch.randint(nodes, (2, edges // 2), device=device)
    return torch.cat([ends, ends.flip(0)], dim=1)


COLUMNS = (
    *("device", "axis", "what", "diffusion", "steps", "first", "last", "points", "exponent"),
    *("low", "high", "one_more", "first_seconds", "last_seconds", "ratio", "preparation"),
)


def sweeps_of(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The points of each sweep that has two sizes or more, by size."""
    axes, whats = list(AXES), list(WHAT)

    def place(entry: Entry) -> tuple[Any, ...]:
        form = entry["device"], entry["diffusion"], entry["steps"]
        return *form, axes.index(entry["axis"]), whats.index(entry["what"])

    ordered = sorted(entries, key=lambda entry: (*place(entry), entry["value"]))
    groups = [list(group) for _, group in groupby(ordered, key=place)]
    return [group for group in groups if len({entry["value"] for entry in group}) > 1]


def row_of(sweep: Sequence[Entry]) -> Entry:
    """The exponent of a sweep with its 95 % interval, the seconds that one more of the size costs,
    and the times at both ends."""
    sizes, times = ([entry[name] for entry in sweep] for name in ("value", "seconds"))
    exponent, low, high = stats.power_law(sizes, times)
    row = sweep[-1] | {"first": sizes[0], "last": sizes[-1], "points": len(sweep)}
    row |= {"exponent": exponent, "low": low, "high": high}
    row |= {"one_more": float(np.polyfit(sizes, times, 1)[0]), "ratio": times[-1] / times[0]}
    return row | {"first_seconds": times[0], "last_seconds": times[-1]}


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of all measurements on record."""
    entries = record_of(record).required()
    sweeps = sweeps_of(entries)
    rows = [row_of(sweep) for sweep in sweeps]
    parts = []
    head = (
        *("size", "what", "from", "to", "exponent", "95 % interval"),
        *("smallest, ms", "largest, ms", "ratio", "one more, ms", "preparation, s"),
    )
    for (device, diffusion, steps), group in groupby(
        rows, itemgetter("device", "diffusion", "steps")
    ):
        table = export.table(head, map(_line, group), numbers=2)
        parts.append(f"## {device}: {diffusion} diffusion, {steps} steps\n\n{table}")
    heads = [sweep for sweep in sweeps if sweep[0]["axis"] == "heads"]
    for device, part in groupby(heads, key=lambda sweep: sweep[0]["device"]):
        table = _heads(list(part))
        parts += filled("complexity_heads", device=device, width=HEAD_WIDTH, table=table)
    told = origin(entries, record.name, "timing")
    page = filled("complexity", origin=told, devices="\n".join(parts))
    return figures.write(record, page, rows, COLUMNS, lambda: draw(sweeps))


def _line(row: Entry) -> tuple[str, ...]:
    interval = "" if row["low"] is None else f"[{row['low']:.2f}, {row['high']:.2f}]"
    preparation = "" if row["preparation"] is None else f"{row['preparation']:.2g}"
    return (
        *(AXES[row["axis"]].replace("|", r"\|"), WHAT[row["what"]]),
        *(f"{row['first']:,}", f"{row['last']:,}", f"{row['exponent']:.2f}", interval),
        *(f"{1e3 * row[name]:.3g}" for name in ("first_seconds", "last_seconds")),
        *(f"{row['ratio']:.0f}", f"{1e3 * row['one_more']:.2g}", preparation),
    )


def _heads(sweeps: Sequence[list[Entry]]) -> str:
    times = {
        (entry["what"], entry["value"]): f"{1e3 * entry['seconds']:.3g}"
        for sweep in sweeps
        for entry in sweep
    }
    whats = [sweep[0]["what"] for sweep in sweeps]
    sizes = sorted({value for _, value in times})
    lines = [(str(size), *(times.get((what, size), "") for what in whats)) for size in sizes]
    return export.table(("heads", *(WHAT[what] for what in whats)), lines, numbers=0)


def draw(sweeps: Sequence[list[Entry]]) -> figures.Figure:
    """Time over size, one panel for each kind of size."""
    figure, axes = figures.panels(2, 3, figsize=(11, 6.5))
    devices = list(dict.fromkeys(sweep[0]["device"] for sweep in sweeps))
    look = dict(zip(product(devices, WHAT), figures.line_styles(), strict=False))
    for axis, (name, title) in zip(axes.flat, AXES.items(), strict=False):
        for row, sweep in [(row_of(sweep), sweep) for sweep in sweeps if sweep[0]["axis"] == name]:
            axis.plot(
                *zip(*((entry["value"], 1e3 * entry["seconds"]) for entry in sweep), strict=True),
                label=f"{WHAT[row['what']]}, {row['device']}: exponent {row['exponent']:.2f}",
                **look[row["device"], row["what"]],
            )
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="forward + backward, ms")
        if axis.lines and len(axis.lines) <= len(devices):
            axis.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    # The panel of heads has too many lines for a legend inside it.
    heads, aside = axes.flat[-2:]
    aside.set_axis_off()
    aside.legend(
        *heads.get_legend_handles_labels(), fontsize=7, loc="center left", title=AXES["heads"]
    )
    return figure


EXPERIMENT = Experiment(runs=7, quick_runs=3, collect=collect, render=render)
