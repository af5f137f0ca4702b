"""The tables of the page are those of the terminal and of the pages of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphrelu.lab.page import tables as page_tables
from graphrelu.lab.record.recipes import graph_cell
from graphrelu.lab.record.results import Record
from graphrelu.lab.render.tables import compare_rows, node_rows
from graphrelu.lab.stats.comparison import compared
from tests.lab.fake_engine import make_result
from tests.lab.pages import NAMES, cell, runs

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("metric", ["accuracy", "mae"])
def test_rows_are_those_of_the_comparison(metric: str) -> None:
    """An error is negative on record: one less than a share is such a number."""
    results = [run for name in NAMES for run in runs(cell("digits", "gcn", name))]
    if metric == "mae":
        results = [
            replace(run, config=replace(run.config, metric="mae"), score=run.score - 1)
            for run in results
        ]
    (table,) = page_tables.tables_of(results, "runs.jsonl")
    for row, expected in zip(table["rows"], compare_rows(results), strict=True):
        assert row["family"] == expected.activation
        assert (row["mean"], row["std"], row["n"]) == (expected.mean, expected.std, expected.n)
        lead = expected.over_relu
        assert (row["lead"] is None) == (lead is None)
        if lead is not None:
            assert (row["lead"]["p_holm"], row["lead"]["outcome"]) == (lead.p_holm, lead.outcome)
            assert row["lead"]["difference"] == lead.difference
        assert np.mean([value for _, value in row["seeds"]]) == pytest.approx(expected.mean)
    assert [len(row["seeds"]) for row in table["rows"]] == [8, 8, 8]
    assert [row["mark"] for row in table["rows"]] == ["", "", "winner"]


def test_rows_of_the_record_are_those_of_the_main_table() -> None:
    results = [r for r in Record(RESULTS / "node.jsonl").read() if r.config.dataset == "cora"]
    (table,) = page_tables.tables_of(results, "node.jsonl")
    for row, expected in zip(table["rows"], node_rows(results), strict=True):
        assert (row["family"], row["mean"]) == (expected.activation, expected.mean)
        assert row["paper"] == [expected.paper_mean, expected.paper_std]
        if expected.over_relu is not None:
            assert row["lead"]["p_holm"] == expected.over_relu.p_holm
        assert row["n"] == expected.n
    assert {"highest", "tie", ""} <= {row["mark"] for row in table["rows"]}


def test_ties_are_what_is_not_significantly_behind() -> None:
    cells = {
        ("a", "gcn", ""): {
            "close": {seed: 0.7 + 0.01 * (-1) ** seed for seed in range(10)},
            "ahead": {seed: 0.701 + 0.001 * seed for seed in range(10)},
            "far": {seed: 0.5 + 0.001 * seed**2 for seed in range(10)},
        }
    }
    ((place, scores),) = cells.items()
    marks = page_tables.marks(cells)
    assert marks == {(place, "close"): "tie", (place, "ahead"): "highest"}
    behind = compared({n: (scores["ahead"], scores[n]) for n in ("close", "far")})
    assert [behind[n].outcome for n in ("close", "far")] == ["undecided", "better"]


def test_nothing_wins_without_a_seed_in_common() -> None:
    place = ("a", "gcn", "")
    first, second = dict.fromkeys(range(8), 0.5), dict.fromkeys(range(8, 16), 0.9)
    assert page_tables.marks({place: {"first": first, "second": second}}) == {
        (place, "second"): "highest"
    }


def test_other_settings_are_other_cells() -> None:
    results = [
        run for width in (8, 16) for run in runs(cell("digits", "gcn", "relu", hidden=width))
    ]
    (table,) = page_tables.tables_of(results, "runs.jsonl")
    assert [row["backbone"] for row in table["rows"]] == ["GCN (hidden 8)", "GCN (hidden 16)"]


def test_protocols_are_tables_and_the_grid_leaves_what_it_chose() -> None:
    results = []
    for split in ("folds", "gin_folds"):
        for hidden, share in ((16, 0.6), (32, 0.8)):
            config = graph_cell("mutag", "gin", "relu", hidden=hidden, split=split)
            results += [make_result(config, seed, share) for seed in range(10)]
    tables = page_tables.tables_of(results, "graph.jsonl")
    assert [table["name"] for table in tables] == [
        "graph.jsonl, ten folds",
        "graph.jsonl, the GIN paper's protocol",
    ]
    for table in tables:
        (row,) = table["rows"]
        assert row["mean"] == pytest.approx(80)
        assert table["cells"][0]["settings"]["ReLU"]["hidden"] == 32


def test_bands_are_percentiles_of_the_seeds_that_are_trained() -> None:
    found = page_tables.bands(runs(cell("digits", "gcn", "relu"), seeds=3))["val_loss"]
    assert found["epoch"] == list(range(11))  # of 10, 11 and 12 epochs
    assert found["low"] == found["middle"] == found["high"]
    np.testing.assert_allclose(found["middle"], 2.0 - 0.1 * np.arange(11))
    lost = make_result(cell("digits", "gcn", "relu"), 0, 0.5)
    lost.curves["train_loss"][1] = float("nan")
    assert page_tables.bands([lost]) == {}
