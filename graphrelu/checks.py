"""The arguments of an activation: one sentence that names the argument and what was expected."""

import math
from typing import Any

from graphrelu.functional import DEFAULT, DIFFUSIONS, MODES


def check_options(act: Any) -> None:
    """The arguments of a :class:`~graphrelu.GReLU`, which it has as attributes."""
    for name in ("channels", "K", "steps"):
        check_count(name, getattr(act, name))
    for name, known in (("diffusion", DIFFUSIONS), ("mode", MODES)):
        if getattr(act, name) not in known:
            got = getattr(act, name)
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {got!r}.")
    if not (act.node_wise or act.channel_wise):
        raise ValueError("node_wise and channel_wise must not both be False: nothing would adapt.")
    at_most_1 = "at most 1, as max(x, s * x) is LeakyReLU only then"
    for name, holds, expected in (
        ("alpha", 0 < act.alpha <= 1, "in (0, 1]"),
        ("scale", act.scale > 0, "positive"),
        ("scale", act.scale < math.inf, "finite"),
        ("temperature", act.temperature > 0, "positive"),
        ("dropout", 0 <= act.dropout < 1, "in [0, 1)"),
        ("negative_slope", act.negative_slope <= 1, at_most_1),
    ):
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {getattr(act, name)}.")
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
