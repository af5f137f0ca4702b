"""The arguments of an activation: one sentence that names the argument and what was expected."""

import math
from typing import Any

from graphrelu.functional import DEFAULT, DIFFUSIONS, MODES, Form


def check_options(
    form: Form,
    channels: int,
    alpha: float,
    steps: int,
    diffusion: str,
    node_wise: bool,
    channel_wise: bool,
) -> None:
    """The arguments of :class:`~graphrelu.GReLU`."""
    for name, value in (("channels", channels), ("K", form.K), ("steps", steps)):
        check_count(name, value)
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha}.")
    if diffusion not in DIFFUSIONS:
        raise ValueError(f"diffusion must be one of {', '.join(DIFFUSIONS)}, got {diffusion!r}.")
    if form.mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {form.mode!r}.")
    if not (node_wise or channel_wise):
        raise ValueError("node_wise and channel_wise must not both be False: nothing would adapt.")
    for name in ("scale", "temperature"):
        if not getattr(form, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(form, name)}.")
    if math.isinf(form.scale):
        raise ValueError("scale must be finite, got inf.")
    if not 0 <= form.dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {form.dropout}.")
    if not form.negative_slope <= 1:
        raise ValueError(
            f"negative_slope must be at most 1, as max(x, s * x) is LeakyReLU only then, "
            f"got {form.negative_slope}."
        )
    if form.mode == "paper":
        for name in ("negative_slope", "dropout", "scale", "temperature"):
            if getattr(form, name) != getattr(DEFAULT, name):
                raise ValueError(f"{name} must be left out in mode='paper', which has none.")


def check_count(name: str, value: Any) -> None:
    """A whole number, at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")
