"""Metrics of one run, and statistics over runs: summaries, paired differences, corrections."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Values: TypeAlias = Sequence[float] | np.ndarray
TensorLike: TypeAlias = Tensor | np.ndarray


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation (0 for a single value), largest value and count."""

    mean: float
    std: float
    best: float
    n: int


@dataclass(frozen=True)
class PairedDifference:
    """The mean of ``a - b`` with its 95 % t-interval; ``None`` where one pair cannot tell.

    ``p`` is the two-sided Wilcoxon signed-rank test's, ``p_ttest`` the paired t-test's.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    p_ttest: float | None
    n: int


def summary(values: Values) -> Summary:
    """Summarise the results of several runs."""
    array = _finite(values)
    std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Summary(mean=float(array.mean()), std=std, best=float(array.max()), n=len(array))


def paired_difference(a: Values, b: Values) -> PairedDifference:
    """How much larger ``a`` is than ``b``, paired by position (the same seed in both)."""
    first, second = _finite(a), _finite(b)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}.")
    # Accuracies are whole counts over N: without rounding, equal differences would not tie.
    difference = np.round(first - second, 12)
    n, mean = len(difference), float(difference.mean())
    if n == 1:
        return PairedDifference(mean, None, None, None, None, n)
    if not difference.any():
        return PairedDifference(0.0, 0.0, 0.0, 1.0, 1.0, n)

    from scipy import stats

    std = float(difference.std(ddof=1))
    error, reach = std / n**0.5, half_width(std, n)
    statistic = abs(mean) / error if error > 0 else np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older scipy warns where ties rule out an exact p-value
        wilcoxon = float(stats.wilcoxon(difference).pvalue)
    ttest = float(2 * stats.t.sf(statistic, n - 1))
    return PairedDifference(mean, mean - reach, mean + reach, wilcoxon, ttest, n)


def half_width(std: float, n: int) -> float:
    """How far the 95 % t-interval of a mean of ``n`` values, two or more, reaches to each side."""
    from scipy import stats

    return float(stats.t.ppf(0.975, n - 1)) * std / n**0.5


def holm(pvalues: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order given; ``None`` and NaN are left out as ``None``.

    The i-th smallest of m p-values is multiplied by m - i + 1, and never falls below the one
    before it.
    """
    adjusted: list[float | None] = [None] * len(pvalues)
    known = sorted((p, i) for i, p in enumerate(pvalues) if p is not None and not np.isnan(p))
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, float(p) * (len(known) - rank)))
        adjusted[i] = largest
    return adjusted


def power_law(sizes: Values, times: Values) -> tuple[float, float | None, float | None]:
    """The exponent of a power law, by least squares on logarithms, with its 95 % interval."""
    from scipy import stats

    line = stats.linregress(np.log(sizes), np.log(times))
    exponent = float(line.slope)
    if len(sizes) < 3:
        return exponent, None, None
    half = float(stats.t.ppf(0.975, len(sizes) - 2) * line.stderr)
    return exponent, exponent - half, exponent + half


def rank_correlation(a: Values, b: Values) -> float | None:
    """Spearman's rank correlation; none where one side is constant."""
    from scipy import stats

    if len(set(a)) == 1 or len(set(b)) == 1:
        return None
    return float(stats.spearmanr(a, b).statistic)


def accuracy(logits_or_pred: TensorLike, y: TensorLike) -> float:
    """The share of nodes whose predicted class, ``[N]`` or the argmax of ``[N, C]``, is right."""
    pred, target = _classes(logits_or_pred, y)
    return float((pred == target).double().mean())


def f1(logits_or_pred: TensorLike, y: TensorLike) -> float:
    """Macro F1: the mean over the classes that occur in the labels or the predictions."""
    pred, target = _classes(logits_or_pred, y)
    scores = []
    for label in torch.unique(torch.cat([pred, target])):
        in_pred, in_target = pred == label, target == label
        hits = (in_pred & in_target).sum()
        scores.append(2 * float(hits) / float(in_pred.sum() + in_target.sum()))
    return sum(scores) / len(scores)


def rocauc(logits: TensorLike, y: TensorLike) -> float:
    """Area under the ROC curve: binary, or the mean over classes, each against the rest.

    ``logits`` is ``[N]`` (the score of class 1) or ``[N, C]``. Classes that do not occur among
    the labels are left out of the mean.
    """
    scores, target = torch.as_tensor(logits).detach().double(), torch.as_tensor(y)
    _same_length(scores, target)
    if scores.dim() == 2 and scores.size(1) == 2:
        scores = scores[:, 1] - scores[:, 0]
    if scores.dim() == 1:
        return _binary_auc(scores, target == 1)
    # One logit alone does not rank nodes; the probability does.
    probability = scores.softmax(dim=1)
    present = torch.unique(target)
    areas = [_binary_auc(probability[:, label], target == label) for label in present.tolist()]
    return sum(areas) / len(areas)


def _binary_auc(score: Tensor, positive: Tensor) -> float:
    """The chance that a positive outranks a negative, ties counting half (Mann-Whitney)."""
    num_positive = int(positive.sum())
    num_negative = positive.numel() - num_positive
    if num_positive == 0 or num_negative == 0:
        raise ValueError("The area under the ROC curve needs nodes of two classes.")
    _, group, sizes = torch.unique(score, return_inverse=True, return_counts=True)
    mean_rank = sizes.cumsum(0) - (sizes - 1) / 2
    rank_sum = float(mean_rank.double()[group][positive].sum())
    smallest = num_positive * (num_positive + 1) / 2
    return (rank_sum - smallest) / (num_positive * num_negative)


def _classes(logits_or_pred: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    pred, target = torch.as_tensor(logits_or_pred), torch.as_tensor(y)
    _same_length(pred, target)
    return pred.argmax(dim=-1) if pred.dim() == 2 else pred, target


def _same_length(pred: Tensor, target: Tensor) -> None:
    if target.dim() != 1 or target.numel() == 0 or pred.size(0) != target.numel():
        raise ValueError(f"Predictions {list(pred.shape)} do not fit labels {list(target.shape)}.")


def _finite(values: Values) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise ValueError("Statistics need a list of one or more finite numbers.")
    return array
