"""What is predicted: the loss, the scores (as in scikit-learn) and the calibration.

Scores choose the epoch of all runs at once during training, inside a CUDA graph: every shape is
fixed. Each function takes logits `[R, n, outputs]`, labels `[R, n]` for classes and
`[R, n, outputs]` otherwise, and which labels are known, `[R, n, 1]` or `[R, n, outputs]`: the
others are padding, or gaps. It returns `[R]`, over several outputs the mean. The higher a score the
better: an error is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.data.graph import Task
from graphrelu.lab.record.config import Metric

CALIBRATION_BINS = 15  # as in "On Calibration of Modern Neural Networks", Guo et al. 2017

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # logits, label -> [R, n, 1 or outputs]
Score: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, label, known -> [R]


class Rules(NamedTuple):
    """The loss of a task, and its scores by the metrics' names, the default one first."""

    loss: Loss
    scores: dict[Metric, Score]


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    return -logits.log_softmax(dim=2).gather(2, label.unsqueeze(2))


def binary_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, label.to(logits.dtype), reduction="none")


def absolute_error(logits: Tensor, label: Tensor) -> Tensor:
    return (logits - label.to(logits.dtype)).abs()


def accuracy(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The share of nodes whose class is right."""
    right = (logits.argmax(dim=2) == label).unsqueeze(2)
    return _over_known(right.double(), known).squeeze(1)


def f1(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """Macro F1 over the classes that occur in the labels or the predictions."""
    classes = logits.size(2)
    predicted = _one_hot(logits.argmax(dim=2), classes) & known
    true = _one_hot(label, classes) & known
    hits, total = (predicted & true).sum(dim=1), predicted.sum(dim=1) + true.sum(dim=1)
    return (2 * hits.double() / total.clamp(min=1)).sum(dim=1) / (total > 0).sum(dim=1)


def rocauc(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """Area under the ROC curve, of more than two classes the mean of each against the rest.

    Where the nodes are of one class it is NaN.
    """
    classes = logits.size(2)
    logits = logits.double().nan_to_num()  # a run may have diverged
    if classes == 2:
        score = logits[..., 1:] - logits[..., :1]
        return _area(score, (label == 1).unsqueeze(2), known)
    return _area(logits.softmax(dim=2), _one_hot(label, classes), known)


def rocauc_of_labels(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The mean area under the ROC curve, over the labels that some nodes have and others lack."""
    return _area(logits.double().nan_to_num(), label == 1, known)


def average_precision(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The mean over the labels that some nodes have and others lack, as in the Open Graph
    Benchmark."""
    score, positive = logits.double().nan_to_num(), (label == 1) & known
    sought = score.transpose(1, 2).contiguous()

    def at_least(part: Tensor) -> Tensor:
        """How many of a part have the score of each node or a higher one, `[R, outputs, n]`."""
        ordered = score.masked_fill(~part, -torch.inf).transpose(1, 2).contiguous().sort(dim=2)
        return score.size(1) - torch.searchsorted(ordered.values, sought)

    precision = (at_least(positive).double() / at_least(known)).transpose(1, 2)
    both = positive.any(dim=1) & ((label != 1) & known).any(dim=1)
    return _over_known(precision, positive).masked_fill(~both, torch.nan).nanmean(dim=1)


def accuracy_of_labels(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The share of right answers, the mean over the labels."""
    right = (logits > 0) == (label > 0.5)
    return _over_known(right.double(), known).nanmean(dim=1)


def f1_of_labels(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """Micro F1, over all pairs of a node and a label."""
    predicted, true = (logits > 0) & known, (label == 1) & known
    hits, total = ((predicted & true).sum((1, 2)), predicted.sum((1, 2)) + true.sum((1, 2)))
    return 2 * hits.double() / total.clamp(min=1)


def negative_mae(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The mean absolute error, negative."""
    return -_over_known((logits.double() - label).abs(), known).nanmean(dim=1)


def negative_rmse(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The root of the mean squared error, negative."""
    return -_over_known((logits.double() - label).square(), known).sqrt().nanmean(dim=1)


def r2(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """The share of the variance that is explained; NaN without variance."""
    label = label.double()
    left = _over_known((logits.double() - label).square(), known)
    total = _over_known((label - _over_known(label, known).unsqueeze(1)).square(), known)
    return torch.where(total > 0, 1 - left / total, torch.nan).nanmean(dim=1)


def _over_known(values: Tensor, known: Tensor) -> Tensor:
    """The mean of each column over what is known, `[R, outputs]`; NaN where nothing is."""
    return values.masked_fill(~known, 0.0).sum(dim=1) / known.sum(dim=1)


def _area(score: Tensor, positive: Tensor, known: Tensor) -> Tensor:
    """The mean area under the ROC curve of the columns that have both kinds of nodes; ties count
    half."""
    positive = (positive & known).transpose(1, 2)
    # What is not known is behind all nodes, so that it outranks none of them.
    score = score.masked_fill(~known, torch.inf).transpose(1, 2).contiguous()
    ordered = score.sort(dim=2).values
    below = torch.searchsorted(ordered, score)
    ties = torch.searchsorted(ordered, score, right=True) - below
    num_positive = positive.sum(dim=2).double()
    num_negative = known.sum(dim=1) - num_positive
    # Of the nodes that a positive outranks, the positives themselves are half of all pairs.
    outranked = ((below + ties / 2) * positive).sum(dim=2) - num_positive.square() / 2
    pairs = num_positive * num_negative
    return torch.where(pairs > 0, outranked / pairs, torch.nan).nanmean(dim=1)


def calibration_error(logits: Tensor, label: Tensor, known: Tensor) -> Tensor:
    """Expected calibration error: how far the confidence in the predicted classes is from
    their accuracy, in bins of equal width, each with the weight of its nodes."""
    confidence, predicted = logits.double().softmax(dim=2).max(dim=2)
    index = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    gap = ((predicted == label).double() - confidence) * known.squeeze(2)
    bins = gap.new_zeros(len(gap), CALIBRATION_BINS).scatter_add(1, index, gap)
    return bins.abs().sum(dim=1) / known.sum(dim=(1, 2))


def _one_hot(label: Tensor, classes: int) -> Tensor:
    return label.unsqueeze(2) == torch.arange(classes, device=label.device)


_OF_LABELS: dict[Metric, Score] = {
    "rocauc": rocauc_of_labels,
    "f1": f1_of_labels,
    "ap": average_precision,
    "accuracy": accuracy_of_labels,
}
TASKS: dict[Task, Rules] = {
    "classes": Rules(cross_entropy, {"accuracy": accuracy, "f1": f1, "rocauc": rocauc}),
    "labels": Rules(binary_cross_entropy, _OF_LABELS),
    "values": Rules(absolute_error, {"mae": negative_mae, "r2": r2, "rmse": negative_rmse}),
}
