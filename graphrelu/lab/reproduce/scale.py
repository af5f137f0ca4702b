"""Features of another scale: the activations on features a hundred times smaller or larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, family_of, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import export, figures, tables
from graphrelu.lab.render.findings import Finding
from graphrelu.lab.render.tables import ScoreRow, label
from graphrelu.lab.reproduce.experiment import Experiment, Request, trained
from graphrelu.lab.stats.comparison import (
    Comparison,
    Scores,
    compared,
    leads_over,
    mean_validation,
    scores_by_cell,
)

DATASETS = ("cora", "citeseer", "pubmed")
BACKBONES = ("gcn", "sage")
SCALES = (0.01, 1.0, 100.0)
SMALL = SCALES[0]
MARGIN = 1.0  # percent points: a smaller difference does not matter

Place: TypeAlias = tuple[str, str, str]  # dataset, backbone, activation


@dataclass(frozen=True)
class ScaleRow(ScoreRow):
    """One activation at one scale, and its loss against its own best scale.

    The best scale has the highest mean validation accuracy; there ``behind_best`` is ``None``. All
    losses are one family for Holm's correction. GReLU's leads over PReLU at the smallest scale are
    another.
    """

    scale: float
    behind_best: Comparison | None
    grelu_over_prelu: Comparison | None


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
    excess: Comparison

    @property
    def found(self) -> Finding:
        """Whether GReLU loses no more than the rival, up to the margin."""
        if self.excess.high is not None and self.excess.high < MARGIN:
            return "holds"
        much_more = self.excess.outcome == "better" and self.excess.difference > MARGIN
        return "does not hold" if much_more else "undecided"


def cells(dataset: str, **changes: Any) -> list[Config]:
    """A cell for each backbone, scale and activation; at scale 1 the cells are the main table's."""
    return [
        recipe(dataset, family_of(dataset), backbone, name, feature_scale=scale, **changes)
        for backbone in BACKBONES
        for scale in SCALES
        for name in ACTIVATIONS
    ]


def collect(request: Request) -> str:
    """Train the missing runs."""
    names = request.datasets(*DATASETS)
    return trained([cell for name in names for cell in cells(name, **request.changes)], request)


@cache
def belongs(config: Config) -> bool:
    """Whether a configuration is one of these cells, on any graph and with any epochs."""
    return config in cells(config.dataset, epochs=config.epochs)


def scores_by_scale(results: Sequence[Result]) -> dict[Place, dict[float, Scores]]:
    """The scores of every cell, activation and scale, in the order of the constants."""
    found: dict[Place, dict[float, Scores]] = {}
    for scale in SCALES:
        part = [result for result in results if result.config.feature_scale == scale]
        for cell, scores in scores_by_cell(part).items():
            for name, own in scores.items():
                found.setdefault((*cell, name), {})[scale] = own
    position = tables.in_order(*DATASETS, *BACKBONES, *ACTIVATIONS)
    return {place: found[place] for place in sorted(found, key=position)}


def best_scales(results: Sequence[Result]) -> dict[Place, float]:
    """The scale that the validation nodes prefer; of equal scales 1, then the smaller."""
    runs: dict[Place, dict[float, list[Result]]] = {}
    for result in results:
        config = result.config
        by_scale = runs.setdefault((config.dataset, config.backbone, config.activation), {})
        by_scale.setdefault(config.feature_scale, []).append(result)
    return {
        place: max(own, key=lambda scale: (mean_validation(own[scale]), scale == 1, -scale))
        for place, own in runs.items()
    }


def scale_rows(results: Sequence[Result]) -> list[ScaleRow]:
    """A row for each activation and scale, cell by cell."""
    runs, preferred = scores_by_scale(results), best_scales(results)
    behind = compared(
        {
            (*key, scale): (by_scale[preferred[key]], own)
            for key, by_scale in runs.items()
            for scale, own in by_scale.items()
            if scale != preferred[key]
        }
    )
    small = scores_by_cell([r for r in results if r.config.feature_scale == SMALL])
    over_prelu = {
        (*cell, "grelu", SMALL): lead for cell, lead in leads_over(small, "grelu", "prelu").items()
    }
    return [
        ScaleRow(*(*key, *tables.percent(own)), scale, behind.get(at), over_prelu.get(at))
        for key, by_scale in runs.items()
        for scale, own in by_scale.items()
        for at in [(*key, scale)]
    ]


def robustness(results: Sequence[Result]) -> list[Robustness]:
    """GReLU against the most robust rival, in every cell that has all scales.

    Holm's correction is over the cells.
    """
    preferred = best_scales(results)
    losses: dict[tuple[str, str], dict[str, Scores]] = {}
    for key, by_scale in scores_by_scale(results).items():
        if set(by_scale) == set(SCALES) and (own := _largest_loss(by_scale, preferred[key])):
            losses.setdefault(key[:2], {})[key[2]] = own
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


NOTES = """\
The row-normalised features of the citation graphs are multiplied by a number; everything else is as
in the main table, and the cells at x 1 are cells of the main table. Test accuracy in percent, mean
± standard deviation over seeds (their number in brackets). *Lost* is the difference to the
activation's best scale, paired by seed, with its 95 % interval. The best scale has the highest mean
validation accuracy. A star marks a significant loss (Wilcoxon test, 5 %, Holm's correction over all
losses of the page). The paper has no such table.
"""
CAPTION = "Means of the test accuracy over the seeds.\n"
RULE = f"""\
The loss of an activation is its loss at the scale of its lowest mean. The most robust rival has the
lowest mean loss on the same test nodes, which favours the rival. The excess is GReLU's loss minus
the rival's, paired by seed. That GReLU loses no more *holds* where the 95 % interval of the excess
ends below {MARGIN:g} point. It *does not hold* where a larger excess is significant (Holm's
correction over the cells). Otherwise it is *undecided* at this many seeds.
"""
PRELU_NOTES = f"""\
GReLU's lead over PReLU on features x {SMALL:g}, paired by seed, with its 95 % interval; p is the
Wilcoxon test's, with Holm's correction over the cells.
"""


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    results = Record(record).required(belongs, "on features of these scales")
    rows = scale_rows(results)
    protocol = [cell for name in DATASETS for cell in cells(name)]
    page = [
        "# Features of another scale\n",
        export.provenance(results, record, protocol),
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
    head = ["activation", *(part for scale in SCALES for part in (f"x {scale:g}", "lost"))]
    for (dataset, backbone), part in groupby(rows, key=lambda row: (row.dataset, row.backbone)):
        lines = [_line(list(own)) for _, own in groupby(part, key=lambda row: row.activation)]
        page += [f"## {label(dataset)}, {label(backbone)}\n", export.table(head, lines, numbers=1)]
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
    by_scale = {row.scale: row for row in rows}
    line = [label(rows[0].activation)]
    for scale in SCALES:
        row = by_scale.get(scale)
        line += (
            ["", ""]
            if row is None
            else [tables.accuracy(row), tables.marked(row.behind_best) or "best"]
        )
    return line


def _robustness_table(found: Sequence[Robustness]) -> str:
    head = ("dataset", "backbone", "GReLU loses", "most robust rival", "it loses", "excess", "p")
    lines = [
        (
            *(label(one.dataset), label(one.backbone), f"{one.loss:.1f}", label(one.rival)),
            *(
                f"{one.rivals_loss:.1f}",
                tables.amount(one.excess),
                tables.p_value(one.excess.p_holm),
            ),
            f"**{one.found}**",
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
            *(tables.p_value(lead.p), tables.p_value(lead.p_holm), lead.outcome),
        )
        for row, lead in leads.items()
    ]
    head = ("dataset", "backbone", "GReLU - PReLU", "p", "corrected p", "GReLU is")
    sentence = tables.too_few(list(leads.values()))
    return export.table(head, lines, numbers=2) + (f"\n{sentence}\n" if sentence else "")


EXPERIMENT = Experiment(runs=30, quick_runs=3, collect=collect, render=render)
