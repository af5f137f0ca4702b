"""The laboratory: honest comparisons of activation functions, on top of the library."""

from typing import TYPE_CHECKING, Any

from graphrelu.lab.render.loggers import TensorBoard, WandB

__all__ = ["TensorBoard", "WandB", "compare"]

if TYPE_CHECKING:
    from graphrelu.lab.own_model import compare
else:

    def __getattr__(name: str) -> Any:
        """``compare`` on demand, as every module of the laboratory imports this one first."""
        if name != "compare":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from graphrelu.lab.own_model import compare

        return compare
