"""GReLU's lead over ReLU in every cell of the main table, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphrelu.lab.record.recipes import BACKBONES, NODE_DATASETS
from graphrelu.lab.render import figures
from graphrelu.lab.render.tables import NodeRow, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(rows: Sequence[NodeRow]) -> Figure:
    """One panel for each graph, one line for each backbone: the lead and its 95 % interval."""
    import matplotlib.pyplot as plt

    leads = [row for row in rows if row.over_relu is not None]
    datasets = [name for name in NODE_DATASETS if any(row.dataset == name for row in leads)]
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(2 * len(datasets), 2.3), sharex=True, sharey=True, squeeze=False
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        for row in leads:
            if row.dataset == dataset and (lead := row.over_relu):
                place = BACKBONES.index(row.backbone)
                significant = lead.outcome != "undecided"
                if lead.low is not None and lead.high is not None:
                    axis.plot((lead.low, lead.high), (place, place), color="black", linewidth=1)
                axis.plot(
                    lead.difference,
                    place,
                    marker="o",
                    markersize=5,
                    color="black",
                    markerfacecolor="black" if significant else "white",
                )
        seeds = " or ".join(map(str, sorted({r.n for r in leads if r.dataset == dataset})))
        axis.set_title(f"{label(dataset)}, {seeds} seeds")
        axis.axvline(0, color="black", linewidth=0.8, linestyle="--", zorder=0)
    axes[0][0].set_yticks(range(len(BACKBONES)), map(label, BACKBONES))
    axes[0][0].invert_yaxis()
    figure.supxlabel(
        "GReLU - ReLU, points of test accuracy (95 % interval, paired by seed; "
        "filled: significant after correction)",
        fontsize=9,
    )
    return figure


def write(rows: Sequence[NodeRow], prefix: Path) -> list[Path]:
    """``prefix.png`` and ``prefix.svg`` from the rows of the main table."""
    if not any(row.over_relu is not None for row in rows):
        raise ValueError("rows must have a cell with runs of both GReLU and ReLU.")
    with figures.drawing():
        return figures.save(draw(rows), prefix)
