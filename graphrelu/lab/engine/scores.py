"""The loss, the scores (as in scikit-learn) and the calibration, for all runs at once.

The scores choose the epoch during training, inside a CUDA graph: every shape is fixed. Each
function takes logits `[R, n, outputs]`, labels `[R, n]` or `[R, n, labels]` and, for a score, which
entries are nodes, not padding, `[R, n]`. The higher a score the better: an error is negative.
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

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # logits, label -> a loss of each node [R, n]
Score: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, label, is_node -> [R]


class Rules(NamedTuple):
    """The loss of a task, and its scores by the metrics' names, the default one first."""

    loss: Loss
    scores: dict[Metric, Score]


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    return -logits.log_softmax(dim=2).gather(2, label.unsqueeze(2)).squeeze(2)


def binary_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """The mean over the labels of a node."""
    losses = F.binary_cross_entropy_with_logits(logits, label.to(logits.dtype), reduction="none")
    return losses.mean(dim=2)


def absolute_error(logits: Tensor, label: Tensor) -> Tensor:
    return (logits.squeeze(2) - label.to(logits.dtype)).abs()


def accuracy(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """The share of nodes whose class is right, `[R]`."""
    right = (logits.argmax(dim=2) == label) & is_node
    return right.sum(dim=1).double() / is_node.sum(dim=1)


def f1(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """Macro F1 over the classes that occur in the labels or the predictions, `[R]`."""
    classes = logits.size(2)
    predicted = _one_hot(logits.argmax(dim=2), classes) & is_node.unsqueeze(2)
    true = _one_hot(label, classes) & is_node.unsqueeze(2)
    hits, total = (predicted & true).sum(dim=1), predicted.sum(dim=1) + true.sum(dim=1)
    return (2 * hits.double() / total.clamp(min=1)).sum(dim=1) / (total > 0).sum(dim=1)


def rocauc(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """Area under the ROC curve, of more than two classes the mean of each against the rest, `[R]`.

    Where the nodes are of one class it is NaN.
    """
    classes = logits.size(2)
    logits = logits.double().nan_to_num()  # a run may have diverged
    if classes == 2:
        score = logits[..., 1:] - logits[..., :1]
        return _area(score, (label == 1).unsqueeze(2), is_node)
    return _area(logits.softmax(dim=2), _one_hot(label, classes), is_node)


def rocauc_of_labels(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """The mean area under the ROC curve, over the labels that some nodes have and others lack."""
    return _area(logits.double().nan_to_num(), label == 1, is_node)


def f1_of_labels(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """Micro F1, over all pairs of a node and a label, `[R]`."""
    inside = is_node.unsqueeze(2)
    predicted, true = (logits > 0) & inside, (label == 1) & inside
    hits, total = ((predicted & true).sum((1, 2)), predicted.sum((1, 2)) + true.sum((1, 2)))
    return 2 * hits.double() / total.clamp(min=1)


def negative_mae(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """The mean absolute error, negative, `[R]`."""
    error = (logits.squeeze(2).double() - label).abs().masked_fill(~is_node, 0.0)
    return -error.sum(dim=1) / is_node.sum(dim=1)


def r2(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """The share of the variance that is explained, `[R]`; NaN without variance."""
    count = is_node.sum(dim=1, keepdim=True)
    mean = label.masked_fill(~is_node, 0.0).sum(dim=1, keepdim=True) / count
    left = (logits.squeeze(2).double() - label).square().masked_fill(~is_node, 0.0).sum(dim=1)
    total = (label - mean).square().masked_fill(~is_node, 0.0).sum(dim=1)
    return torch.where(total > 0, 1 - left / total, torch.nan)


def _area(score: Tensor, positive: Tensor, is_node: Tensor) -> Tensor:
    """The mean area under the ROC curve of the columns that have both kinds of nodes; ties count
    half."""
    positive = (positive & is_node.unsqueeze(2)).transpose(1, 2)
    # Padding is behind all nodes, so that it outranks none of them.
    score = score.masked_fill(~is_node.unsqueeze(2), torch.inf).transpose(1, 2).contiguous()
    ordered = score.sort(dim=2).values
    below = torch.searchsorted(ordered, score)
    ties = torch.searchsorted(ordered, score, right=True) - below
    num_positive = positive.sum(dim=2).double()
    num_negative = is_node.sum(dim=1, keepdim=True) - num_positive
    # Of the nodes that a positive outranks, the positives themselves are half of all pairs.
    outranked = ((below + ties / 2) * positive).sum(dim=2) - num_positive.square() / 2
    pairs = num_positive * num_negative
    area = (outranked / pairs).masked_fill(pairs == 0, 0.0)
    return area.sum(dim=1) / (pairs > 0).double().sum(dim=1)


def calibration_error(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """Expected calibration error, `[R]`: how far the confidence in the predicted classes is from
    their accuracy, in bins of equal width, each with the weight of its nodes."""
    confidence, predicted = logits.double().softmax(dim=2).max(dim=2)
    index = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    gap = ((predicted == label).double() - confidence) * is_node
    bins = gap.new_zeros(len(gap), CALIBRATION_BINS).scatter_add(1, index, gap)
    return bins.abs().sum(dim=1) / is_node.sum(dim=1)


def class_accuracy(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """The share of each class's nodes that are predicted right, `[R, classes]`; NaN without any."""
    of_class = _one_hot(label, logits.size(2)) & is_node.unsqueeze(2)
    right = of_class & (logits.argmax(dim=2) == label).unsqueeze(2)
    return right.sum(dim=1).double() / of_class.sum(dim=1)


def _one_hot(label: Tensor, classes: int) -> Tensor:
    return label.unsqueeze(2) == torch.arange(classes, device=label.device)


TASKS: dict[Task, Rules] = {
    "classes": Rules(cross_entropy, {"accuracy": accuracy, "f1": f1, "rocauc": rocauc}),
    "labels": Rules(binary_cross_entropy, {"rocauc": rocauc_of_labels, "f1": f1_of_labels}),
    "values": Rules(absolute_error, {"mae": negative_mae, "r2": r2}),
}
