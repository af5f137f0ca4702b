"""The graph of an activation that is called with `x` alone.

Whoever knows the graph, :func:`graph_context` or a converted model, puts a scope on a stack of its
thread; the activation reads the one on top. A scope goes with its block, also when that fails.
"""

import threading
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Graph(NamedTuple):
    """What a GReLU needs to know besides `x`."""

    edge_index: Any
    edge_weight: Tensor | None = None
    batch: Tensor | None = None
    batch_size: int | None = None
    num_nodes: int | None = None  # where it is known


class Scope(Protocol):
    @property
    def graph(self) -> Graph | None: ...


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Scope] = []


scopes = _Scopes()


class graph_context:
    r"""Inside of this block, a :class:`~graphrelu.GReLU` may be called with `x` alone, as PyG's
    models call their :obj:`act`.

    Args:
        edge_index (torch.Tensor or EdgeIndex or SparseTensor): The edge indices, or a sparse
            transposed adjacency.
        edge_weight (torch.Tensor, optional): Non-negative edge weights. (default: :obj:`None`)
        batch (torch.Tensor, optional): The batch vector, which assigns each node to a graph.
            (default: :obj:`None`)
        batch_size (int, optional): The number of graphs. (default: :obj:`None`)

    Examples:
        >>> import torch
        >>> from graphrelu import GReLU, graph_context
        >>> from torch_geometric.nn import GCN
        >>> model = GCN(16, 64, num_layers=2, act=GReLU(64))
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> with graph_context(edge_index): out = model(x, edge_index)
    """

    def __init__(
        self,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> None:
        if edge_index is None:
            raise TypeError("edge_index must be the graph of the activations inside, got None.")
        self.graph: Graph | None = Graph(edge_index, edge_weight, batch, batch_size)

    def __enter__(self) -> None:
        scopes.stack.append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scopes.stack.pop()


def current_graph() -> Graph | None:
    """That of the innermost block around that knows one."""
    for scope in reversed(scopes.stack):
        if scope.graph is not None:
            return scope.graph
    return None


def graph_around(x: Any, is_needed: bool = True) -> tuple[Any, Tensor | None, Any, int | None]:
    """The arguments of a GReLU that was called with `x` alone."""
    graph = current_graph()
    if graph is None:
        if not is_needed:
            return None, None, None, None
        raise TypeError(
            "edge_index must be given, or an activation that is called with x alone must be inside "
            "of graphrelu.graph_context(edge_index) or in a model made by graphrelu.convert."
        )
    if graph.num_nodes is not None and isinstance(x, Tensor) and x.size(0) != graph.num_nodes:
        raise ValueError(
            f"x must have a row for each of the {graph.num_nodes} nodes that the convolution "
            f"before it saw, got {x.size(0)}."
        )
    return graph[:4]
