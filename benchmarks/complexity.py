"""The paper's section 4.4: time of a forward and a backward pass against every size.

python benchmarks/complexity.py            # measures what results/complexity.jsonl lacks
python benchmarks/complexity.py --render   # the page, the CSV file and the figure beside it
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import Entry, Timings, leave_start, origin, power_law, random_graph, seconds
from torch_geometric.nn import GATConv, GCNConv

from graphrelu import GReLU
from graphrelu.lab.engine.timing import captured
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.reproduce import figures, files

RECORD = Path(__file__).parents[1] / "results" / "complexity.jsonl"
PAGE = """\
# Complexity

{origin}

Forward and backward pass of one layer in float32 on a uniform random graph, median of the
repetitions. One size varies; the other sizes are fixed such that its term dominates. The exponent
is the slope of the least-squares line through the logarithms of size and time, with its 95 %
interval; with exponent 1 the time is proportional to the size. *One more* is the slope of the
straight line through the times: the cost of one more edge, node, channel, segment or head. The
graph is prepared before, once for a whole training; *preparation* is the time of this in seconds at
the largest size. The paper claims O(|E| + C|V|) for GReLU and O(M|E|) for the attention of GAT, and
prints no times.

"""
HEADS = """\
## Heads of attention: {device}

Milliseconds. GReLU alone computes its parameters and applies them. A GAT layer and a GCN layer with
GReLU also have a linear map and the aggregation. Each head has {width} channels, so that the
layers in a line have the same width.

{table}
"""
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


class Sweep(NamedTuple):
    """One size from ``first`` to ``last``, in equal ratios; the others are fixed.

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


class Point(NamedTuple):
    """One measurement."""

    axis: str
    value: int
    what: str
    nodes: int
    edges: int
    channels: int
    K: int


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
}


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


def collect(record: Timings, repeats: int, device: torch.device) -> None:
    """Measure the points that the record lacks."""
    done = {record.key(entry) for entry in record.read()}
    act = GReLU(1)
    where = {"device": device_name(device), "diffusion": act.diffusion, "steps": act.steps}
    for point in points(SWEEPS[device.type]):
        entry = point._asdict() | where
        if record.key(entry) not in done:
            record.append([entry | measure(point, repeats, device) | surroundings(device)])
            print(*point)


def measure(point: Point, repeats: int, device: torch.device) -> Entry:
    """Seconds of a forward and a backward pass, and seconds of preparing the graph."""
    torch.manual_seed(0)
    edge_index = random_graph(point.nodes, point.edges, device)
    x = torch.randn(point.nodes, point.channels, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    act = GReLU(point.channels, K=point.K).to(device)
    leave_start(act)

    def prepare() -> None:  # and one pass; remembered, so that the calls below find it
        with torch.no_grad():
            act(x, edge_index)

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
    exponent, low, high = power_law(sizes, times)
    row = sweep[-1] | {"first": sizes[0], "last": sizes[-1], "points": len(sweep)}
    row |= {"exponent": exponent, "low": low, "high": high}
    row |= {"one_more": float(np.polyfit(sizes, times, 1)[0]), "ratio": times[-1] / times[0]}
    return row | {"first_seconds": times[0], "last_seconds": times[-1]}


def page(entries: Sequence[Entry], rows: Sequence[Entry], sweeps: Sequence[list[Entry]]) -> str:
    parts = [PAGE.format(origin=origin(entries, RECORD.name))]
    head = (
        *("size", "what", "from", "to", "exponent", "95 % interval"),
        *("smallest, ms", "largest, ms", "ratio", "one more, ms", "preparation, s"),
    )
    for (device, diffusion, steps), group in groupby(
        rows, itemgetter("device", "diffusion", "steps")
    ):
        table = files.table(head, map(_line, group), numbers=2)
        parts.append(f"## {device}: {diffusion} diffusion, {steps} steps\n\n{table}")
    heads = [sweep for sweep in sweeps if sweep[0]["axis"] == "heads"]
    for device, part in groupby(heads, key=lambda sweep: sweep[0]["device"]):
        parts.append(HEADS.format(device=device, width=HEAD_WIDTH, table=_heads(list(part))))
    return "\n".join(parts)


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
    return files.table(("heads", *(WHAT[what] for what in whats)), lines, numbers=0)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="repetitions of each timing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RECORD, help="the record (.jsonl)")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    args = parser.parse_args()
    record = Timings(args.out, IDENTITY)
    if not args.render:
        collect(record, args.runs, torch.device(args.device))
    entries = record.read()
    sweeps = sweeps_of(entries)
    rows = [row_of(sweep) for sweep in sweeps]
    text = page(entries, rows, sweeps)
    print(*files.write(args.out, text, files.csv(rows, COLUMNS), lambda: draw(sweeps)))


if __name__ == "__main__":
    main()
