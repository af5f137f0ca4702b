"""Features of another scale: the activations on features a hundred times smaller or larger.

Row-normalised features are multiplied by a number; everything else is the main table's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import ACTIVATIONS, family_of, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render.tables import percent
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing, train_missing
from graphrelu.lab.reproduce.findings import Finding
from graphrelu.lab.stats.comparison import Comparison, Scores, compared, scores_by_cell

DATASETS = ("cora", "citeseer", "pubmed")
BACKBONES = ("gcn", "sage")
SCALES = (0.01, 1.0, 100.0)
SMALL = SCALES[0]
QUICK_EPOCHS = 30
MARGIN = 1.0  # percent points: what is smaller does not matter

Cell: TypeAlias = tuple[str, str]  # dataset, backbone
Runs: TypeAlias = dict[tuple[str, str, str], dict[float, Scores]]  # cell, activation -> scale


@dataclass(frozen=True)
class ScaleRow:
    """One activation at one scale, in percent, and how far it is behind its own best scale.

    That is the scale of the highest mean validation accuracy, where ``behind_best`` is ``None``.
    All of these, and GReLU's leads over PReLU at the smallest scale, are one family each for
    Holm's correction.
    """

    dataset: str
    backbone: str
    activation: str
    scale: float
    mean: float
    std: float
    best: float
    n: int
    behind_best: Comparison | None
    grelu_over_prelu: Comparison | None


@dataclass(frozen=True)
class Robustness:
    """What GReLU loses at its worst scale, against what the rival does that loses least.

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
        """Whether GReLU is known to lose no more, but for the margin, or to lose more than that."""
        if self.excess.high is not None and self.excess.high < MARGIN:
            return "holds"
        much_more = self.excess.outcome == "better" and self.excess.difference > MARGIN
        return "does not hold" if much_more else "undecided"


def cells(dataset: str, epochs: int | None = None) -> list[Config]:
    """A cell for each backbone, scale and activation; at scale 1 they are the main table's own."""
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    return [
        recipe(dataset, family_of(dataset), backbone, name, feature_scale=scale, **changes)
        for backbone in BACKBONES
        for scale in SCALES
        for name in ACTIVATIONS
    ]


def collect(request: Request) -> str:
    """Train what the record lacks, in haste of one graph."""
    epochs = QUICK_EPOCHS if request.quick else None
    datasets = request.datasets(*DATASETS[:1]) if request.quick else DATASETS
    configs = [cell for name in datasets for cell in cells(name, epochs)]
    finished = train_missing(configs, request)
    return standing(len(finished), len(configs) * request.runs, request.out)


def belongs(config: Config) -> bool:
    """Whether a cell is one of these, whatever its graph and epochs."""
    names = (config.backbone, config.activation)
    if names[0] not in BACKBONES or names[1] not in ACTIVATIONS:
        return False
    settings: dict[str, Any] = {"epochs": config.epochs, "feature_scale": config.feature_scale}
    same = config == recipe(config.dataset, family_of(config.dataset), *names, **settings)
    return same and config.feature_scale in SCALES


def scores_by_scale(results: Sequence[Result]) -> Runs:
    """The scores of every cell, activation and scale, in the order of the constants."""
    found: Runs = {}
    for scale in SCALES:
        part = [result for result in results if result.config.feature_scale == scale]
        for cell, scores in scores_by_cell(part).items():
            for name, own in scores.items():
                found.setdefault((*cell, name), {})[scale] = own
    place = {name: i for i, name in enumerate((*DATASETS, *BACKBONES, *ACTIVATIONS))}
    return dict(sorted(found.items(), key=lambda item: [place.get(n, len(place)) for n in item[0]]))


def best_scales(results: Sequence[Result]) -> dict[tuple[str, str, str], float]:
    """Dataset, backbone and activation -> the scale that the validation nodes prefer.

    Of equal ones the scale 1, then the smaller.
    """
    validated: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for result in results:
        config = result.config
        key = (config.dataset, config.backbone, config.activation)
        by_scale = validated.setdefault(key, {})
        by_scale.setdefault(config.feature_scale, []).append(result.val_score)

    def rank(item: tuple[float, list[float]]) -> tuple[float, bool, float]:
        scale, scores = item
        # Accuracies are whole counts: without rounding, equal means would not tie.
        return round(fmean(scores), 12), scale == 1, -scale

    return {key: max(by_scale.items(), key=rank)[0] for key, by_scale in validated.items()}


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
    over_prelu = compared(
        {
            (*key, SMALL): (own.get(SMALL, {}), runs.get((*key[:2], "prelu"), {}).get(SMALL, {}))
            for key, own in runs.items()
            if key[2] == "grelu"
        }
    )
    rows = []
    for key, by_scale in runs.items():
        for scale, own in by_scale.items():
            place = (*key, scale)
            leads = behind.get(place), over_prelu.get(place)
            rows.append(ScaleRow(*place, *percent(own), *leads))
    return rows


def robustness(results: Sequence[Result]) -> list[Robustness]:
    """GReLU against the most robust rival, in every cell of which all scales were run.

    Holm's correction is over the cells.
    """
    preferred = best_scales(results)
    losses: dict[Cell, dict[str, Scores]] = {}
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
    """Seed by seed, what is lost at the scale of the lowest mean against the best one."""
    seeds = sorted(set.intersection(*(set(scores) for scores in by_scale.values())))
    worst = min(by_scale, key=lambda scale: sum(by_scale[scale][seed] for seed in seeds))
    return {seed: by_scale[best][seed] - by_scale[worst][seed] for seed in seeds}


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    from graphrelu.lab.reproduce.scale_page import write

    results = [result for result in Record(record).read() if belongs(result.config)]
    if not results:
        raise ValueError(f"{record} has no runs on features of these scales.")
    return write(results, record)


EXPERIMENT = Experiment(runs=30, quick_runs=3, collect=collect, render=render)
