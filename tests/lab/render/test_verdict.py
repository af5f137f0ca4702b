"""One sentence for every outcome of a comparison, none of which claims too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphrelu.lab.render.tables import CompareRow
from graphrelu.lab.render.verdict import seeds_needed, verdict
from graphrelu.lab.stats.comparison import Comparison, fewest_seeds


def lead(
    difference: float,
    low: float | None = None,
    high: float | None = None,
    p_holm: float | None = None,
    n: int = 20,
    std: float | None = 1.0,
) -> Comparison:
    return Comparison(difference, low, high, std, p_holm, p_holm, n)


def row(
    activation: str, over_relu: Comparison | None = None, behind: Comparison | None = None
) -> CompareRow:
    return CompareRow(activation, 80.0, 1.0, 82.0, 20, 0.1, over_relu, behind)


def test_a_decision_needs_the_test_the_interval_and_six_pairs() -> None:
    assert lead(1.0, 0.1, 1.9, 0.05).outcome == "better"
    assert lead(-1.0, -1.9, -0.1, 0.05).outcome == "worse"
    assert lead(1.0, 0.1, 1.9, 0.051).outcome == "undecided"
    assert lead(1.0, -0.1, 2.1, 0.01).outcome == "undecided"
    assert lead(1.0, 0.1, 1.9, 0.01, n=5).outcome == "undecided"
    assert lead(1.0).outcome == "undecided"
    assert [fewest_seeds(count) for count in (1, 2, 5, 30)] == [6, 7, 8, 11]


UNDECIDED = lead(0.5, -0.1, 1.1, 0.4, std=1.28)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [row("relu"), row("grelu", lead(1.2, 0.5, 1.9, 0.003))],
            "GReLU is significantly better than ReLU here "
            "(+1.2 [+0.5, +1.9] points over 20 seeds, corrected p = 0.003).",
        ),
        (
            [row("relu"), row("grelu", lead(-1.2, -1.9, -0.5, 0.0003))],
            "GReLU is significantly worse than ReLU here "
            "(-1.2 [-1.9, -0.5] points over 20 seeds, corrected p < 0.001).",
        ),
        (
            [row("relu"), row("grelu", UNDECIDED)],
            "Whether GReLU beats ReLU here is undecided at this many seeds (+0.5 [-0.1, +1.1] "
            "points over 20 seeds, corrected p = 0.40), and a difference of this size takes "
            "roughly 54 seeds to decide.",
        ),
        (
            [row("relu"), row("grelu", lead(0.01, -0.6, 0.6, 0.9))],
            "Whether GReLU beats ReLU here is undecided at this many seeds (+0.0 [-0.6, +0.6] "
            "points over 20 seeds, corrected p = 0.90), and a difference of this size takes "
            "over 1,000 seeds to decide.",
        ),
        (
            [row("relu"), row("grelu", lead(0.0, 0.0, 0.0, 1.0, std=0.0))],
            "GReLU and ReLU scored the same on each of 20 seeds.",
        ),
        (
            [row("relu"), row("grelu", lead(0.5, 0.2, 0.8, 0.06, n=5))],
            "5 seeds are too few to decide: GReLU's lead over ReLU is +0.5 [+0.2, +0.8] points, "
            "and a significant difference takes 6 seeds or more.",
        ),
        (
            [
                row("relu"),
                row("elu", lead(0.2, 0.1, 0.3, 0.06, 6), lead(0.3, 0.1, 0.5, 0.03, 6)),
                row("grelu", lead(0.5, 0.2, 0.8, 0.06, n=6)),
            ],
            "6 seeds are too few to decide: GReLU's lead over ReLU is +0.5 [+0.2, +0.8] points, "
            "and in a table of 2 comparisons a significant difference takes 7 seeds or more; "
            "no other activation has a higher mean.",
        ),
        (
            [row("relu"), row("grelu", lead(0.5, n=1))],
            "One seed decides nothing: there GReLU's lead over ReLU is +0.5 points, "
            "and a significant difference takes 6 seeds or more.",
        ),
        (
            [
                row("relu"),
                row("elu", UNDECIDED, lead(-0.4, -0.9, 0.1, 0.2)),
                row("prelu", UNDECIDED, lead(-0.6, -1.4, 0.2, 0.2)),
                row("grelu", lead(1.2, 0.5, 1.9, 0.003)),
            ],
            "GReLU is significantly better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds, "
            "corrected p = 0.003); PReLU is 0.6 points ahead of GReLU, but not significantly.",
        ),
        (
            [
                row("relu"),
                row("elu", UNDECIDED, lead(-0.4, -0.7, -0.1, 0.02)),
                row("lrelu", UNDECIDED, lead(0.1, -0.7, 0.9, 0.5)),
                row("maxout", UNDECIDED, lead(-0.4, -0.7, -0.1, 0.02)),
                row("grelu", lead(1.2, 0.5, 1.9, 0.003)),
            ],
            "GReLU is significantly better than ReLU here (+1.2 [+0.5, +1.9] points over 20 seeds, "
            "corrected p = 0.003); ELU and Maxout are significantly ahead of GReLU.",
        ),
        (
            [row("elu", None, lead(1.0, 0.5, 1.5, 0.01)), row("grelu")],
            "Whether GReLU helps is open, as ReLU is not among these activations; "
            "it is significantly ahead of ELU; no other activation has a higher mean.",
        ),
        (
            [row("elu", None, lead(-0.01, -0.5, 0.5, 0.9)), row("grelu")],
            "Whether GReLU helps is open, as ReLU is not among these activations; "
            "ELU is less than 0.1 points ahead of GReLU, but not significantly.",
        ),
        (
            [row("relu"), row("grelu")],
            "Whether GReLU helps is open, as it shares no seed with ReLU.",
        ),
        (
            [row("relu"), row("elu", UNDECIDED)],
            "GReLU is not among these activations, so this table says nothing about it.",
        ),
        (
            [row("grelu")],
            "GReLU stands alone in this table, so there is nothing to compare it with.",
        ),
    ],
)
def test_verdicts(rows: list[CompareRow], expected: str) -> None:
    assert verdict(rows) == expected


def test_seeds_needed() -> None:
    # ((1.959964 + 0.841621) * 1.28 / 0.5)^2 * pi / 3 = 53.87
    assert seeds_needed(UNDECIDED, 1) == 54
    assert seeds_needed(UNDECIDED, 5) == 81
    assert seeds_needed(replace(UNDECIDED, difference=0.05), 1) == 5_400
    assert seeds_needed(replace(UNDECIDED, n=60), 1) is None
    assert seeds_needed(replace(UNDECIDED, difference=0.0), 1) is None
