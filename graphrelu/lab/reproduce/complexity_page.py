"""The record of timings over sizes as a page, a table and a figure, with fitted exponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphrelu.lab.record.entries import Entry, origin
from graphrelu.lab.render import export, figures
from graphrelu.lab.reproduce.complexity import HEAD_WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {
    "edges": "directed edges |E|",
    "nodes": "nodes |V|",
    "channels": "channels C",
    "segments": "segments K",
    "heads": f"heads M, {HEAD_WIDTH} channels each",
}
WHAT = {"grelu": "GReLU", "gcn+grelu": "GCN layer with GReLU", "gat": "GAT layer"}

NOTES = """\
Forward and backward pass of one layer in float32 on a uniform random graph, median of the
repetitions. One size varies, the others are fixed such that its term dominates. The exponent is
the slope of the least-squares line through the logarithms of size and time, with its 95 %
interval: 1 is a time in proportion to the size. *One more* is the slope of the straight line
through the times themselves: what one more edge, node, channel, segment or head costs. The graph
is prepared beforehand, once for the whole of a training; what that takes is the column
*preparation*, in seconds at the largest size.
The paper claims O(|E| + C|V|) for GReLU and O(M|E|) for the attention of GAT, and prints no times.
"""
HEADS = f"""\
Milliseconds. GReLU alone computes its parameters and applies them; a GAT layer also has a linear
map and the aggregation, as has a GCN layer with GReLU. Each head has {HEAD_WIDTH} channels, so
that a line compares layers of the same width.
"""


class Fit(NamedTuple):
    """An exponent, its 95 % interval where there are more than two points, and the slope of the
    straight line through the times themselves: what one more of a size costs, in seconds."""

    exponent: float
    low: float | None
    high: float | None
    one_more: float


@dataclass(frozen=True)
class Row:
    """One sweep: its exponent, and the times at both ends."""

    device: str
    axis: str
    what: str
    diffusion: str
    steps: int
    first: int
    last: int
    points: int
    exponent: float
    low: float | None
    high: float | None
    one_more: float
    first_seconds: float
    last_seconds: float
    ratio: float
    preparation: float | None


def fit(sizes: Sequence[float], times: Sequence[float]) -> Fit:
    """The exponent of a power law, by least squares on logarithms."""
    from scipy import stats

    one_more = float(stats.linregress(sizes, times).slope)
    line = stats.linregress(np.log(sizes), np.log(times))
    exponent = float(line.slope)
    if len(sizes) < 3:
        return Fit(exponent, None, None, one_more)
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return Fit(exponent, exponent - half, exponent + half, one_more)


def sweeps_of(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The points of each sweep that has two or more, by size."""

    def place(entry: Entry) -> tuple[str, int, int]:
        names = list(AXES), list(WHAT)
        return entry["device"], names[0].index(entry["axis"]), names[1].index(entry["what"])

    ordered = sorted(entries, key=lambda entry: (*place(entry), entry["value"]))
    groups = [list(group) for _, group in groupby(ordered, key=place)]
    return [group for group in groups if len({entry["value"] for entry in group}) > 1]


def row_of(sweep: Sequence[Entry]) -> Row:
    """A sweep in short."""
    first, last = sweep[0], sweep[-1]
    found = fit([entry["value"] for entry in sweep], [entry["seconds"] for entry in sweep])
    same = ("device", "axis", "what", "diffusion", "steps", "preparation")
    return Row(
        **{name: last[name] for name in same},
        first=first["value"],
        last=last["value"],
        points=len(sweep),
        **found._asdict(),
        first_seconds=first["seconds"],
        last_seconds=last["seconds"],
        ratio=last["seconds"] / first["seconds"],
    )


def document(sweeps: Sequence[list[Entry]], entries: Sequence[Entry], source: str) -> str:
    """Everything about the record on one page."""
    parts = ["# Complexity\n", origin(entries, source, "timing") + "\n", NOTES]
    head = (
        *("size", "what", "from", "to", "exponent", "95 % interval"),
        *("smallest, ms", "largest, ms", "ratio", "one more, ms", "preparation, s"),
    )
    rows = [row_of(sweep) for sweep in sweeps]
    for device, group in groupby(rows, key=lambda row: row.device):
        members = list(group)
        how = f"{members[0].diffusion} diffusion, {members[0].steps} steps"
        lines = [_line(row) for row in members]
        parts.append(f"## {device}: {how}\n\n{export.table(head, lines, numbers=2)}")
    heads = [sweep for sweep in sweeps if sweep[0]["axis"] == "heads"]
    for device, part in groupby(heads, key=lambda sweep: sweep[0]["device"]):
        parts.append(f"## Heads of attention: {device}\n\n{HEADS}\n{_heads(list(part))}")
    return "\n".join(parts)


def _line(row: Row) -> tuple[str, ...]:
    interval = "" if row.low is None else f"[{row.low:.2f}, {row.high:.2f}]"
    preparation = "" if row.preparation is None else f"{row.preparation:.2g}"
    return (
        *(AXES[row.axis].replace("|", r"\|"), WHAT[row.what], f"{row.first:,}", f"{row.last:,}"),
        *(f"{row.exponent:.2f}", interval),
        *(f"{1e3 * row.first_seconds:.3g}", f"{1e3 * row.last_seconds:.3g}"),
        *(f"{row.ratio:.0f}", f"{1e3 * row.one_more:.2g}", preparation),
    )


def _heads(sweeps: Sequence[list[Entry]]) -> str:
    times = {(s["what"], s["value"]): s["seconds"] for sweep in sweeps for s in sweep}
    whats = [sweep[0]["what"] for sweep in sweeps]
    sizes = sorted({value for _, value in times})
    lines = [
        (str(size), *(f"{1e3 * times[w, size]:.3g}" if (w, size) in times else "" for w in whats))
        for size in sizes
    ]
    return export.table(("heads", *(WHAT[what] for what in whats)), lines, numbers=0)


def draw(sweeps: Sequence[list[Entry]]) -> Figure:
    """Time over size, one panel for each kind of size."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(11, 6.5))
    devices = list(dict.fromkeys(sweep[0]["device"] for sweep in sweeps))
    styles = figures.line_styles()
    look = {(device, what): next(styles) for device in devices for what in WHAT}
    for axis, (name, title) in zip(axes.flat, AXES.items(), strict=False):
        for sweep in sweeps:
            device, what = sweep[0]["device"], sweep[0]["what"]
            if sweep[0]["axis"] == name:
                axis.plot(
                    [entry["value"] for entry in sweep],
                    [1e3 * entry["seconds"] for entry in sweep],
                    label=f"{WHAT[what]}, {device}: exponent {row_of(sweep).exponent:.2f}",
                    **look[device, what],
                )
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="forward + backward, ms")
        if axis.lines and len(axis.lines) <= len(devices):
            axis.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    aside = axes.flat[-1]
    aside.set_axis_off()
    # The layers beside attention are too many for a legend inside of their panel.
    handles, labels = axes.flat[-2].get_legend_handles_labels()
    aside.legend(handles, labels, fontsize=7, loc="center left", title=AXES["heads"])
    return figure


def write(entries: Sequence[Entry], record: Path) -> list[Path]:
    """The files beside the record; the page comes first."""
    sweeps = sweeps_of(entries)
    page = document(sweeps, entries, record.name)
    table = export.to_csv([row_of(sweep) for sweep in sweeps], Row)
    return figures.write(record, page, table, lambda: draw(sweeps))
