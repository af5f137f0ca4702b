"""The one place that chooses how the passes over the features are computed."""

import os
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from graphrelu.ops import cpu

BACKENDS = ("reference", "torch", "triton")


def backend(x: Tensor) -> str:
    """`triton` on a GPU where it is installed, else `torch`.

    `GRAPHRELU_BACKEND` overrides it, for debugging: `reference` are the equations of
    :mod:`graphrelu.functional`, `torch` the same passes as on a CPU.
    """
    name = os.environ.get("GRAPHRELU_BACKEND", "")
    if name:
        if name not in BACKENDS:
            raise ValueError(
                f"GRAPHRELU_BACKEND must be one of {', '.join(BACKENDS)}, got {name!r}."
            )
        return name
    return "triton" if x.is_cuda and x.dtype != torch.float64 and _has_triton() else "torch"


def implementation(x: Tensor) -> ModuleType:
    """The module with the passes for `x`."""
    if backend(x) == "triton":
        from graphrelu.ops.triton import fused

        return fused
    return cpu


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
