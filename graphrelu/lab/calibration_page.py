"""The page of the study that chooses GReLU's default constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from graphrelu.lab import export, output
from graphrelu.lab.calibration import (
    CANDIDATES,
    DATASETS,
    FEW_ERRORS,
    FIRST_SEED,
    MIRRORED,
    MOST_ERRORS,
    MOST_LOST,
    ROUND,
    candidate_of,
    cells,
    chosen,
    figures,
    harm,
    ranked,
    validation,
)
from graphrelu.lab.comparison import Comparison, compared
from graphrelu.lab.recipes import BACKBONES
from graphrelu.lab.results import Record, Result
from graphrelu.lab.tables import amount, label

RULE = f"""\
Seeds from {FIRST_SEED:,} on, which no other table has, half as many on Flickr as on Cora; every
backbone with the settings of the main table, and on a generated graph with those of the structure
experiment. A candidate's figure in a cell is its validation accuracy minus ReLU's, the mean over
seeds of both. Candidates are trained with all backbones but GAT first. A candidate is *admissible*
unless in some cell its figure is more than {MOST_ERRORS} standard errors below zero, or below
-{MOST_LOST} points and more than {FEW_ERRORS} standard errors below zero. The admissible ones are
trained with GAT, too, in the order of their mean over the cells, the highest first, until one is
admissible over all cells: it is chosen. Where none is, the one whose clearest harm is the smallest
is.

The study has nine rounds. The first two, of 22 candidates without the smoothness, compared runs
whose initial weights differed between activations, and chance covered most of what they showed. The
third had the first nine candidates; the two that its rule tried with GAT did harm there, and it
ended. The fourth had the next five, and a rule that went on to a candidate whose figures were noisy
enough to pass. The fifth added two with a slow gate, and the bound in points, which the first had,
too; none was admissible with GAT on Flickr, and by the rule as it was then the least harm would
have been "smooth, upper, slow gate", which is no longer a function of K segments, as the paper's
is. The sixth added two in which the smoothness counts twice, and chose "smooth, damped, slow gate"
among those whose slopes and intercepts can all move. In the main table that is worse than ReLU on
CiteSeer, on test and validation nodes alike, so CiteSeer's validation nodes choose from the seventh
round on, and its test nodes confirm nothing any more. The seventh has the start, the choice of the
sixth and six in which a mean of few nodes is shrunk; and no longer a bound in points for figures
that are not told apart from zero, as the two rounds before had with GAT on Flickr. It chose "shrunk
most, scaled, centred", which is significantly worse than ReLU in one cell of the main table and no
better than ReLU on the generated graphs on which nodes must be told apart by what surrounds them:
its smoothness, that of shrunk means, is close to zero there. The eighth has the start and eight
whose means are not shrunk; and such a generated graph, of 1,000 nodes, which no other table has,
among those that choose. With APPNP on Flickr most of its candidates are behind ReLU, all by about
as much: what they share is that slopes above zero adapt there. The ninth, made before the eighth's
candidates were tried with GAT, has the two that are ahead among the eighth's admissible ones, and
six whose shift away from ReLU is scaled as a whole. The ninth's rule chose one of the eighth's.
What shrank means is gone from GReLU since: candidates that have it cannot run again. Candidates,
rule and seeds of a round are written down before it runs.
"""
NAMED = """\
*Start*: where the study began. *Smooth*: nodes are told apart by the means around them, as far as
the graph is smooth, at a temperature of 1 instead of 10; *twice smooth*: the smoothness is squared,
at a temperature of 0.5. *Shrunk more*: the mean around a node is shrunk where its surroundings are
few, at a temperature of 0.1; *shrunk most*: further, at 0.03. *Upper*: only the slope above zero
adapts. *Damped*: slopes below zero move a tenth, and intercepts a twentieth, as far. *Scaled*: they
move as far as the graph is smooth, and the gate moves slowly. *Centred*: slopes above zero adapt
relative to their mean over the channels. *Fast gate*: the gate moves three times as fast; *slow
gate*: a third as fast. *Bounded*: the gate stays below one half. *Smooth throughout*: smooth, at a
temperature of 10; slopes below zero and intercepts move as far as the graph is smooth; slopes above
zero are centred. *Smooth shift*: they move as far as the graph is smooth, too; *squared*: all that
goes by the square of the smoothness. *Half*, *twice*: slopes below zero and intercepts move as many
times as far.
"""


@dataclass(frozen=True)
class CalibrationRow:
    """One candidate in one cell: validation accuracy in percent, and how far it is from ReLU's."""

    candidate: str
    dataset: str
    backbone: str
    mean: float
    n: int
    over_relu: Comparison | None


def calibration_rows(results: Sequence[Result]) -> list[CalibrationRow]:
    """A row for each candidate and cell, ReLU first."""
    scores = validation(results)
    pairs = {
        (name, *cell): (own[name], own.get("relu", {}))
        for name in ("relu", *CANDIDATES)
        for cell, own in scores.items()
        if name in own
    }
    leads = compared({key: pair for key, pair in pairs.items() if key[0] != "relu"})
    return [
        CalibrationRow(*key, 100 * fmean(own.values()), len(own), leads.get(key))
        for key, (own, _) in pairs.items()
    ]


def render_calibration(record: Path) -> list[Path]:
    """The study as a page and as CSV."""
    results = [
        result for result in Record(record).read() if candidate_of(result.config) is not None
    ]
    if not results:
        raise ValueError(f"{record} has no runs of the calibration.")
    page, csv = (output.check_file(record.with_suffix(ending)) for ending in (".md", ".csv"))
    output.write_text(page, document(results, record.name))
    output.write_text(csv, export.to_csv(calibration_rows(results), CalibrationRow))
    return [page, csv]


def document(results: Sequence[Result], source: str) -> str:
    """Everything about a record of the study on one page."""
    protocol = [
        config
        for dataset in DATASETS
        for own in cells(dataset, BACKBONES).values()
        for config in own
    ]
    parts = ["# How the default is chosen\n", export.provenance(results, source, protocol) + "\n"]
    parts += [RULE, NAMED, "## The outcome\n", _outcome(results)]
    rows = calibration_rows(results)
    for dataset in dict.fromkeys(row.dataset for row in rows):
        title = "A generated graph" if dataset == MIRRORED else label(dataset)
        parts += [f"## {title}\n", _table([r for r in rows if r.dataset == dataset])]
    return "\n".join(parts)


def _outcome(results: Sequence[Result]) -> str:
    scores = validation(results)
    found, best = figures(scores), chosen(scores)
    lines = []
    for name in ranked({name: own for name, own in found.items() if name in ROUND}):
        leads = found[name]
        title = f"**{name}**" if name == best else name
        mean = fmean(figure.mean for figure in leads.values())
        lines.append((title, "no" if harm(leads) < 0 else "yes", f"{mean:+.2f}", str(len(leads))))
    head = ("candidate", "admissible", "mean over cells", "cells")
    verdict = (
        "The ninth round is not finished.\n" if best is None else f"The rule chooses **{best}**.\n"
    )
    return f"{verdict}\n{export.table(head, lines, numbers=2)}"


def _table(rows: Sequence[CalibrationRow]) -> str:
    """Candidates by backbones: points ahead of ReLU in validation accuracy, with 95 % intervals."""
    backbones = [name for name in BACKBONES if any(row.backbone == name for row in rows)]
    by_place = {(row.candidate, row.backbone): row for row in rows}
    lines = []
    for name in dict.fromkeys(row.candidate for row in rows):
        line = [label(name) if name == "relu" else name]
        for backbone in backbones:
            row = by_place.get((name, backbone))
            if row is None:
                line.append("")
            elif row.over_relu is None:
                line.append(f"{row.mean:.1f} ({row.n})")
            else:
                line.append(amount(row.over_relu))
        lines.append(line)
    return export.table(("candidate", *map(label, backbones)), lines, numbers=1)
