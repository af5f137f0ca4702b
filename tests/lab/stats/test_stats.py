"""Statistics against numbers worked out by hand."""

from __future__ import annotations

import pytest

from graphrelu.lab.stats import Summary, power_law, summary


def test_summary_by_hand() -> None:
    # Mean 5, squared deviations 9 + 1 + 1 + 9 = 20, over n - 1 = 3.
    found = summary([2, 4, 6, 8])
    assert (found.mean, found.best, found.n) == (5.0, 8.0, 4)
    assert found.std == pytest.approx((20 / 3) ** 0.5)
    assert summary([0.5, 0.7]).std == pytest.approx(0.02**0.5)
    assert summary([1, 2]).mean == 1.5  # of whole numbers, too
    assert summary([0.5]) == Summary(mean=0.5, std=0.0, best=0.5, n=1)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0, 2.0]]])
def test_only_finite_numbers(values: list[float]) -> None:
    with pytest.raises(ValueError, match="one or more finite numbers"):
        summary(values)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_a_power_law_is_recovered(exponent: float) -> None:
    sizes = [10.0, 30.0, 100.0, 1_000.0]
    found = power_law(sizes, [3e-4 * size**exponent for size in sizes])
    # The interval is the root of a rounding error.
    assert found == pytest.approx((exponent, exponent, exponent), abs=1e-7)


def test_interval_of_an_exponent_by_hand() -> None:
    # log10: (0, 0), (1, 1.5), (2, 2): slope 1, residuals 1/6 (-1, 2, -1), their squares' sum 1/6,
    # standard error sqrt(1/6 / 1 / 2), and t = 12.7062 for one degree of freedom.
    half = 12.7062 * (1 / 12) ** 0.5
    found = power_law([1, 10, 100], [1, 10**1.5, 100])
    assert found == pytest.approx((1, 1 - half, 1 + half), abs=1e-4)
    assert power_law([1, 2], [1, 4]) == pytest.approx((2, None, None))
