"""Statistics against numbers worked out by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from graphrelu.lab.stats import (
    PairedDifference,
    Summary,
    holm,
    paired_difference,
    power_law,
    rank_correlation,
    summary,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


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


def test_paired_difference_by_hand() -> None:
    # Differences 1, 2, 3, 4, 5: mean 3, variance 2.5, standard error sqrt(2.5 / 5) = 0.7071;
    # the t-quantile for 4 degrees of freedom is 2.7764, so the interval is 3 -+ 1.9632.
    # All five signs alike: p = 2 / 2^5. t = 3 / 0.7071 = 4.2426.
    result = paired_difference([11, 22, 33, 44, 55], [10, 20, 30, 40, 50])
    assert (result.mean, result.n) == (3.0, 5)
    assert result.low == pytest.approx(3 - 1.96324, abs=1e-4)
    assert result.high == pytest.approx(3 + 1.96324, abs=1e-4)
    assert result.p == pytest.approx(0.0625)
    result = paired_difference([11, 22, 33, 44, 55], [10, 20, 30, 40, 50], "ttest")
    assert result.p == pytest.approx(0.013236, abs=1e-5)


def test_paired_difference_changes_sign(rng: np.random.Generator) -> None:
    a, b = rng.normal(size=20), rng.normal(size=20)
    forward, backward = paired_difference(a, b), paired_difference(b, a)
    assert forward.low is not None
    assert backward.high is not None
    assert forward.mean == -backward.mean
    assert forward.low == pytest.approx(-backward.high)
    assert forward.p == backward.p == pytest.approx(scipy_stats.wilcoxon(a, b).pvalue)
    by_t = paired_difference(a, b, "ttest").p
    assert by_t == paired_difference(b, a, "ttest").p
    assert by_t == pytest.approx(scipy_stats.ttest_rel(a, b).pvalue)


@pytest.mark.parametrize("n", [2, 5, 10, 13, 14])
def test_p_values_are_those_of_scipy(n: int, rng: np.random.Generator) -> None:
    a = rng.normal(0.5, 1, size=n)
    expected = scipy_stats.wilcoxon(a).pvalue
    for values in (a, -a):  # both ends of the distribution
        assert paired_difference(values, np.zeros(n)).p == pytest.approx(expected, rel=1e-9)


def test_few_p_values_with_ties_are_exact() -> None:
    # Without the zero, the ranks are 2, 2, 2 and 4, and those of the positive ones add up to 8. Of
    # the 16 sets of these ranks four have a sum of 8 or more: p = 2 * 4 / 16.
    assert paired_difference([1, 1, -1, 2, 0], [0] * 5).p == 0.5


def test_the_interval_covers_the_truth(rng: np.random.Generator) -> None:
    hits = 0
    for _ in range(400):
        result = paired_difference(rng.normal(0.5, 1, size=8), np.zeros(8))
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 0.5 <= result.high
    assert 0.91 < hits / 400 < 0.985


@pytest.mark.parametrize("n", [2, 10, 60])
def test_equal_runs(rng: np.random.Generator, n: int) -> None:
    values = rng.normal(size=n)
    assert paired_difference(values, values) == PairedDifference(0.0, 0.0, 0.0, 1.0, n)


def test_a_constant_difference() -> None:
    result = paired_difference([1.25, 2.25, 3.25], [1.0, 2.0, 3.0])
    assert (result.mean, result.low, result.high) == (0.25, 0.25, 0.25)
    assert result.p == pytest.approx(0.25)  # 2 / 2^3
    assert paired_difference([1.25, 2.25, 3.25], [1.0, 2.0, 3.0], "ttest").p == 0.0


@pytest.mark.parametrize("n", [3, 12, 30, 80])
def test_ties_and_zeros_make_no_noise(rng: np.random.Generator, n: int) -> None:
    a = rng.integers(795, 805, size=n) / 1_000
    b = rng.integers(795, 805, size=n) / 1_000
    b[0] = a[0]
    result = paired_difference(a, b)
    assert result.p is not None
    assert 0.0 < result.p <= 1.0


def test_rounding_does_not_break_ties() -> None:
    # In floating point these differences of 0.001 are not all equal.
    a, b = np.array([0.801, 0.703, 0.655, 0.498]), np.array([0.8, 0.702, 0.656, 0.497])
    assert paired_difference(a, b).p == paired_difference([1, 1, 0, 1], [0, 0, 1, 0]).p


def test_one_pair_and_pairs_that_do_not_match() -> None:
    assert paired_difference([2.0], [1.5]) == PairedDifference(0.5, None, None, None, 1)
    with pytest.raises(ValueError, match="3 values cannot be paired with 2"):
        paired_difference([1, 2, 3], [1, 2])


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04, made monotone.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.5]) == pytest.approx([1.0, 1.0])
    assert holm([0.9, 0.8, 0.001]) == [1.0, 1.0, pytest.approx(0.003)]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
    assert holm([0.01, None, 0.02, float("nan")]) == [0.02, None, 0.02, None]
    assert holm([None]) == [None]


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


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [1, 8, 27, 64]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2], [5, 5]) is None


@pytest.mark.parametrize(
    ("differences", "method"),
    [
        (np.arange(1, 21), "exact"),
        (np.arange(1, 51), "exact"),
        (np.arange(1, 52), "approx"),  # too many
        (np.arange(20), "approx"),  # a zero
        (np.arange(1, 21) // 2 + 1, "approx"),  # ties
    ],
)
def test_wilcoxon_is_exact_without_ties(differences: np.ndarray, method: str) -> None:
    """As recent versions of scipy choose by themselves, and older ones do not."""
    signed = np.where(np.arange(len(differences)) % 3 == 0, -differences, differences) / 100
    p = {
        name: scipy_stats.wilcoxon(signed[signed != 0], method=name).pvalue
        for name in ("exact", "approx")
    }
    assert p["exact"] != p["approx"]
    assert paired_difference(signed, np.zeros(len(signed))).p == p[method]
