"""The compiled loops of `native.cpp`, where the package was installed with a C++ compiler."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrelu.ops.diffuse import CSR

# What each function takes: contiguous arrays (a), whole numbers (i) and others (r).
_ARGUMENTS = {
    "pointers": "aiia",
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
        except OSError:  # not built, or for another kind of machine
            return {}
        found[dtype] = Loops(library, real)
    return found


LOOPS = _load()


def normalized_csr(
    source: Tensor, target: Tensor, weight: Tensor, num_nodes: int
) -> tuple[CSR, CSR]:
    """The normalised adjacency matrix, whose rows are targets, and its transpose, both sorted."""

    def empty() -> CSR:
        starts, col = (torch.empty(n, dtype=torch.int32) for n in (num_nodes + 1, len(source)))
        return CSR(starts, col, torch.empty_like(weight))

    matrix, transposed, sizes = empty(), empty(), (len(source), num_nodes)
    source, target, weight = source.contiguous(), target.contiguous(), weight.contiguous()
    loops = LOOPS[weight.dtype]
    found = loops("prepare", source, target, weight, *sizes, *matrix, *transposed)
    if found < 0:
        raise ValueError(
            f"edge_index must hold indices between 0 and {num_nodes - 1}, the rows of x."
        )
    return matrix, transposed if found == 0 else matrix
