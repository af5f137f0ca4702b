"""The page, the table and the figure of features of another scale."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from graphrelu.lab.record.recipes import ACTIVATIONS
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import amount, label, p_value, too_few
from graphrelu.lab.reproduce.scale import (
    DATASETS,
    MARGIN,
    SCALES,
    SMALL,
    Robustness,
    ScaleRow,
    cells,
    robustness,
    scale_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTES = """\
The row-normalised features of the citation graphs are multiplied by a number; everything else is
the main table's, and at x 1 the cells are its own. Test accuracy in percent, mean ± standard
deviation over seeds (their number in brackets). *Lost* is the difference to the activation's own
best scale, paired by seed, with its 95 % interval; the best scale is that of the highest mean
validation accuracy. A star marks what is significant (Wilcoxon test, 5 %, Holm's correction over
all losses of the page). The paper has no such table.
"""
CAPTION = "Means of the test accuracy over the seeds.\n"
RULE = f"""\
Each activation's loss is that at the scale of its lowest mean; the most robust rival is the one of
the lowest mean loss, seen on the same test nodes, which favours the rival. That GReLU loses no more
*holds* where the 95 % interval of its excess, paired by seed, ends below {MARGIN:g} point; it *does
not hold* where a larger excess is significant (Holm's correction over the cells), and is
*undecided* at this many seeds otherwise.
"""
PRELU_NOTES = f"""\
GReLU's lead over PReLU on features x {SMALL:g}, paired by seed, with its 95 % interval; p is the
Wilcoxon test's, with Holm's correction over the cells.
"""


def write(results: Sequence[Result], record: Path) -> list[Path]:
    """Everything beside the record, the page in front."""
    rows = scale_rows(results)
    page = document(results, rows, record)
    return figures.write(record, page, export.to_csv(rows, ScaleRow), lambda: draw(rows))


def document(results: Sequence[Result], rows: Sequence[ScaleRow], record: Path) -> str:
    """Everything about a record of these runs on one page."""
    protocol = [cell for name in DATASETS for cell in cells(name)]
    parts = [
        "# Features of another scale\n",
        export.provenance(results, record.name, protocol) + "\n",
        NOTES,
        f"![Accuracy by the scale of the features]({record.with_suffix('.png').name})\n",
        CAPTION,
        "## Does GReLU lose no more than the most robust rival?\n",
        RULE,
        _robustness_table(robustness(results)),
        f"## GReLU against PReLU, features x {SMALL:g}\n",
        PRELU_NOTES,
        _prelu_table(rows),
    ]
    for (dataset, backbone), part in groupby(rows, key=lambda row: (row.dataset, row.backbone)):
        lines = [_line(list(own)) for _, own in groupby(part, key=lambda row: row.activation)]
        head = ["activation"]
        for scale in SCALES:
            head += [f"x {scale:g}", "lost"]
        parts += [f"## {label(dataset)}, {label(backbone)}\n", export.table(head, lines, numbers=1)]
    return "\n".join(parts)


def draw(rows: Sequence[ScaleRow]) -> Figure:
    """A panel for each cell, a line for each activation."""
    import matplotlib.pyplot as plt

    datasets = list(dict.fromkeys(row.dataset for row in rows))
    backbones = list(dict.fromkeys(row.backbone for row in rows))
    size = (2.5 * len(datasets), 2.2 * len(backbones) + 0.6)
    figure, axes = plt.subplots(
        len(backbones), len(datasets), figsize=size, sharex=True, squeeze=False
    )
    styles = dict(zip(ACTIVATIONS, figures.line_styles(), strict=False))
    for row_of_axes, backbone in zip(axes, backbones, strict=True):
        for axis, dataset in zip(row_of_axes, datasets, strict=True):
            part = [row for row in rows if (row.dataset, row.backbone) == (dataset, backbone)]
            for name, own in groupby(part, key=lambda row: row.activation):
                points = [(row.scale, row.mean) for row in own]
                axis.plot(*zip(*points, strict=True), label=label(name), **styles[name])
            axis.set_xscale("log")
            axis.set_xticks(SCALES, [f"{scale:g}" for scale in SCALES])
            axis.minorticks_off()
            axis.set_title(f"{label(dataset)}, {label(backbone)}")
    lines = {
        text: line
        for axis in axes.flat
        for line, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = 2 * len(datasets)  # as many as fit
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=columns)
    figure.supxlabel("features multiplied by", fontsize=9)
    figure.supylabel("test accuracy (%)", fontsize=9)
    return figure


def _line(rows: Sequence[ScaleRow]) -> list[str]:
    by_scale = {row.scale: row for row in rows}
    line = [label(rows[0].activation)]
    for scale in SCALES:
        row = by_scale.get(scale)
        line += ["", ""] if row is None else [_accuracy(row), _lost(row)]
    return line


def _accuracy(row: ScaleRow) -> str:
    return f"{row.mean:.1f} ± {row.std:.1f} ({row.n})"


def _lost(row: ScaleRow) -> str:
    if row.behind_best is None:
        return "best"
    return amount(row.behind_best) + ("" if row.behind_best.outcome == "undecided" else " *")


def _robustness_table(found: Sequence[Robustness]) -> str:
    head = ("dataset", "backbone", "GReLU loses", "most robust rival", "it loses", "excess", "p")
    lines = [
        (
            *(label(one.dataset), label(one.backbone), f"{one.loss:.1f}"),
            *(label(one.rival), f"{one.rivals_loss:.1f}"),
            *(amount(one.excess), p_value(one.excess.p_holm), f"**{one.found}**"),
        )
        for one in found
    ]
    outcomes = [one.found for one in found]
    said = (
        f"GReLU loses no more than the most robust rival: this holds in {outcomes.count('holds')} "
        f"of {len(found)} cells, does not hold in {outcomes.count('does not hold')}, and is "
        f"undecided in {outcomes.count('undecided')}."
    )
    return f"{export.table((*head, 'found'), lines, numbers=2)}\n{said}\n"


def _prelu_table(rows: Sequence[ScaleRow]) -> str:
    leads = [(row, row.grelu_over_prelu) for row in rows if row.grelu_over_prelu is not None]
    lines = [
        (
            *(label(row.dataset), label(row.backbone), amount(lead)),
            *(p_value(lead.p), p_value(lead.p_holm), lead.outcome),
        )
        for row, lead in leads
    ]
    head = ("dataset", "backbone", "GReLU - PReLU", "p", "corrected p", "GReLU is")
    table = export.table(head, lines, numbers=2)
    sentence = too_few([lead for _, lead in leads])
    return f"{table}\n{sentence}\n" if sentence else table
