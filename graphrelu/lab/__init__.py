"""The laboratory: honest comparisons of activation functions, on top of the library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["TensorBoard", "WandB", "compare"]

if TYPE_CHECKING:
    from graphrelu.lab.own_model import compare
    from graphrelu.lab.render.loggers import TensorBoard, WandB

# Imported when asked for, as every module of the laboratory imports this one first.
_MODULES = {"compare": "own_model", "TensorBoard": "render.loggers", "WandB": "render.loggers"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"graphrelu.lab.{_MODULES[name]}"), name)
