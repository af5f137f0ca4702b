"""The compiled loops of `native.cpp`, where the package was installed with a C++ compiler."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrelu.functional import backend, chebyshev_coefficients

# What each function takes: contiguous arrays (a), whole numbers (i) and others (r).
_ARGUMENTS = {
    "project": "aaaaiiiaa",
    "project_backward": "aaaaaaiiiaa",
    "diffuse": "aaaairiaiaa",
    "weigh": "aairra",
    "weigh_backward": "aaairra",
    "apply": "aaaaiirria",
    "apply_backward": "aaaaaiirriaaa",
    "prepare": "aaaiiaaaaaa",
}
_REALS: dict[torch.dtype, Any] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


class Loops:
    """The functions for one type of numbers."""

    def __init__(self, library: ctypes.CDLL, real: Any) -> None:
        kinds = {"a": ctypes.c_void_p, "i": ctypes.c_int64, "r": real}
        self.functions = {}
        for name, arguments in _ARGUMENTS.items():
            self.functions[name] = function = getattr(library, f"grelu_{name}")
            function.argtypes = [kinds[kind] for kind in arguments]

    def __call__(self, name: str, *arguments: Tensor | float | None) -> int:
        plain = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        return self.functions[name](*plain)


def _load() -> dict[torch.dtype, Loops]:
    found = {}
    for dtype, real in _REALS.items():
        name = str(dtype).removeprefix("torch.")
        try:
            library = ctypes.CDLL(str(Path(__file__).with_name(f"_native_{name}.so")))
        except OSError:  # not built, or built for another kind of machine
            return {}
        found[dtype] = Loops(library, real)
    return found


LOOPS = _load()


def uses_loops(x: Tensor) -> bool:
    """Whether the loops take `x`, unless `GRAPHRELU_BACKEND` says something else."""
    return x.is_cpu and x.dtype in LOOPS and not backend()


def diffused_column(
    z: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, kind: str
) -> Tensor:
    """:func:`~graphrelu.functional.polynomial` of one column, over a matrix in compressed rows."""
    coefficients = None
    if kind == "chebyshev":
        coefficients = z.new_tensor(chebyshev_coefficients(alpha, steps))
        steps = coefficients.numel() - 1
    out, nodes = torch.empty_like(z), z.numel()
    matrix = rowptr.contiguous(), col.contiguous(), value.contiguous()
    rest = alpha, steps, coefficients, torch.get_num_threads(), z.new_empty(2 * nodes), out
    LOOPS[z.dtype]("diffuse", z, *matrix, nodes, *rest)
    return out
