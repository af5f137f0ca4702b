"""GReLU, the graph-adaptive rectified linear unit, for PyTorch Geometric."""

from graphrelu.context import graph_context
from graphrelu.convert import convert, replacements
from graphrelu.grelu import GReLU
from graphrelu.hetero import HeteroGReLU

__version__ = "0.1.0"

__all__ = ["GReLU", "HeteroGReLU", "__version__", "convert", "graph_context", "replacements"]
