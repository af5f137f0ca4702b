"""The metrics of all runs at once are those of each run alone by scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor

from graphrelu.lab.engine.scores import TASKS, calibration_error


def runs(outputs: int, ties: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, classes, and which of them are known."""
    generator = torch.Generator().manual_seed(outputs)
    logits = torch.randn(5, 40, outputs, generator=generator, dtype=torch.double)
    label = torch.randint(outputs, (5, 40), generator=generator)
    known = torch.arange(40) < torch.tensor([40, 39, 30, 21, 12]).view(-1, 1)
    return (2 * logits).round() if ties else logits, label, known.unsqueeze(2)


def of_classes(metric: str, logits: Tensor, label: Tensor) -> float:
    if metric == "accuracy":
        return float(metrics.accuracy_score(label, logits.argmax(dim=1)))
    if metric == "f1":
        return float(metrics.f1_score(label, logits.argmax(dim=1), average="macro"))
    if logits.size(1) == 2:
        return float(metrics.roc_auc_score(label, logits[:, 1] - logits[:, 0]))
    share = logits.softmax(dim=1)  # one logit alone does not rank nodes
    present = label.unique().tolist()
    return fmean(metrics.roc_auc_score(label == one, share[:, one]) for one in present)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("metric", list(TASKS["classes"].scores))
def test_classes(metric: str, classes: int, ties: bool) -> None:
    logits, label, known = runs(classes, ties)
    label[4, known[4, :, 0]] %= 2  # the last run has no node of the other classes
    found = TASKS["classes"].scores[metric](logits, label, known)
    for run, value in enumerate(found.tolist()):
        chosen = known[run, :, 0]
        expected = of_classes(metric, logits[run, chosen], label[run, chosen])
        assert value == pytest.approx(expected, abs=1e-12)


# By scikit-learn, for one output.
OF_ONE: dict[str, Callable[[Any, Any], float]] = {
    "rocauc": metrics.roc_auc_score,
    "ap": metrics.average_precision_score,
    "accuracy": lambda true, own: metrics.accuracy_score(true == 1, own > 0),
    "mae": lambda true, own: -metrics.mean_absolute_error(true, own),
    "rmse": lambda true, own: -(metrics.mean_squared_error(true, own) ** 0.5),
    "r2": metrics.r2_score,
}


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("task", "metric"),
    [(task, name) for task in ("labels", "values") for name in TASKS[task].scores],
)
def test_several_outputs(task: str, metric: str, ties: bool, gaps: bool) -> None:
    """Each on its own, but for micro F1; with gaps, which are NaN, as sets of graphs have them."""
    logits, _, known = runs(3, ties)
    generator = torch.Generator().manual_seed(0)
    label = (torch.rand(logits.shape, generator=generator) < 0.4).float()
    if task == "values":
        label = logits.sin().float() + 5
    elif metric in ("rocauc", "ap"):
        label[:, :, 2] = 1  # tells no node from another, and does not count
    known = known.expand_as(label)
    if gaps:
        known = known & (torch.rand(label.shape, generator=generator) < 0.8)
    label = label.masked_fill(~known, torch.nan)
    for run, value in enumerate(TASKS[task].scores[metric](logits, label, known).tolist()):
        pairs = [(label[run, k, i], logits[run, k, i]) for i, k in enumerate(known[run].unbind(1))]
        if metric == "f1":
            true, own = map(torch.cat, zip(*pairs, strict=True))
            expected = metrics.f1_score(true, own > 0)
        else:
            told = pairs[:2] if metric in ("rocauc", "ap") else pairs
            expected = fmean(OF_ONE[metric](true, own) for true, own in told)
        assert value == pytest.approx(expected, abs=1e-6 if task == "values" else 1e-12)


def test_where_there_is_nothing_to_tell() -> None:
    _, label, known = runs(2)
    rocauc, alike = TASKS["classes"].scores["rocauc"], torch.ones(5, 40, 1)
    assert rocauc(torch.zeros(5, 40, 2), label, known).tolist() == [0.5] * 5
    assert rocauc(torch.zeros(5, 40, 2), torch.ones(5, 40).long(), known).isnan().all()
    for task, metric in (("labels", "rocauc"), ("labels", "ap"), ("values", "r2")):
        assert TASKS[task].scores[metric](torch.zeros(5, 40, 1), alike, known).isnan().all()


def test_calibration_of_each_run() -> None:
    logits, label, known = runs(3)
    together = calibration_error(logits, label, known)
    for run, chosen in enumerate(known.squeeze(2)):
        share = logits[run, chosen].softmax(dim=1).numpy()
        right = (share.argmax(axis=1) == label[run, chosen].numpy()).astype(float)
        bins = np.digitize(share.max(axis=1), np.linspace(0, 1, 16), right=True)
        gaps = [abs((right - share.max(axis=1))[bins == one].sum()) for one in range(1, 16)]
        assert together[run].item() == pytest.approx(sum(gaps) / len(right), abs=1e-12)
