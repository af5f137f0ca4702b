"""The metrics of all runs at once are those of each run alone by scikit-learn."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor

from graphrelu.lab.engine.scores import (
    TASKS,
    calibration_error,
    class_accuracy,
    r2,
    rocauc,
    rocauc_of_labels,
)


def runs(classes: int, ties: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(5, 40, classes, generator=generator, dtype=torch.double)
    label = torch.randint(classes, (5, 40), generator=generator)
    is_node = torch.arange(40) < torch.tensor([40, 39, 30, 21, 12]).view(-1, 1)
    return (2 * logits).round() if ties else logits, label, is_node


def by_scikit_learn(metric: str, logits: Tensor, label: Tensor) -> float:
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
def test_as_scikit_learn_has_them(metric: str, classes: int, ties: bool) -> None:
    logits, label, is_node = runs(classes, ties)
    label[4, is_node[4]] %= 2  # the last run has no node of the other classes
    found = TASKS["classes"].scores[metric](logits, label, is_node)
    for run, value in enumerate(found.tolist()):
        chosen = is_node[run]
        expected = by_scikit_learn(metric, logits[run, chosen], label[run, chosen])
        assert value == pytest.approx(expected, abs=1e-12)


def test_calibration_error_by_hand() -> None:
    # Confidences 0.9, 0.9 (one of two right), 0.62 (right) and 0.7 (wrong), and padding. The bins
    # of width 1 / 15 hold {0.9, 0.9}, {0.62} and {0.7}: (|1 - 1.8| + |1 - 0.62| + |0 - 0.7|) / 4.
    share = torch.tensor([[0.9, 0.1, 0.62, 0.3, 1.0]], dtype=torch.double)
    logits = torch.stack([share, 1 - share], dim=2).log()
    label = torch.tensor([[0, 0, 0, 0, 1]])
    is_node = torch.arange(5).view(1, -1) < 4
    found = calibration_error(logits, label, is_node)
    assert found.item() == pytest.approx((0.8 + 0.38 + 0.7) / 4)
    everything = calibration_error(logits, label, is_node.fill_(True))  # sure, and wrong
    assert everything.item() == pytest.approx((0.8 + 0.38 + 0.7 + 1) / 5)


def test_calibration_of_each_run() -> None:
    logits, label, is_node = runs(3, ties=False)
    together = calibration_error(logits, label, is_node)
    for run, chosen in enumerate(is_node):
        share = logits[run, chosen].softmax(dim=1).numpy()
        right = (share.argmax(axis=1) == label[run, chosen].numpy()).astype(float)
        bins = np.digitize(share.max(axis=1), np.linspace(0, 1, 16), right=True)
        gaps = [abs((right - share.max(axis=1))[bins == one].sum()) for one in range(1, 16)]
        assert together[run].item() == pytest.approx(sum(gaps) / len(right), abs=1e-12)


def test_accuracy_of_each_class() -> None:
    logits, label, is_node = runs(3, ties=False)
    label[4, is_node[4]] %= 2  # the last run has no node of the third class
    for run, found in enumerate(class_accuracy(logits, label, is_node).tolist()):
        true, predicted = label[run, is_node[run]], logits[run, is_node[run]].argmax(dim=1)
        present = true.unique().tolist()
        expected = metrics.recall_score(true, predicted, labels=present, average=None)
        assert [found[one] for one in present] == pytest.approx(expected.tolist(), abs=1e-12)
        assert np.isnan(found).sum() == 3 - len(present)


def test_rocauc_of_constant_logits() -> None:
    _, label, is_node = runs(2, ties=False)
    assert rocauc(torch.zeros(5, 40, 2), label, is_node).tolist() == [0.5] * 5
    assert rocauc(torch.zeros(5, 40, 2), torch.ones(5, 40).long(), is_node).isnan().all()


@pytest.mark.parametrize("ties", [False, True])
def test_several_labels_as_scikit_learn_has_them(ties: bool) -> None:
    logits, _, is_node = runs(3, ties)
    label = (torch.rand(logits.shape, generator=torch.Generator().manual_seed(0)) < 0.4).float()
    label[:, :, 2] = 1  # tells no node from another
    for metric, score in TASKS["labels"].scores.items():
        for run, value in enumerate(score(logits, label, is_node).tolist()):
            own, true = logits[run, is_node[run]], label[run, is_node[run]]
            if metric == "f1":
                expected = metrics.f1_score(true, own > 0, average="micro")
            else:
                expected = metrics.roc_auc_score(true[:, :2], own[:, :2], average="macro")
            assert value == pytest.approx(expected, abs=1e-12)
    assert rocauc_of_labels(logits, torch.ones_like(label), is_node).isnan().all()


def test_values_as_scikit_learn_has_them() -> None:
    logits, _, is_node = runs(1, ties=False)
    label = logits.squeeze(2).sin() + 5
    for metric, score in TASKS["values"].scores.items():
        for run, value in enumerate(score(logits, label, is_node).tolist()):
            own, true = logits[run, is_node[run], 0], label[run, is_node[run]]
            error = metrics.mean_absolute_error(true, own)
            expected = -error if metric == "mae" else metrics.r2_score(true, own)
            assert value == pytest.approx(expected, abs=1e-10)
    assert r2(logits, torch.ones_like(label), is_node).isnan().all()
