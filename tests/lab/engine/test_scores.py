"""The metrics of all runs at once are those of each run alone, whatever the padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphrelu.lab import stats
from graphrelu.lab.engine.scores import SCORES, rocauc


def runs(classes: int, ties: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(5, 40, classes, generator=generator, dtype=torch.double)
    label = torch.randint(classes, (5, 40), generator=generator)
    is_node = torch.arange(40) < torch.tensor([40, 39, 30, 21, 12]).view(-1, 1)
    return (2 * logits).round() if ties else logits, label, is_node


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("metric", list(SCORES))
def test_as_each_run_alone(metric: str, classes: int, ties: bool) -> None:
    logits, label, is_node = runs(classes, ties)
    found = SCORES[metric](logits, label, is_node)
    for run, value in enumerate(found.tolist()):
        chosen = is_node[run]
        expected = getattr(stats, metric)(logits[run, chosen], label[run, chosen])
        assert value == pytest.approx(expected, abs=1e-12)


def test_rocauc_as_scikit_learn_has_it() -> None:
    from sklearn.metrics import roc_auc_score

    logits, label, is_node = runs(2, ties=True)
    for run, value in enumerate(rocauc(logits, label, is_node).tolist()):
        chosen = is_node[run]
        score = (logits[run, chosen, 1] - logits[run, chosen, 0]).numpy()
        assert value == pytest.approx(roc_auc_score(label[run, chosen].numpy(), score), abs=1e-12)


def test_rocauc_of_constant_logits() -> None:
    _, label, is_node = runs(2, ties=False)
    assert rocauc(torch.zeros(5, 40, 2), label, is_node).tolist() == [0.5] * 5
    assert rocauc(torch.zeros(5, 40, 2), torch.ones(5, 40).long(), is_node).isnan().all()
