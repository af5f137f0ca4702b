"""How GReLU's default constants are chosen: by validation accuracy on a few graphs.

Test accuracy is in the record, as in every other, and nothing here looks at it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from graphrelu.lab.comparison import Cells, scores_by_cell
from graphrelu.lab.config import Config, Options
from graphrelu.lab.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.recipes import BACKBONES, family_of, recipe
from graphrelu.lab.results import Record, Result


class Figure(NamedTuple):
    """Percent points ahead of ReLU, and their standard error."""

    mean: float
    error: float


Figures: TypeAlias = dict[str, dict[tuple[str, str], Figure]]  # candidate -> cell

# A generated graph on which a node's surroundings must be known (docs/structure.md).
MIRRORED = "csbm:nodes=1000,homophily=1,shift=1"
DATASETS = ("cora", "citeseer", "flickr", MIRRORED)
FIRST_SEED = 1000  # of no other table
SHARE = {"flickr": 2}  # half of the seeds, as a run there takes several times as long
LATE = "gat"  # the slowest backbone by far: for the best candidates only
# In a cell, of what no chance is to be blamed for: in standard errors; and in percent points, as
# far as they are not within fewer of them.
MOST_ERRORS, MOST_LOST, FEW_ERRORS = 2.5, 0.5, 1.5
QUICK_EPOCHS = 30

# Where the study began: constants found by looking at test accuracy on four of the paper's graphs.
START: dict[str, Any] = {
    "temperature": 10.0,
    "gamma_scale": 1 / 3,
    "gamma_max": 1.0,
    "rest_scale": 1.0,
    "intercept_scale": 0.5,
    "channel_scale": 1.0,
    "gate_scale": 1.0,
    "gate_max": None,
    "gated": True,
    "smooth": False,
    "rest_smooth": False,
    "first_smooth": False,
    "centred": False,
    "node_weights": "softmax",
}
_SMOOTH: dict[str, Any] = {"smooth": True, "temperature": 1.0}
_UPPER: dict[str, Any] = {"rest_scale": 0.0, "intercept_scale": 0.0}
_DAMPED: dict[str, Any] = {"rest_scale": 0.1, "intercept_scale": 0.05}
_TWICE: dict[str, Any] = {"smooth": 2, "temperature": 0.5}
_COLD: dict[str, Any] = {"temperature": 0.25}
_COOL: dict[str, Any] = {"temperature": 0.5}
# GReLU had a shrinkage for a while: these have their place in the record, and cannot run.
_MORE: dict[str, Any] = {"shrinkage": 10.0, "temperature": 0.1}
_MOST: dict[str, Any] = {"shrinkage": 30.0, "temperature": 0.03}
_FAST: dict[str, Any] = {"gate_scale": 3.0}
_SLOW: dict[str, Any] = {"gate_scale": 0.3}
# Of slopes below zero and intercepts, as many times more as a slow gate takes less.
_SCALED: dict[str, Any] = {"rest_smooth": True, "rest_scale": 3.0, "intercept_scale": 1.5} | _SLOW
_CENTRED: dict[str, Any] = {"centred": True}
_BOUNDED: dict[str, Any] = {"gate_max": 0.5}
_THROUGHOUT: dict[str, Any] = {"smooth": True, "rest_smooth": True, "centred": True}
_SHIFT: dict[str, Any] = _THROUGHOUT | {"first_smooth": True}
_DOUBLE: dict[str, Any] = {"rest_scale": 2.0, "intercept_scale": 1.0}
_CHANGES: dict[str, dict[str, Any]] = {
    "start": {},
    "damped": _DAMPED,
    "smooth": _SMOOTH,
    "smooth, no intercepts": _SMOOTH | {"intercept_scale": 0.0},
    "smooth, damped": _SMOOTH | _DAMPED,
    "smooth, damped, fast gate": _SMOOTH | _DAMPED | _FAST,
    "smooth, damped, temperature 0.5": _SMOOTH | _DAMPED | _COOL,
    "smooth, upper": _SMOOTH | _UPPER,
    "smooth, upper, fast gate": _SMOOTH | _UPPER | _FAST,
    # The fourth round, after a look at the third.
    "smooth, damped, slow gate": _SMOOTH | _DAMPED | _SLOW,
    "smooth, bounded": _SMOOTH | _BOUNDED,
    "smooth, no intercepts, bounded": _SMOOTH | _BOUNDED | {"intercept_scale": 0.0},
    "smooth, damped, bounded": _SMOOTH | _BOUNDED | _DAMPED,
    "smooth, damped, bounded, temperature 0.5": _SMOOTH | _BOUNDED | _DAMPED | _COOL,
    # The fifth round, after a look at the fourth.
    "smooth, upper, slow gate": _SMOOTH | _UPPER | _SLOW,
    "smooth, damped, slow gate, temperature 0.5": _SMOOTH | _DAMPED | _SLOW | _COOL,
    # The sixth round, after a look at the fifth.
    "twice smooth, damped, slow gate": _TWICE | _DAMPED | _SLOW,
    "twice smooth, damped, slow gate, temperature 0.25": _TWICE | _DAMPED | _SLOW | _COLD,
    # The seventh round, after the main table, with CiteSeer among the graphs that choose.
    "shrunk more, damped, slow gate": _SMOOTH | _MORE | _DAMPED | _SLOW,
    "shrunk more, scaled, centred": _SMOOTH | _MORE | _SCALED | _CENTRED,
    "shrunk most, scaled": _SMOOTH | _MOST | _SCALED,
    "shrunk most, scaled, centred": _SMOOTH | _MOST | _SCALED | _CENTRED,
    "shrunk most, scaled, centred, half intercepts": (
        _SMOOTH | _MOST | _SCALED | _CENTRED | {"intercept_scale": 0.75}
    ),
    "shrunk most, scaled, centred, no intercepts": (
        _SMOOTH | _MOST | _SCALED | _CENTRED | {"intercept_scale": 0.0}
    ),
    # The eighth round, after the main table and the generated graphs.
    "smooth throughout": _THROUGHOUT,
    "smooth throughout, temperature 7": _THROUGHOUT | {"temperature": 7.0},
    "smooth throughout, temperature 20": _THROUGHOUT | {"temperature": 20.0},
    "smooth throughout, slow gate": _THROUGHOUT | _SLOW,
    "smooth throughout, gate 0.6": _THROUGHOUT | {"gate_scale": 0.6},
    "smooth throughout, half intercepts": _THROUGHOUT | {"intercept_scale": 0.25},
    "smooth throughout, half": _THROUGHOUT | {"rest_scale": 0.5, "intercept_scale": 0.25},
    "smooth throughout, twice": _THROUGHOUT | _DOUBLE,
    # The ninth round, after the eighth's figures with all backbones but GAT.
    "smooth shift": _SHIFT,
    "smooth shift, temperature 7": _SHIFT | {"temperature": 7.0},
    "smooth shift, gate 2": _SHIFT | {"gate_scale": 2.0},
    "smooth shift, twice": _SHIFT | _DOUBLE,
    "smooth shift, twice, temperature 7": _SHIFT | _DOUBLE | {"temperature": 7.0},
    "smooth shift squared, twice": _SHIFT | _DOUBLE | {"smooth": 2},
}

# Those that the latest round trains and chooses from.
ROUND = (
    "smooth throughout, gate 0.6",
    "smooth throughout, half intercepts",
    "smooth shift",
    "smooth shift, temperature 7",
    "smooth shift, gate 2",
    "smooth shift, twice",
    "smooth shift, twice, temperature 7",
    "smooth shift squared, twice",
)

# Every constant is spelled out in a record: a candidate stays what it is when the default changes.
CANDIDATES = {name: START | changes for name, changes in _CHANGES.items()}


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
    """Train what the record lacks: the round's candidates, then the best with the slowest
    backbone."""
    deadline = request.deadline()
    early = ["gcn"] if request.quick else [name for name in BACKBONES if name != LATE]
    finished, wanted = _train(request, deadline, early, ["relu", *ROUND])
    while finished == wanted and not request.quick:
        name = untried(validation(Record(request.out).read()))
        if name is None:
            break
        more = _train(request, deadline, [LATE], ["relu", name])
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
    known = [result for result in results if candidate_of(result.config)]
    return scores_by_cell(known, lambda config: candidate_of(config) or "", attrgetter("val_score"))


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


def contenders(scores: Cells) -> list[str]:
    """The round's candidates that are worth the slowest backbone, the best first."""
    found = figures({cell: own for cell, own in scores.items() if cell[1] != LATE})
    order = [name for name in ranked(found) if name in ROUND]
    return [name for name in order if harm(found[name]) >= 0] or order[:1]


def harm(cells: dict[tuple[str, str], Figure]) -> float:
    """The lowest figure of a candidate, relative to what it may be; admissible from zero on."""
    return min(
        mean + max(FEW_ERRORS * error, min(MOST_LOST, MOST_ERRORS * error))
        for mean, error in cells.values()
    )


def ranked(found: Figures) -> list[str]:
    """Candidates by the rule, the best first."""

    def merit(name: str) -> tuple[bool, float]:
        worst = harm(found[name])
        if worst < 0:
            return False, worst
        return True, fmean(figure.mean for figure in found[name].values())

    return sorted(found, key=merit, reverse=True)


def untried(scores: Cells) -> str | None:
    """The contender that is to be trained with the slowest backbone; none where one is chosen."""
    found = figures(scores)
    late = _late_cells()
    for name in contenders(scores):
        if not late <= found[name].keys():
            return name
        if harm(found[name]) >= 0:
            return None
    return None


def _late_cells() -> set[tuple[str, str]]:
    return {(dataset, LATE) for dataset in DATASETS}


def chosen(scores: Cells) -> str | None:
    """The rule's outcome; none as long as cells are missing."""
    found = figures(scores)
    early = {(dataset, backbone) for dataset in DATASETS for backbone in BACKBONES} - _late_cells()
    if not all(early <= found.get(name, {}).keys() for name in ROUND):
        return None
    if untried(scores) is not None:
        return None
    order = contenders(scores)
    return next(
        (name for name in order if harm(found[name]) >= 0),
        ranked({name: found[name] for name in order})[0],
    )


def _key(activation: str, options: Options) -> tuple[object, ...]:
    return activation, tuple(sorted(options))


_NAMES = {_key("grelu", tuple(options.items())): name for name, options in CANDIDATES.items()}
_NAMES[_key("relu", ())] = "relu"


def candidate_of(config: Config) -> str | None:
    """Its name, or ``relu``; none for the runs of other experiments."""
    return _NAMES.get(_key(config.activation, config.activation_options))


def render(record: Path) -> list[Path]:
    """The study as a page and as CSV."""
    from graphrelu.lab.calibration_page import render_calibration

    return render_calibration(record)


EXPERIMENT = Experiment(runs=28, quick_runs=6, collect=collect, render=render)
