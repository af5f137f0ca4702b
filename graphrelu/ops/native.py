"""The compiled loops of `native.cpp`, where the package was installed with a C++ compiler."""

import ctypes
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

Argument: TypeAlias = Tensor | int | float | None


class Loops:
    """The functions for one type of numbers. Arrays must be contiguous."""

    def __init__(self, library: ctypes.CDLL, real: Any) -> None:
        self.library, self.real = library, real

    def __call__(self, name: str, *arguments: Argument) -> int:
        found: int = getattr(self.library, f"grelu_{name}")(*map(self._as_c, arguments))
        return found

    def _as_c(self, argument: Argument) -> Any:
        if isinstance(argument, Tensor):
            return ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, float):
            return self.real(argument)
        return None if argument is None else ctypes.c_int64(argument)


def _load() -> dict[torch.dtype, Loops]:
    kinds: dict[torch.dtype, Any] = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
    found = {}
    for dtype, real in kinds.items():
        name = str(dtype).removeprefix("torch.")
        try:
            library = ctypes.CDLL(str(Path(__file__).with_name(f"_native_{name}.so")))
        except OSError:  # not built, or for another kind of machine
            return {}
        found[dtype] = Loops(library, real)
    return found


LOOPS = _load()
