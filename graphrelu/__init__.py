"""GReLU, the graph-adaptive rectified linear unit, for PyTorch Geometric."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "GReLU",
    "HeteroGReLU",
    "__version__",
    "clear_cache",
    "convert",
    "graph_context",
    "replacements",
]

if TYPE_CHECKING:
    from graphrelu.context import graph_context
    from graphrelu.conversion import convert, replacements
    from graphrelu.graph import clear_cache
    from graphrelu.grelu import GReLU
    from graphrelu.hetero import HeteroGReLU

# Imported when asked for: ``graphrelu --help`` does not wait for torch.
_MODULES = {
    "GReLU": "grelu",
    "HeteroGReLU": "hetero",
    "clear_cache": "graph",
    "convert": "conversion",
    "graph_context": "context",
    "replacements": "conversion",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"graphrelu.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
