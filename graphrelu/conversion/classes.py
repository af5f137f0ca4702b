"""Classes for converted models: subclasses of the models' own, so that nothing else changes."""

from functools import cache
from typing import Any

from graphrelu.conversion.activation import GraphActivation


@cache
def converted_class(original: Any, source: str) -> Any:
    """`original` under its own name, with what conversion changes.

    Resetting the parameters resets every GReLU too: learned slopes that survive would leak labels
    from one run into the next.

    Args:
        original: The class of the model.
        source: Python source that defines another `forward`; empty where it stays.
    """
    namespace: dict[str, Any] = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__reduce_ex__": _reduce,
        "_conversion": (original, source),
    }
    if source:
        definitions: dict[str, Any] = {}
        exec(compile(source, f"<converted {original.__qualname__}>", "exec"), definitions)
        namespace["forward"] = definitions["forward"]
    if hasattr(original, "reset_parameters"):
        namespace["reset_parameters"] = _reset_parameters
    return type(original.__name__, (original,), namespace)


def _reset_parameters(self: Any) -> None:
    self._conversion[0].reset_parameters(self)
    for module in self.modules():
        if isinstance(module, GraphActivation):
            module.reset_parameters()


def _reduce(self: Any, protocol: int) -> tuple[Any, ...]:
    """Pickles and copies by the original class, which can be found by name."""
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    return _restore, self._conversion, state


def _restore(original: Any, source: str) -> Any:
    kind = converted_class(original, source)
    return kind.__new__(kind)
