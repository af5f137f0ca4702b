"""Features of another scale: the activations on features a hundred times smaller or larger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, product
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, family_of, recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures, tables
from graphrelu.lab.render.findings import Finding
from graphrelu.lab.render.tables import ScoreRow, label
from graphrelu.lab.reproduce.experiment import Experiment, Place, Table
from graphrelu.lab.stats.comparison import Scores, compared
from graphrelu.lab.stats.decision import Decision

BACKBONES = ("gcn", "sage")
SCALES = (0.01, 1.0, 100.0)
SMALL = SCALES[0]
MARGIN = 1.0  # percent points: a smaller difference does not matter

Cell: TypeAlias = tuple[str, str, str]  # dataset, backbone, activation


@dataclass(frozen=True)
class ScaleRow(ScoreRow):
    """One activation at one scale, and its loss against its own best scale.

    The best scale has the highest mean validation accuracy; there ``behind_best`` is ``None``. All
    losses are one family for Holm's correction. GReLU's leads over PReLU at the smallest scale are
    another.
    """

    scale: float
    behind_best: Decision | None
    grelu_over_prelu: Decision | None


@dataclass(frozen=True)
class Robustness:
    """GReLU's loss at its worst scale, and the loss of the rival that loses least.

    ``excess`` is GReLU's loss minus the rival's, paired by seed.
    """

    dataset: str
    backbone: str
    loss: float
    rival: str
    rivals_loss: float
    excess: Decision

    @property
    def found(self) -> Finding:
        """Whether GReLU loses no more than the rival, up to the margin."""
        if self.excess.high is not None and self.excess.high < MARGIN:
            return "holds"
        much_more = self.excess.outcome == "better" and self.excess.difference > MARGIN
        return "does not hold" if much_more else "undecided"


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """A cell for each backbone and activation; at scale 1 the cells are the main table's."""
    family = family_of(dataset)
    return {
        ((dataset, backbone, name), scale): recipe(
            dataset, family, backbone, name, feature_scale=scale, **changes
        )
        for backbone, scale, name in product(BACKBONES, SCALES, ACTIVATIONS)
    }


TABLE = Table("scale", "on features of these scales", ("cora", "citeseer", "pubmed"), cells)


def best_scales(results: Iterable[Result]) -> dict[Cell, float]:
    """The scale that the validation nodes prefer; of equal scales 1, then the smaller."""
    return {
        cell: max(own, key=lambda scale: (_tied_mean(own[scale]), scale == 1, -scale))
        for cell, own in TABLE.scores(results, attrgetter("val_score")).items()
    }


def _tied_mean(scores: Scores) -> float:
    # Accuracies are whole counts: without rounding, equal means would not tie.
    return round(fmean(scores.values()), 12)


def scale_rows(results: Sequence[Result]) -> list[ScaleRow]:
    """A row for each activation and scale, cell by cell."""
    runs, best = TABLE.scores(results), best_scales(results)
    behind = compared(
        {
            (cell, scale): (own[best[cell]], scores)
            for cell, own in runs.items()
            for scale, scores in own.items()
            if scale != best[cell]
        }
    )
    small = {cell: own.get(SMALL, {}) for cell, own in runs.items()}
    over_prelu = compared(
        {
            (cell, SMALL): (scores, small.get((*cell[:2], "prelu"), {}))
            for cell, scores in small.items()
            if cell[2] == "grelu"
        }
    )
    return [
        ScaleRow(*(*cell, *tables.percent(scores), scale, behind.get(at), over_prelu.get(at)))
        for cell, own in runs.items()
        for scale, scores in own.items()
        for at in [(cell, scale)]
    ]


def robustness(results: Sequence[Result]) -> list[Robustness]:
    """GReLU against the most robust rival, in every cell that has all scales.

    Holm's correction is over the cells.
    """
    best = best_scales(results)
    losses: dict[tuple[str, str], dict[str, Scores]] = {}
    for cell, own in TABLE.scores(results).items():
        if set(own) == set(SCALES) and (lost := _largest_loss(own, best[cell])):
            losses.setdefault(cell[:2], {})[cell[2]] = lost
    rivals = {
        cell: min(own.keys() - {"grelu"}, key=lambda name: (fmean(own[name].values()), name))
        for cell, own in losses.items()
        if "grelu" in own and len(own) > 1
    }
    excess = compared({c: (losses[c]["grelu"], losses[c][rival]) for c, rival in rivals.items()})
    found = []
    for cell, lead in excess.items():
        grelu, rival = (100 * fmean(losses[cell][n].values()) for n in ("grelu", rivals[cell]))
        found.append(Robustness(*cell, grelu, rivals[cell], rival, lead))
    return found


def _largest_loss(by_scale: dict[float, Scores], best: float) -> Scores:
    """The loss of each seed at the scale of the lowest mean, against the best scale."""
    seeds = sorted(set.intersection(*(set(scores) for scores in by_scale.values())))
    worst = min(by_scale, key=lambda scale: sum(by_scale[scale][seed] for seed in seeds))
    return {seed: by_scale[best][seed] - by_scale[worst][seed] for seed in seeds}


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    results = TABLE.read(record)
    rows = scale_rows(results)
    head = ["activation", *(part for scale in SCALES for part in (f"x {scale:g}", "lost"))]
    parts = []
    for (dataset, backbone), part in groupby(rows, key=lambda row: (row.dataset, row.backbone)):
        lines = [_line(list(own)) for _, own in groupby(part, key=lambda row: row.activation)]
        title = f"## {label(dataset)}, {label(backbone)}"
        parts.append(f"{title}\n\n{export.table(head, lines, numbers=1)}")
    page = TABLE.text(
        *(results, record),
        margin=MARGIN,
        small=SMALL,
        robustness=_robustness_table(robustness(results)),
        over_prelu=_prelu_table(rows),
        cells="\n".join(parts),
    )
    return figures.write(record, page, rows, ScaleRow, lambda: draw(rows))


def draw(rows: Sequence[ScaleRow]) -> figures.Figure:
    """A panel for each cell, a line for each activation."""
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    backbones = list(dict.fromkeys(row.backbone for row in rows))
    size = (2.5 * len(datasets), 2.2 * len(backbones) + 0.6)
    figure, axes = figures.panels(len(backbones), len(datasets), figsize=size, sharex=True)
    styles = dict(zip(ACTIVATIONS, figures.line_styles(), strict=False))
    for axis, (backbone, dataset) in zip(axes.flat, product(backbones, datasets), strict=True):
        part = [row for row in rows if (row.dataset, row.backbone) == (dataset, backbone)]
        for name, own in groupby(part, key=lambda row: row.activation):
            points = [(row.scale, row.mean) for row in own]
            axis.plot(*zip(*points, strict=True), label=label(name), **styles[name])
        axis.set_xscale("log")
        axis.set_xticks(SCALES, [f"{scale:g}" for scale in SCALES])
        axis.minorticks_off()
        axis.set_title(f"{label(dataset)}, {label(backbone)}")
    columns = 2 * len(datasets)  # as many as fit
    figures.shared_legend(figure, axes.flat, loc="outside upper center", ncols=columns)
    figure.supxlabel("features multiplied by", fontsize=9)
    figure.supylabel("test accuracy (%)", fontsize=9)
    return figure


def _line(rows: Sequence[ScaleRow]) -> list[str]:
    shown = {
        row.scale: [tables.accuracy(row), tables.marked(row.behind_best) or "best"] for row in rows
    }
    parts = (shown.get(scale, ["", ""]) for scale in SCALES)
    return [label(rows[0].activation), *chain(*parts)]


def _robustness_table(found: Sequence[Robustness]) -> str:
    head = ("dataset", "backbone", "GReLU loses", "most robust rival", "it loses", "excess", "p")
    lines = [
        (
            *(label(one.dataset), label(one.backbone), f"{one.loss:.1f}", label(one.rival)),
            *(f"{one.rivals_loss:.1f}", tables.amount(one.excess)),
            *(tables.p_value(one.excess.p), f"**{one.found}**"),
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
    leads = {row: row.grelu_over_prelu for row in rows if row.grelu_over_prelu is not None}
    lines = [
        (
            *(label(row.dataset), label(row.backbone), tables.amount(lead)),
            *(tables.p_value(lead.p), tables.p_value(lead.p), lead.outcome),
        )
        for row, lead in leads.items()
    ]
    head = ("dataset", "backbone", "GReLU - PReLU", "p", "corrected p", "GReLU is")
    sentence = tables.too_few(list(leads.values()))
    return export.table(head, lines, numbers=2) + (f"\n{sentence}\n" if sentence else "")


EXPERIMENT = Experiment(runs=30, quick_runs=3, collect=TABLE.collect, render=render)
