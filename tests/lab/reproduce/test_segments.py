"""The effect of K: equality is claimed only where it is shown."""

from __future__ import annotations

import pytest

from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import segments
from graphrelu.lab.stats import Decision
from tests.lab.fake_engine import lead, made_up


def runs(slope: float, seeds: int = 12, dataset: str = "cora") -> list[Result]:
    """Runs whose scores rise by this many points with each segment."""
    return made_up(segments.cells(dataset), lambda place: slope * (place[1] - 2), range(seeds))


def test_two_segments_are_the_main_tables() -> None:
    for dataset in segments.TABLE.datasets:
        first, *others = segments.cells(dataset).values()
        assert [first] == node_table([dataset], ["gcn"], ["grelu"])
        assert [dict(cell.told_options) for cell in others] == [{"K": K} for K in (3, 4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("leads", "expected"),
    [
        ([], "not measured yet"),
        ([lead(0.2, outcome="no difference"), lead(-0.3, outcome="no difference")], "holds"),
        ([lead(0.2, outcome="no difference"), lead(-0.3, 0.8)], "undecided"),
        ([lead(0.9, 0.3)], "undecided"),  # better, perhaps large enough to matter
        ([lead(0.1, outcome="no difference"), lead(-1.5, 0.3)], "does not hold"),
        ([lead(0.1, None)], "undecided"),
    ],
)
def test_equality_must_be_shown(leads: list[Decision], expected: str) -> None:
    assert segments.equivalence(leads) == expected


def test_observations() -> None:
    rows = segments.TABLE.rows([*runs(0.1), *runs(0.5, dataset="pubmed")])
    cora, pubmed, citeseer = segments.observations(rows)
    assert (cora.claim, cora.outcome) == ("K does not matter on Cora", "holds")
    assert cora.ours == (
        "means from 51.8 to 52.3; the largest difference to K = 2 is +0.5 [+0.5, +0.5] points "
        "over 12 seeds"
    )
    assert pubmed.outcome == "does not hold"
    assert (citeseer.outcome, citeseer.ours) == ("not measured yet", "")
