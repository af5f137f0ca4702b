"""How GReLU's default constants are chosen: by validation accuracy on two graphs.

Test accuracy is in the record, as in every other, and nothing here looks at it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab import export, output
from graphrelu.lab.comparison import Cells, Comparison, compared, scores_by_cell
from graphrelu.lab.config import Config, Options
from graphrelu.lab.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.recipes import BACKBONES, family_of, recipe
from graphrelu.lab.results import Record, Result
from graphrelu.lab.tables import amount, label


class Figure(NamedTuple):
    """Percent points ahead of ReLU, and their standard error."""

    mean: float
    error: float


Figures: TypeAlias = dict[str, dict[tuple[str, str], Figure]]  # candidate -> cell

DATASETS = ("cora", "flickr")
FIRST_SEED = 1000  # of no other table
SHARE = {"flickr": 2}  # half of the seeds, as a run there takes several times as long
LATE = "gat"  # the slowest backbone by far: for the finalists only
FINALISTS = 2
QUICK_EPOCHS = 30

# Where the study began: constants found by looking at test accuracy on four of the paper's graphs.
START: dict[str, Any] = {
    "temperature": 10.0,
    "gamma_scale": 1 / 3,
    "gamma_max": 1.0,
    "rest_scale": 1.0,
    "intercept_scale": 0.5,
    "gate_scale": 1.0,
    "gated": True,
    "node_weights": "softmax",
}
_UPPER: dict[str, Any] = {"rest_scale": 0.0, "intercept_scale": 0.0}
_DAMPED: dict[str, Any] = {"rest_scale": 0.1, "intercept_scale": 0.05}
_FAST: dict[str, Any] = {"gate_scale": 3.0}
_WARM: dict[str, Any] = {"temperature": 3.0}
_HIDDEN: dict[str, Any] = {"hidden": 16}
_CHANNELS: dict[str, Any] = {"channel_scale": 3.0}
_CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "fast gate": _FAST,
    "no gate": {"gated": False},
    "temperature 3": _WARM,
    "temperature 3, fast gate": _WARM | _FAST,
    "larger weights": {"gamma_scale": 1.0, "gamma_max": 3.0},
    "sigmoid": {"node_weights": "sigmoid", "temperature": 1.0},
    "hidden layer": _HIDDEN,
    "alpha 0.3": {"alpha": 0.3},
    "no intercepts": {"intercept_scale": 0.0},
    "upper": _UPPER,
    "upper, fast gate": _UPPER | _FAST,
    "upper, fast gate, temperature 3": _UPPER | _FAST | _WARM,
    "damped": _DAMPED,
    "damped, fast gate": _DAMPED | _FAST,
    "damped, fast gate, temperature 3": _DAMPED | _FAST | _WARM,
    # The second round, after a look at the first.
    "hidden layer, damped": _HIDDEN | _DAMPED,
    "fast channels": _CHANNELS,
    "fast channels, no intercepts": _CHANNELS | {"intercept_scale": 0.0},
    "fast channels, upper": _CHANNELS | _UPPER,
    "fast channels, a third below": _CHANNELS | {"rest_scale": 0.3, "intercept_scale": 0.0},
    "fast channels, damped": _CHANNELS | _DAMPED,
}

# Every constant is spelled out in a record: a candidate stays what it is when the default changes.
CANDIDATES = {name: START | changes for name, changes in _CHANGES.items()}

RULE = f"""\
Seeds from {FIRST_SEED:,} on, which no other table has, half as many on Flickr as on Cora; every
backbone with the settings of the main table. A candidate's figure in a cell is its validation
accuracy minus ReLU's, the mean over seeds of both. Candidates are trained with all backbones but
GAT first. A candidate is *admissible* unless its figure is more than two standard errors below zero
in some cell. The {FINALISTS} admissible candidates with the highest mean over the cells are the
finalists, and are trained with GAT, too; the finalist that is admissible and has the highest mean
over all cells is chosen. Where none is admissible, the one whose clearest harm is the smallest goes
first.

There were two rounds. The first had all candidates but the last six, and a stricter rule (no
figure below -0.5 points), which no candidate met: in the noisiest cells chance alone goes further.
The rule above and the last six candidates were written down before the second round ran.
"""
NAMED = """\
*Start*: where the study began. *Fast gate*: the gate moves three times as fast. *No gate*: the
channel MLP's last layer starts at zero instead. *Upper*: only the slope above zero adapts.
*Damped*: slopes below zero move a tenth, and intercepts a twentieth, as far. *A third below*:
slopes below zero move a third as far, and there are no intercepts. *Larger weights*: an average
node moves by the learned shift itself, and not by a third of it. *Sigmoid*: each node by itself
instead of a softmax over all. *Fast channels*: the channel block moves three times as fast.
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


def cells(
    dataset: str, backbones: Iterable[str], epochs: int | None = None
) -> dict[str, list[Config]]:
    """Candidate, or ``relu`` -> its configurations on a graph."""
    family = family_of(dataset)
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    found: dict[str, list[Config]] = {name: [] for name in ("relu", *CANDIDATES)}
    for backbone in backbones:
        found["relu"].append(recipe(dataset, family, backbone, "relu", **changes))
        for name, options in CANDIDATES.items():
            cell = recipe(dataset, family, backbone, "grelu", activation_options=options, **changes)
            found[name].append(cell)
    return found


def collect(request: Request) -> str:
    """Train what the record lacks: all candidates, then the finalists with the slowest backbone."""
    deadline = request.deadline()
    early = ["gcn"] if request.quick else [name for name in BACKBONES if name != LATE]
    finished, wanted = _train(request, deadline, early, ["relu", *CANDIDATES])
    if finished == wanted and not request.quick:
        best = finalists(validation(Record(request.out).read()))
        more = _train(request, deadline, [LATE], ["relu", *best])
        finished, wanted = finished + more[0], wanted + more[1]
    return standing(finished, wanted, request.out)


def _train(
    request: Request, deadline: float, backbones: Sequence[str], names: Sequence[str]
) -> tuple[int, int]:
    """How many runs are finished, of how many."""
    finished = wanted = 0
    for dataset in request.datasets(*DATASETS):
        found = cells(dataset, backbones, QUICK_EPOCHS if request.quick else None)
        # All that share features and graph one after the other.
        rows = zip(*(found[name] for name in names), strict=True)
        configs = [config for row in rows for config in row]
        runs = max(1, request.runs // SHARE.get(dataset, 1))
        seeds = range(FIRST_SEED, FIRST_SEED + runs)
        if request.seconds is not None:  # those that are left of the whole
            request = replace(request, seconds=max(0.01, deadline - time.monotonic()))
        finished += len(train_missing(configs, request, seeds))
        wanted += len(configs) * runs
    return finished, wanted


def validation(results: Iterable[Result]) -> Cells:
    """Cell -> candidate -> validation scores."""
    known = [replace(r, score=r.val_score) for r in results if _name(r.config) is not None]
    return scores_by_cell(known, lambda config: _name(config) or "")


def figures(scores: Cells) -> Figures:
    """How far each candidate is ahead of ReLU in each cell, over the seeds of both."""
    found: Figures = {}
    for cell, own in scores.items():
        relu = own.get("relu", {})
        for name, candidate in own.items():
            seeds = candidate.keys() & relu.keys()
            if name != "relu" and len(seeds) > 1:
                leads = [100 * (candidate[seed] - relu[seed]) for seed in seeds]
                error = stdev(leads) / len(leads) ** 0.5
                found.setdefault(name, {})[cell] = Figure(fmean(leads), error)
    return found


def finalists(scores: Cells) -> list[str]:
    """The candidates that are worth the slowest backbone, the best first."""
    early = {cell: own for cell, own in scores.items() if cell[1] != LATE}
    return ranked(figures(early))[:FINALISTS]


def ranked(found: Figures) -> list[str]:
    """Candidates by the rule, the best first."""

    def merit(name: str) -> tuple[bool, float]:
        leads = found[name].values()
        clearest_harm = min(figure.mean + 2 * figure.error for figure in leads)
        if clearest_harm < 0:
            return False, clearest_harm
        return True, fmean(figure.mean for figure in leads)

    return sorted(found, key=merit, reverse=True)


def chosen(scores: Cells) -> str | None:
    """The rule's outcome; none as long as cells are missing."""
    best = finalists(scores)
    found = figures(scores)
    late = {cell for cell in scores if cell[1] == LATE}
    if len(best) < FINALISTS or not late or any(not late <= found[name].keys() for name in best):
        return None
    return ranked({name: found[name] for name in best})[0]


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


def render(record: Path) -> list[Path]:
    """The study as a page and as CSV."""
    results = [result for result in Record(record).read() if _name(result.config) is not None]
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
        parts += [f"## {label(dataset)}\n", _table([r for r in rows if r.dataset == dataset])]
    return "\n".join(parts)


def _outcome(results: Sequence[Result]) -> str:
    scores = validation(results)
    found, best = figures(scores), chosen(scores)
    lines = []
    for name in ranked(found):
        leads = list(found[name].values())
        title = f"**{name}**" if name == best else name
        harm = min(figure.mean + 2 * figure.error for figure in leads)
        mean = fmean(figure.mean for figure in leads)
        lines.append((title, "no" if harm < 0 else "yes", f"{mean:+.2f}", str(len(leads))))
    head = ("candidate", "admissible", "mean over cells", "cells")
    verdict = "The study is not finished.\n" if best is None else f"The rule chooses **{best}**.\n"
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


def _key(activation: str, options: Options) -> tuple[object, ...]:
    return activation, tuple(sorted(options))


_NAMES = {_key("grelu", tuple(options.items())): name for name, options in CANDIDATES.items()}
_NAMES[_key("relu", ())] = "relu"


def _name(config: Config) -> str | None:
    return _NAMES.get(_key(config.activation, config.activation_options))


EXPERIMENT = Experiment(runs=28, quick_runs=6, collect=collect, render=render)
