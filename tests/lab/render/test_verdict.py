"""One sentence for every outcome of a comparison, none of which claims too much."""

from __future__ import annotations

import pytest

from graphrelu.lab.render.tables import CompareRow, Price
from graphrelu.lab.render.verdict import decided, verdict
from graphrelu.lab.stats.decision import Decision, Outcome
from tests.lab.fake_engine import lead as fake_lead


def lead(
    difference: float, reach: float | None, outcome: Outcome, runs: int | None = None, n: int = 20
) -> Decision:
    return fake_lead(difference, reach, n, outcome=outcome, runs=runs)


def row(activation: str, over_relu: Decision | None = None, mean: float = 80.0) -> CompareRow:
    return CompareRow(activation, mean, 1.0, 82.0, 20, over_relu, Price())


BETTER = lead(1.2, 0.7, "better")
UNDECIDED = lead(0.4, 0.6, "undecided", 54)


HERE = "Whether GReLU is better than ReLU here is undecided"
STAY = "if the differences stay as they are."
# The lead of GReLU, and what is said of it.
LEADS = {
    "GReLU is better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds).": BETTER,
    "GReLU is worse than ReLU here (-1.2 [-1.9, -0.5] points over 20 seeds).": lead(
        -1.2, 0.7, "worse"
    ),
    "GReLU makes no difference that matters here: keep ReLU (+0.1 [-0.2, +0.4] points over 20 "
    "seeds, all of it within 0.5).": lead(0.1, 0.3, "no difference"),
    f"{HERE} (+0.4 [-0.2, +1.0] points over 20 seeds); about 54 seeds decide it {STAY}": UNDECIDED,
    f"{HERE} (+0.0 [+0.0, +0.0] points over 20 seeds); no number of seeds decides it {STAY}": lead(
        0.0, 0.0, "undecided"
    ),
    f"{HERE} (+0.4 points over 1 seed); a decision takes 8 seeds or more.": lead(
        0.4, None, "undecided", 8, n=1
    ),
    "Whether GReLU helps is open, as it shares no seed with ReLU.": None,
}
ROWS = {
    "GReLU is better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds). The highest mean is "
    "that of ELU (+0.4 [-0.2, +1.0], undecided).": [
        row("relu"),
        row("elu", UNDECIDED, mean=80.6),
        row("grelu", BETTER, mean=80.5),
    ],
    "Whether GReLU helps is open, as ReLU is not among these activations.": [
        row("elu"),
        row("grelu"),
    ],
    "GReLU is not among these activations, so this table says nothing about it.": [
        row("relu"),
        row("elu", UNDECIDED),
    ],
    "GReLU stands alone in this table, so there is nothing to compare it with.": [row("grelu")],
} | {sentence: [row("relu"), row("grelu", lead)] for sentence, lead in LEADS.items()}


@pytest.mark.parametrize("sentence", ROWS)
def test_verdicts(sentence: str) -> None:
    assert verdict(ROWS[sentence]) == sentence


def test_what_is_decided_is_grelus_lead() -> None:
    assert decided([row("relu"), row("elu", UNDECIDED), row("grelu", BETTER)])
    assert not decided([row("relu"), row("elu", BETTER), row("grelu", UNDECIDED)])
    assert not decided([row("relu"), row("grelu")])
