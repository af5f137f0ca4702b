"""One sentence for every outcome of a comparison, none of which claims too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.render import CompareRow, Price, amount, going_on, verdict
from graphrelu.lab.stats import Decision
from tests.lab.fake_engine import lead


def row(
    activation: str, over_relu: Decision | None = None, mean: float = 80.0, loss: float = 0.5
) -> CompareRow:
    return CompareRow(activation, mean, 1.0, 82.0, 20, over_relu, Price(test_loss=loss))


BETTER = lead(1.2, 0.7, 20)
UNDECIDED = lead(0.4, 0.6, 20, runs=60)
HERE = "Whether GReLU is better than ReLU here is undecided"
# The lead of GReLU, and what is said of it.
LEADS = {
    "GReLU is better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds).": BETTER,
    "GReLU is worse than ReLU here (-1.2 [-1.9, -0.5] points over 20 seeds).": lead(-1.2, 0.7, 20),
    "GReLU makes no difference that matters here: keep ReLU (+0.1 [-0.2, +0.4] points over 20 "
    "seeds, all of it within 0.5).": lead(0.1, 0.3, 20),
    f"{HERE} (+0.4 [-0.2, +1.0] points over 20 seeds); about 60 seeds should settle it.": UNDECIDED,
    f"{HERE} (+0.4 [-0.2, +1.0] points over 20 seeds); no difference you could measure with 60 "
    "more runs: keep ReLU.": lead(0.4, 0.6, 20, runs=90),
    f"{HERE} (+0.4 [-0.2, +1.0] points over 50 seeds); no difference you could measure with 50 "
    "more runs: keep ReLU.": lead(0.4, 0.6, 50, runs=None),
    f"{HERE} (+0.4 [-0.2, +1.0] points over 20 seeds); more runs on this data cannot "
    "settle it: keep ReLU.": lead(0.4, 0.6, 20, runs=None, shared=0.125),
    f"{HERE} (+0.4 points over 1 seed); 10 seeds give an interval.": lead(0.4, None, 1, runs=10),
    f"{HERE} (+0.4 [-0.2, +1.0] points over 20 seeds); each run tests only 12 items; about 60 "
    "seeds should settle it.": replace(UNDECIDED, num_test=12),
    "GReLU is better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds), but each run tests "
    "only 99 items.": replace(BETTER, num_test=99),
    "Whether GReLU helps is an open question: it shares no seed with ReLU.": None,
}
ROWS = {
    "GReLU is better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds). The highest mean is "
    "that of ELU (+0.4 [-0.2, +1.0], undecided).": [
        row("relu"),
        row("elu", UNDECIDED, mean=80.6),
        row("grelu", BETTER, mean=80.5),
    ],
    "Whether GReLU helps is an open question: ReLU is not among these activations.": [
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
    assert verdict(ROWS[sentence]).sentence == sentence


def test_a_better_score_with_a_worse_loss_is_not_called_better() -> None:
    """As on a graph of 30 nodes, of which 6 are tested."""
    relu, grelu = row("relu", loss=0.49), row("grelu", replace(BETTER, num_test=6), loss=0.70)
    found = verdict([relu, grelu])
    assert found.sentence == (
        "GReLU has a better score than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds), but a "
        "higher test loss (0.700, ReLU 0.490) and each run tests only 6 items."
    )
    assert found.answer == "GReLU has the better score, but a higher test loss."
    assert "GReLU is better" not in f"{found.answer} {found.sentence}"
    lower = verdict([relu, row("grelu", lead(-1.2, 0.7), loss=0.3)])
    assert "worse score than ReLU" in lower.sentence
    assert "but a lower test loss (0.300, ReLU 0.490)" in lower.sentence
    assert "loss" not in verdict([relu, row("grelu", BETTER, loss=0.3)]).sentence


def test_the_answer_in_a_few_words() -> None:
    def answer(over_relu: Decision) -> str:
        return verdict([row("relu"), row("grelu", over_relu)]).answer

    assert answer(BETTER) == "GReLU is better than ReLU."
    assert answer(replace(BETTER, num_test=12)) == "GReLU is better than ReLU, on few test items."
    assert answer(lead(0.1, 0.3)) == "No difference that matters here."
    assert answer(UNDECIDED) == "GReLU or ReLU: undecided."
    assert verdict([row("grelu")]).answer == ""


def test_only_what_more_runs_should_settle_goes_on() -> None:
    def command(over_relu: Decision) -> str:
        found = verdict([row("relu"), row("grelu", over_relu)])
        return going_on(found, "graphrelu compare x --lr 0.1", Path("my runs.jsonl"))

    assert command(UNDECIDED) == "graphrelu compare x --lr 0.1 --runs 60 --out 'my runs.jsonl'"
    assert command(replace(UNDECIDED, runs=90)) == ""
    assert command(replace(UNDECIDED, runs=None)) == ""
    assert command(BETTER) == ""


@pytest.mark.parametrize(
    ("difference", "reach", "shown"),
    [
        (0.8, 0.04, "+0.8 [+0.8, +0.8]"),
        (0.5, 0.46, "+0.50 [+0.04, +0.96]"),  # it lies above 0, and is shown to
        (-0.5, 0.496, "-0.500 [-0.996, -0.004]"),
        (0.0, 0.47, "+0.00 [-0.47, +0.47]"),  # within the margin of 0.5
        (0.0, 0.0, "+0.0 [+0.0, +0.0]"),
        (0.25, None, "+0.2"),
    ],
)
def test_no_digit_contradicts_the_word(difference: float, reach: float | None, shown: str) -> None:
    assert amount(lead(difference, reach)) == shown
