"""Shapes of functions that are known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from graphrelu.lab.render import pieces

THREE = [-0.4, 0.2, 1.2], [-0.5, 0, -0.8]
FUNCTIONS = {  # slopes, intercepts, low, high -> slope at low, slope at high, shape
    "relu": ([1, 0], [0, 0], -1, 1, 0, 1, "flat, then increasing"),
    "relu where all is positive": ([1, 0], [0, 0], 0, 1, 1, 1, "increasing"),
    "relu where all is negative": ([1, 0], [0, 0], -2, 0, 0, 0, "flat"),
    "leaky": ([1, 0.2], [0, 0], -1, 1, 0.2, 1, "increasing"),
    "nearly flat": ([0.05, -0.05], [0.1, 0.1], -1, 1, -0.05, 0.05, "flat"),
    "a flip": ([-1, -0.3], [0, 0.5], -3, 3, -1, -0.3, "decreasing"),
    "absolute value": ([1, -1], [0, 0], -1, 2, -1, 1, "decreasing, then increasing"),
    "relu of -x": ([-1, 0], [0, 0], -1, 1, -1, 0, "decreasing, then flat"),
    "a line above": ([1, 0.5], [-9, 0], -1, 1, 0.5, 0.5, "increasing"),
    "three segments": (*THREE, -2, 2, -0.4, 1.2, "decreasing, then increasing"),
    "their middle": (*THREE, -0.5, 0.5, 0.2, 0.2, "increasing"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_by_hand(name: str) -> None:
    slopes, intercepts, low, high, first, last, shape = FUNCTIONS[name]
    arrays = [np.array([value], dtype=float) for value in (slopes, intercepts, low, high)]
    found = pieces.end_slopes(*arrays)
    assert [end.item() for end in found] == [first, last]
    assert pieces.shapes(*arrays) == [shape]
    word = shape if shape in ("increasing", "flat", "decreasing") else "mixed"
    assert pieces.coarse(shape) == word


def test_end_slopes_against_differences() -> None:
    rng = np.random.default_rng(0)
    slopes, intercepts = rng.normal(size=(2, 200, 4))
    low, high = np.full(200, -1.3), np.full(200, 0.9)
    h = 1e-9
    ends = np.stack([low, low + h, high - h, high], axis=1)
    y = pieces.values(slopes, intercepts, ends)
    first, last = pieces.end_slopes(slopes, intercepts, low, high)
    np.testing.assert_allclose(first, (y[:, 1] - y[:, 0]) / h, atol=1e-5)
    np.testing.assert_allclose(last, (y[:, 3] - y[:, 2]) / h, atol=1e-5)


def test_functions_are_straight_between_knots() -> None:
    rng = np.random.default_rng(1)
    slopes, intercepts = rng.normal(size=(2, 50, 3))
    slopes[0] = 1.0  # parallel lines never meet
    low, high = np.full(50, -2.0), np.full(50, 2.0)
    x = pieces.knots(slopes, intercepts, low, high)
    assert x.shape == (50, 5)
    assert (np.diff(x, axis=1) >= 0).all()
    assert (x[:, 0] == -2).all()
    assert (x[:, -1] == 2).all()
    middle = (x[:, 1:] + x[:, :-1]) / 2
    y = pieces.values(slopes, intercepts, x)
    straight = (y[:, 1:] + y[:, :-1]) / 2
    np.testing.assert_allclose(pieces.values(slopes, intercepts, middle), straight, atol=1e-12)
