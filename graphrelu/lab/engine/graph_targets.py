"""What is predicted of each graph of a set: losses, and scores, of which higher is better."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.data.graph import Task
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.record.config import Metric

# The first is the usual one.
METRICS: dict[Task, tuple[Metric, ...]] = {
    "classes": ("accuracy", "rocauc"),
    "labels": ("rocauc", "ap", "accuracy"),
    "values": ("mae", "rmse"),
}
_NO_CLASS = -100


class Targets:
    """The targets on the device; values are standardised by those of the training graphs."""

    def __init__(self, graphs: GraphSet, train: Tensor, device: torch.device) -> None:
        self.task = graphs.task
        self.mean = self.std = torch.zeros(graphs.y.size(1), device=device)
        y = graphs.y.to(device)
        if self.task == "values":
            own = y[train.to(device)]
            known = ~own.isnan()
            self.mean = own.nanmean(dim=0)
            square = (own - self.mean).masked_fill(~known, 0.0).square().sum(dim=0)
            self.std = (square / known.sum(dim=0)).sqrt().clamp(min=1e-6)
            y = (y - self.mean) / self.std
        # The last row is that of the empty graph, of which nothing is known.
        self.known = F.pad((~y.isnan()).float(), (0, 0, 0, 1))
        self.y = F.pad(y.nan_to_num(), (0, 0, 0, 1))
        self.raw = F.pad(graphs.y.to(device), (0, 0, 0, 1), value=_NO_CLASS)

    def loss(self, out: Tensor, index: Tensor) -> Tensor:
        """The mean over the known targets."""
        y, known = self.y.index_select(0, index), self.known.index_select(0, index)
        if self.task == "classes":
            label = self.raw.index_select(0, index).view(-1)
            return F.cross_entropy(out, label, ignore_index=_NO_CLASS)
        if self.task == "values":
            losses = (out - y).abs()
        else:
            losses = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return (losses * known).sum() / known.sum().clamp(min=1)

    def score(self, metric: Metric, out: Tensor, index: Tensor) -> Tensor:
        """The metric, in the units of the targets; errors are negative, so higher is better."""
        out = out.nan_to_num()  # a run may have diverged
        if self.task == "values":
            out = out * self.std + self.mean
        y = self.raw[index]
        if self.task == "classes":  # each against the rest
            out, y = out.softmax(dim=1), F.one_hot(y.view(-1), out.size(1)).float()
            if metric == "accuracy":
                return (out.argmax(dim=1) == y.argmax(dim=1)).double().mean()
        return score(metric, out, y)


def score(metric: Metric, out: Tensor, y: Tensor) -> Tensor:
    """The mean of a metric over the targets, of `rocauc` and `ap`, as in the Open Graph Benchmark,
    over those with both classes. Unknown targets, NaN in `y`, count nowhere."""
    values = []
    for own, target in zip(out.double().t(), y.t(), strict=True):
        known = ~target.isnan()
        own, target = own[known], target[known]
        if metric not in ("rocauc", "ap") or target.unique().numel() > 1:
            values.append(SCORES[metric](own, target))
    return torch.stack(values).nanmean()


def _negative_mae(out: Tensor, y: Tensor) -> Tensor:
    return -(out - y).abs().mean()


def _negative_rmse(out: Tensor, y: Tensor) -> Tensor:
    return -(out - y).square().mean().sqrt()


def _accuracy(out: Tensor, y: Tensor) -> Tensor:
    return ((out > 0) == (y > 0.5)).double().mean()


def _rocauc(out: Tensor, y: Tensor) -> Tensor:
    """The share of negatives below each positive, ties by half."""
    own, others = out[y == 1], out[y == 0].sort().values
    below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
    return below.double().mean() / (2 * len(others))


def _average_precision(out: Tensor, y: Tensor) -> Tensor:
    """The precision at the rank of each positive."""
    own = out[y == 1]
    above, own_above = (
        len(part) - torch.searchsorted(part.sort().values, own) for part in (out, own)
    )
    return (own_above.double() / above).mean()


SCORES: dict[Metric, Callable[[Tensor, Tensor], Tensor]] = {
    "mae": _negative_mae,
    "rmse": _negative_rmse,
    "accuracy": _accuracy,
    "rocauc": _rocauc,
    "ap": _average_precision,
}
