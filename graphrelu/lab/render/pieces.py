"""The shapes of piecewise linear functions, as the paper's section on inspecting GReLU names them.

A maximum of lines is convex: from left to right its slopes only grow. Its slopes at both ends of a
range therefore say whether it rises, is flat or falls all over the range, or changes.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

FLAT_SLOPE = 0.05  # a slope up to this passes nearly nothing on: the channel is filtered out

# By the signs of the first and the last slope.
SHAPES = {
    (1, 1): "increasing",
    (0, 0): "flat",
    (-1, -1): "decreasing",
    (0, 1): "flat, then increasing",
    (-1, 0): "decreasing, then flat",
    (-1, 1): "decreasing, then increasing",
}
# The paper's words; the rest is mixed.
CLASSES = ("increasing", "flat", "decreasing", "mixed")
NAMES = tuple(SHAPES.values())


def values(slopes: Array, intercepts: Array, x: Array) -> Array:
    """``max_k (slopes_k x + intercepts_k)`` for functions ``[P, K]`` at inputs ``[P, n]``."""
    lines = slopes[:, :, None] * x[:, None, :] + intercepts[:, :, None]
    return np.asarray(lines.max(axis=1))


def end_slopes(slopes: Array, intercepts: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The slopes of functions ``[P, K]`` just right of ``low`` and just left of ``high``, ``[P]``.

    Where lines meet at an end, the steepest of them goes on to the right, the least steep to the
    left.
    """
    at_low, at_high = _top(slopes, intercepts, low), _top(slopes, intercepts, high)
    return (
        np.asarray(np.where(at_low, slopes, -np.inf).max(axis=1)),
        np.asarray(np.where(at_high, slopes, np.inf).min(axis=1)),
    )


def shapes(slopes: Array, intercepts: Array, low: Array, high: Array) -> list[str]:
    """The shape of each function over its own range; one of :data:`NAMES`."""
    ends = end_slopes(slopes, intercepts, low, high)
    signs = [np.where(np.abs(end) <= FLAT_SLOPE, 0, np.sign(end)).astype(int) for end in ends]
    return [SHAPES[first, last] for first, last in zip(*signs, strict=True)]


def coarse(shape: str) -> str:
    """The paper's word for a shape."""
    return shape if shape in CLASSES else "mixed"


def _top(slopes: Array, intercepts: Array, x: Array) -> NDArray[np.bool_]:
    """Which lines are the highest at one input for each function."""
    lines = slopes * x[:, None] + intercepts
    return np.asarray(lines == lines.max(axis=1, keepdims=True))


def knots(slopes: Array, intercepts: Array, low: Array, high: Array) -> Array:
    """Inputs between which functions ``[P, K]`` are straight, in order; both ends are among them.

    If two lines do not cross inside the range, the nearer end takes the place of their crossing.
    """
    first, second = np.triu_indices(slopes.shape[1], k=1)
    steepness = slopes[:, first] - slopes[:, second]
    parallel = steepness == 0
    crossing = (intercepts[:, second] - intercepts[:, first]) / np.where(parallel, 1, steepness)
    crossing = np.where(parallel, low[:, None], crossing)
    inside = np.clip(crossing, low[:, None], high[:, None])
    return np.sort(np.concatenate([low[:, None], inside, high[:, None]], axis=1), axis=1)
