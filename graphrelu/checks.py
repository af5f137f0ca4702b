"""The arguments of an activation: one sentence that names the argument and what was expected."""

import math
from typing import Any

from graphrelu.functional import DEFAULT, DIFFUSIONS, MODES


def check_options(act: Any) -> None:
    """The arguments of a :class:`~graphrelu.GReLU`, which it has as attributes."""
    for name in ("channels", "K", "steps"):
        check_count(name, getattr(act, name))
    if not 0 < act.alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {act.alpha}.")
    for name, known in (("diffusion", DIFFUSIONS), ("mode", MODES)):
        if getattr(act, name) not in known:
            got = getattr(act, name)
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {got!r}.")
    if not (act.node_wise or act.channel_wise):
        raise ValueError("node_wise and channel_wise must not both be False: nothing would adapt.")
    for name in ("scale", "temperature"):
        if not getattr(act, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(act, name)}.")
    if math.isinf(act.scale):
        raise ValueError("scale must be finite, got inf.")
    if not 0 <= act.dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {act.dropout}.")
    if not act.negative_slope <= 1:
        raise ValueError(
            f"negative_slope must be at most 1, as max(x, s * x) is LeakyReLU only then, "
            f"got {act.negative_slope}."
        )
    if act.mode == "paper":
        for name in ("negative_slope", "dropout", "scale", "temperature"):
            if getattr(act, name) != getattr(DEFAULT, name):
                raise ValueError(f"{name} must be left out in mode='paper', which has none.")


def check_count(name: str, value: Any) -> None:
    """A whole number, at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")
