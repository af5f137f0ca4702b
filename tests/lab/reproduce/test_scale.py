"""Features of another scale: what each activation loses against its own best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphrelu.lab.page import tables as page_tables
from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Result
from graphrelu.lab.reproduce import scale
from graphrelu.lab.reproduce.scale import SCALES, Robustness, robustness, scale_rows
from graphrelu.lab.stats.decision import Decision
from tests.lab.fake_engine import lead, made_up

# Points lost at the scales 0.01 and 100; ELU is the most robust rival, at 0.01 PReLU is ahead.
LOST = {
    "relu": (20, 5),
    "lrelu": (20, 5),
    "elu": (2, 4),
    "prelu": (1, 9),
    "maxout": (30, 30),
    "grelu": (3, 3),
}


def runs(dataset: str = "cora", backbone: str = "gcn") -> list[Result]:
    """Runs of one graph and backbone."""

    def points(place: tuple[tuple[str, str, str], float]) -> float:
        (_, _, name), scale = place
        return 0 if scale == 1 else -LOST[name][scale > 1]

    cells = {place: c for place, c in scale.cells(dataset).items() if c.backbone == backbone}
    return made_up(cells, points, range(10))


def test_scale_one_is_the_main_tables() -> None:
    cells = list(scale.cells("cora").values())
    assert len({cell.key() for cell in cells}) == len(cells) == 2 * 3 * 6
    own = [cell for cell in cells if cell.feature_scale == 1]
    assert own == node_table(["cora"], ["gcn", "sage"])
    same = {"activation": "any", "activation_options": (), "backbone": "any", "epochs": 1}
    assert len({replace(cell, **same) for cell in cells}) == len(SCALES)
    assert all(cell.normalize_features for cell in cells)
    assert None not in map(scale.TABLE.place, cells)
    for change in ({"feature_scale": 10}, {"backbone": "gat"}, {"lr": 0.5}):
        assert scale.TABLE.place(replace(own[0], **change)) is None


def test_rows_by_hand() -> None:
    results = [*runs("pubmed"), *runs()]
    rows = {(row.dataset, row.activation, row.scale): row for row in scale_rows(results)}
    assert [key for key in rows if key[0] == "cora"] == list(rows)[:18]
    relu = rows["cora", "relu", 0.01]
    assert (relu.n, relu.backbone) == (10, "gcn")
    assert relu.mean == pytest.approx(52 - 20.9)
    assert relu.behind_best.difference == pytest.approx(20.9)
    # 24 losses are one family, all of them 2 / 2^10 alone.
    assert relu.behind_best.p == pytest.approx(2 / 2**10)
    assert relu.behind_best.p == pytest.approx(24 * 2 / 2**10)
    assert rows["cora", "relu", 1.0].behind_best is None
    over_prelu = rows["cora", "grelu", 0.01].grelu_over_prelu
    assert over_prelu.difference == pytest.approx(-2.09)
    assert (over_prelu.p, over_prelu.outcome) == (pytest.approx(2 * 2 / 2**10), "worse")
    given = [key for key, row in rows.items() if row.grelu_over_prelu is not None]
    assert given == [("cora", "grelu", 0.01), ("pubmed", "grelu", 0.01)]


def test_validation_nodes_choose_the_best_scale() -> None:
    results = [
        replace(result, val_score=0.99)
        if (result.config.activation, result.config.feature_scale) == ("relu", 100)
        else result
        for result in runs()
    ]
    preferred = scale.best_scales(results)
    assert preferred["cora", "gcn", "relu"] == 100
    assert preferred["cora", "gcn", "grelu"] == 1
    rows = {(row.activation, row.scale): row for row in scale_rows(results)}
    behind = rows["relu", 1.0].behind_best
    assert behind.difference == pytest.approx(-5.225)
    equal = scale.best_scales([replace(result, val_score=0.5) for result in runs()])
    assert set(equal.values()) == {1.0}


def test_robustness_by_hand() -> None:
    cora, pubmed = robustness([*runs(), *runs("pubmed")])
    assert (cora.dataset, cora.backbone, pubmed.dataset) == ("cora", "gcn", "pubmed")
    # The largest losses: GReLU 3, ELU 4, PReLU 9; each times 1.045 in the mean of ten seeds.
    assert (cora.loss, cora.rival) == (pytest.approx(3.135), "elu")
    assert cora.rivals_loss == pytest.approx(4.18)
    assert cora.excess.difference == pytest.approx(-1.045)
    assert cora.found == "holds"
    part = [r for r in runs() if r.config.activation != "grelu" or r.config.feature_scale != 1]
    assert robustness(part) == []
    assert robustness([r for r in runs() if r.config.activation == "grelu"]) == []


@pytest.mark.parametrize(
    ("difference", "reach", "p", "expected"),
    [
        (-0.5, 0.4, 0.2, "holds"),
        (0.5, 0.4, 0.001, "holds"),  # significant, and too small to matter
        (0.5, 0.8, 0.2, "undecided"),
        (0.9, 0.3, 0.001, "undecided"),
        (3.0, 0.5, 0.001, "does not hold"),
        (3.0, 3.5, 0.2, "undecided"),
    ],
)
def test_no_more_must_be_shown(difference: float, reach: float, p: float, expected: str) -> None:
    excess = lead(difference, reach, p)
    assert Robustness("cora", "gcn", 4, "elu", 4, excess).found == expected
    alone = Decision(difference, None, None, None, None, None, 1)
    assert Robustness("cora", "gcn", 4, "elu", 4, alone).found == "undecided"


def test_the_report_tells_scales_apart() -> None:
    (table,) = page_tables.tables_of(runs(), "scale.jsonl")
    assert {row["backbone"]: row["paper"] is None for row in table["rows"]} == {
        "GCN (feature_scale 0.01)": True,
        "GCN (feature_scale 1.0)": False,
        "GCN (feature_scale 100.0)": True,
    }
