"""The laboratory: honest comparisons of activation functions, on top of the library."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["compare"]

if TYPE_CHECKING:
    from graphrelu.lab.own_model import compare


def __getattr__(name: str) -> Any:
    """Imported when asked for, as every module of the laboratory imports this one first."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("graphrelu.lab.own_model"), name)
