"""Accuracy, F1 and ROC AUC as scikit-learn has them, and calibration, for all runs at once.

The scores choose the epoch during training, inside of a CUDA graph: every shape is fixed. Each
function takes logits `[R, n, classes]`, labels `[R, n]` and which entries are nodes, not padding,
`[R, n]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

CALIBRATION_BINS = 15  # as in "On Calibration of Modern Neural Networks", Guo et al. 2017


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

    Ties count half. Where the nodes are of one class it is NaN.
    """
    logits, classes = logits.double().nan_to_num(), logits.size(2)  # a run may have diverged
    if classes == 2:
        score = logits[..., 1:] - logits[..., :1]
        positive = (label == 1).unsqueeze(2)
    else:
        score = logits.softmax(dim=2)
        positive = _one_hot(label, classes)
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
    area = outranked / (num_positive * num_negative)
    present = (num_positive > 0).double()
    return (area.masked_fill(num_positive == 0, 0.0)).sum(dim=1) / present.sum(dim=1)


def calibration_error(logits: Tensor, label: Tensor, is_node: Tensor) -> Tensor:
    """Expected calibration error, `[R]`: how far the confidence in the predicted classes is from
    their accuracy, in bins of equal width, each with the weight of its nodes."""
    confidence, predicted = logits.double().softmax(dim=2).max(dim=2)
    index = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    gap = ((predicted == label).double() - confidence) * is_node
    bins = gap.new_zeros(len(gap), CALIBRATION_BINS).scatter_add(1, index, gap)
    return bins.abs().sum(dim=1) / is_node.sum(dim=1)


def _one_hot(label: Tensor, classes: int) -> Tensor:
    return label.unsqueeze(2) == torch.arange(classes, device=label.device)


SCORES = {"accuracy": accuracy, "f1": f1, "rocauc": rocauc}
