"""The record of runtimes as a page, a table and a figure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrelu.lab.record.entries import Entry, origin
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce.runtime import EPOCHS, MODES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = """\
Seconds that {epochs} epochs of one seed take, the median of the repetitions; in brackets relative
to ReLU. The activations of a backbone take turns. Every epoch is a step of Adam on the whole graph
and a pass in evaluation, without early stopping; loading, first calls and, in batches on a GPU, the
capture of the epoch are not counted. *One at a time* is a plain PyG loop on `edge_index` with dense
features; *batched* is the laboratory's training of many seeds at once, its time divided by their
number. Where the epochs of a repetition would take too long, some of them are timed and the time is
scaled up; `epochs_timed` in the CSV says how many. The paper prints a figure of these times and no
numbers; it says that GReLU is faster than Maxout and slightly slower than the others.
"""


@dataclass(frozen=True)
class Row:
    """One timing; ``relative`` is its time divided by that of ReLU."""

    dataset: str
    device: str
    mode: str
    seeds: int
    backbone: str
    activation: str
    seconds: float
    fastest: float
    slowest: float
    repeats: int
    epochs_timed: int
    relative: float | None

    @property
    def panel(self) -> tuple[str, str, str, int]:
        """Timings that are shown together."""
        return self.dataset, self.device, self.mode, self.seeds


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """The timings, panel by panel, in the order of the paper's tables."""
    cell = ("dataset", "device", "mode", "seeds", "backbone")
    relu = {
        tuple(entry[name] for name in cell): entry["seconds"]
        for entry in entries
        if entry["activation"] == "relu"
    }
    rows = []
    for entry in entries:
        base = relu.get(tuple(entry[name] for name in cell))
        rows.append(
            Row(
                **{name: entry[name] for name in (*cell, "activation", "seconds", "epochs_timed")},
                fastest=min(entry["repeats"]),
                slowest=max(entry["repeats"]),
                repeats=len(entry["repeats"]),
                relative=None if base is None else entry["seconds"] / base,
            )
        )
    modes = list(MODES)
    return sorted(
        rows,
        key=lambda row: (
            *(row.dataset, row.device, modes.index(row.mode), row.seeds),
            *(BACKBONES.index(row.backbone), ACTIVATIONS.index(row.activation)),
        ),
    )


def title(panel: tuple[str, str, str, int]) -> str:
    """Dataset, device and mode of some timings."""
    dataset, device, mode, seeds = panel
    how = "one at a time" if mode == "one" else f"batched, {seeds} seeds"
    return f"{label(dataset)}, {device}, {how}"


def document(rows: Sequence[Row], entries: Sequence[Entry], source: str) -> str:
    """Everything about the record on one page."""
    parts = [
        "# Runtime\n",
        origin(entries, source, "timing") + "\n",
        NOTES.format(epochs=EPOCHS),
    ]
    for panel, group in groupby(rows, key=lambda row: row.panel):
        members = list(group)
        lines = []
        for backbone, cells in groupby(members, key=lambda row: row.backbone):
            by_name = {row.activation: row for row in cells}
            shown = (_cell(by_name.get(name)) for name in ACTIVATIONS)
            lines.append((label(backbone), *shown))
        head = ("backbone", *map(label, ACTIVATIONS))
        parts.append(f"## {title(panel)}\n\n{export.table(head, lines, numbers=1)}")
        parts.append(_claim(members))
    return "\n".join(parts)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{row.seconds:.3g}" + ("" if row.relative is None else f" ({row.relative:.2f})")


def _claim(rows: Sequence[Row]) -> str:
    """How the paper's sentence about GReLU's runtime fares."""
    by_name = {(row.backbone, row.activation): row for row in rows}
    ratios = [row.relative for row in rows if row.activation == "grelu" and row.relative]
    pairs = [
        (row.seconds, by_name[row.backbone, "maxout"].seconds)
        for row in rows
        if row.activation == "grelu" and (row.backbone, "maxout") in by_name
    ]
    if not ratios or not pairs:
        return ""
    faster = sum(grelu < maxout for grelu, maxout in pairs)
    return (
        f"GReLU takes {statistics.median(ratios):.2f} times as long as ReLU in the median of the "
        f"backbones ({min(ratios):.2f} to {max(ratios):.2f}), and less time than Maxout with "
        f"{faster} of {len(pairs)} backbones.\n"
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Bars of seconds, and relative to ReLU, one line of panels for each device and mode."""
    import matplotlib.pyplot as plt

    panels = {key: list(group) for key, group in groupby(rows, key=lambda row: row.panel)}
    figure, axes = plt.subplots(len(panels), 2, figsize=(11, 2.9 * len(panels)), squeeze=False)
    for line, (panel, members) in zip(axes, panels.items(), strict=True):
        _bars(line[0], members, "seconds")
        _bars(line[1], members, "relative")
        what = f"seconds for {EPOCHS} epochs of a seed"
        line[0].set(yscale="log", ylabel=what, title=title(panel))
        line[1].set(ylabel="time relative to ReLU", title="relative to ReLU")
        line[1].axhline(1, color="black", linewidth=0.8)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ACTIVATIONS)
    )
    return figure


def _bars(axis: Any, rows: Sequence[Row], field: str) -> None:
    width = 0.8 / len(ACTIVATIONS)
    for place, (name, style) in enumerate(
        zip(ACTIVATIONS, figures.bar_styles(), strict=False), start=-len(ACTIVATIONS) // 2
    ):
        found = [row for row in rows if row.activation == name and getattr(row, field) is not None]
        axis.bar(
            [BACKBONES.index(row.backbone) + (place + 0.5) * width for row in found],
            [getattr(row, field) for row in found],
            width,
            label=label(name),
            **style,
        )
    axis.set_xticks(range(len(BACKBONES)), [label(name) for name in BACKBONES])


def write(entries: Sequence[Entry], record: Path) -> list[Path]:
    """The files beside the record; the page comes first."""
    rows = rows_of(entries)
    page = document(rows, entries, record.name)
    return figures.write(record, page, export.to_csv(rows, Row), lambda: draw(rows))
