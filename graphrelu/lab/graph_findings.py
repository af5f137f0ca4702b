"""What the paper observes of graph classification: it gains from GReLU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from graphrelu.lab.comparison import Scores, compared
from graphrelu.lab.config import Config
from graphrelu.lab.findings import Observation, in_all, papers_lead, several
from graphrelu.lab.results import Result
from graphrelu.lab.tables import signed

CELLS = tuple((d, b) for d in ("proteins", "mutag") for b in ("gcn", "sage", "gin"))
CHOOSING_SEEDS = range(10)  # the folds on which hyperparameters are chosen; others repeat


def observations(results: Sequence[Result]) -> list[Observation]:
    """GReLU against ReLU, each with the hyperparameters that were chosen for it."""
    scores = chosen_scores(results)
    pairs = {}
    for cell in CELLS:
        grelu, relu = (scores.get((*cell, name), {}) for name in ("grelu", "relu"))
        repeated = _repeats(grelu), _repeats(relu)
        pairs[cell] = repeated if all(repeated) else (grelu, relu)
    leads = compared(pairs).values()
    papers = [papers_lead("graph_classification", *cell) for cell in CELLS]
    figure = f"{signed(min(papers))} to {signed(max(papers))} points"
    claim = "GReLU is ahead of ReLU in graph classification"
    return [Observation(claim, figure, in_all(leads), several(leads))]


def chosen_scores(results: Iterable[Result]) -> dict[tuple[str, str, str], Scores]:
    """For each dataset, backbone and activation: the scores of the hyperparameters with the
    highest mean validation score."""
    tried: dict[tuple[str, str, str], dict[Config, list[Result]]] = {}
    for result in results:
        config = result.config
        key = (config.dataset.lower(), config.backbone, config.activation)
        tried.setdefault(key, {}).setdefault(config, []).append(result)
    chosen = {}
    for key, configs in tried.items():
        means = {
            config: fmean(validated)
            for config, runs in configs.items()
            if (validated := [run.val_score for run in runs if run.seed in CHOOSING_SEEDS])
        }
        if means:
            best = max(means, key=lambda config: means[config])
            chosen[key] = {run.seed: run.score for run in configs[best]}
    return chosen


def _repeats(scores: Scores) -> Scores:
    return {seed: score for seed, score in scores.items() if seed not in CHOOSING_SEEDS}
