"""Rows by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from graphrelu.lab import render
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import verdict
from tests.lab.fake_engine import make_result
from tests.lab.pages import decided

RELU = [0.80, 0.81, 0.82, 0.83, 0.84, 0.85]


def cell(activation: str, scores: Sequence[float], metric: Any = "accuracy") -> list[Result]:
    config = replace(recipe("cora", "gcn", activation), metric=metric)
    return [make_result(config, seed, score) for seed, score in enumerate(scores)]


def rows(results: list[Result], **options: Any) -> list[render.CompareRow]:
    """The rows of a comparison, with the decisions on them."""
    is_error = results[0].config.metric == "mae"
    found = decided(results, is_error=is_error, **options)
    return render.compare_rows(results, found.decisions)


def test_compare_rows_by_hand() -> None:
    # Ahead by 1.0, 1.1, ..., 1.5 points: mean 1.25, std 0.187083.
    grelu = [score + 0.010 + 0.001 * i for i, score in enumerate(RELU)]
    elu = [score + 0.001 * (i + 1) * (-1) ** i for i, score in enumerate(RELU)]
    results = cell("relu", RELU) + cell("elu", elu) + cell("grelu", grelu)
    relu_row, elu_row, grelu_row = rows(results, margin=1.0, looks=(2, 3))
    assert (relu_row.mean, relu_row.best, relu_row.n) == (pytest.approx(82.5), 85.0, 6)
    assert relu_row.std == pytest.approx(1.870829)
    assert relu_row.over_relu is None
    found = grelu_row.over_relu
    assert found.difference == pytest.approx(1.25)
    assert found.std == pytest.approx(0.187083, abs=1e-6)
    assert (found.n, found.margin, found.look) == (6, 1.0, 2)
    assert elu_row.over_relu.difference == pytest.approx(-0.05)
    assert elu_row.over_relu.look == 3


def test_the_price() -> None:
    """Seconds and memory are a run's share of its batch; what a record lacks is not shown."""
    first, second = cell("relu", RELU[:2])  # 0.25 seconds each
    known = [
        replace(first, epochs_run=10, test_loss=0.6, peak_memory=2_000_000),
        replace(second, calibration_error=0.07, peak_memory=4_000_000),
    ]
    found = render.price(known)
    assert found.seconds_per_epoch == pytest.approx(0.25 / 25)
    assert (found.parameters, found.peak_memory) == (1_000, 3_000_000)
    (shown,) = render.compare_cells(render.compare_rows(known))
    assert shown == {
        "activation": "ReLU",
        "mean": "80.5",
        "std": "0.7",
        "runs": "2",
        "test loss": "0.650",
        "ECE": "6.0",
        "s per epoch": "0.010",
        "parameters": "1,000",
        "MB per run": "3",
    }
    older = replace(first, calibration_error=nan, parameters=None, epochs_computed=None)
    (shown,) = render.compare_cells(render.compare_rows([older, second]))
    assert list(shown) == ["activation", "mean", "std", "runs", "test loss"]


@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e6])
def test_a_lower_error_is_better(unit: float) -> None:
    """Errors as they are, their differences in percent of ReLU's, and the lowest is the best."""
    relu = [-unit * (2.0 + 0.1 * seed) for seed in range(8)]  # on record errors are negative
    grelu = [value + unit * (0.5 + 0.01 * seed) for seed, value in enumerate(relu)]
    relu_row, grelu_row = both = rows(cell("relu", relu, "mae") + cell("grelu", grelu, "mae"))
    assert relu_row.is_error
    assert (relu_row.mean, relu_row.best) == (pytest.approx(2.35 * unit), -relu[0])
    lead = grelu_row.over_relu
    assert (lead.outcome, lead.unit) == ("better", "% of ReLU's error")
    assert lead.difference == pytest.approx(100 * 0.535 / 2.35)
    assert render.compare_cells(both)[1]["mean"] == f"{1.815 * unit:.4g}"
    best = render.compare_table(both).renderables[0].columns[1]
    assert [cell.style for cell in best.cells] == ["", "bold"]
    assert verdict(both).sentence == (
        f"GReLU is better than ReLU here ({render.amount(lead)} % of ReLU's error over 8 seeds)."
    )
    names = {"relu": relu, "grelu": relu, "elu": grelu}
    others = [run for name, own in names.items() for run in cell(name, own, "mae")]
    assert "The lowest mean is that of ELU (+22.8 " in verdict(rows(others)).sentence
