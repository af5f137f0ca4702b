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


def test_rows() -> None:
    rows = segments.TABLE.rows([*runs(0.5), *runs(0.5, dataset="pubmed")])
    assert [(row.dataset, row.name) for row in rows] == [
        (dataset, K) for dataset in ("cora", "pubmed") for K in range(2, 8)
    ]
    first, second = rows[:2]
    assert first["over_two"] is None
    assert second["over_two"].difference == pytest.approx(0.528, abs=1e-3)
    assert second["over_two"].margin == segments.MARGIN
    assert second["over_two"].outcome == "no difference"  # small, though significant
    assert second["over_two"].p < 0.001
    # The interval of a mean: t(0.975, 11) = 2.201.
    assert first["high"] - first.mean == pytest.approx(2.201 * first.std / 12**0.5, rel=1e-3)
    alone = segments.TABLE.rows(runs(0.5, seeds=1))
    assert {(row["low"], row["high"]) for row in alone} == {(None, None)}


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
