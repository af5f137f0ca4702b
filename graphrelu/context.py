"""The graph of an activation that is called with `x` alone.

It gets the graph from a :class:`Scope` around the call: a :class:`graph_context`, or the call of a
converted model. The innermost one that knows a graph counts. Each thread has its own scopes, and so
does each task of an event loop, which may wait inside a block while others run. (A context variable
would do the same, but `torch.compile` cannot read one.)
"""

import asyncio
import copy
import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from traceback import walk_stack
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction, checkpoint
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphrelu.ops import values_on_cpu


class Graph(NamedTuple):
    """What a GReLU needs to know besides `x`."""

    edge_index: Any
    edge_weight: Tensor | None = None
    batch: Tensor | None = None
    batch_size: int | None = None
    num_nodes: int | None = None  # if known


class Scope:
    """A block or call inside which activations ask for their graph."""

    graph: Graph | None = None
    task: Any = None  # of an event loop, which opened it; none: it is the whole thread's


class Scopes(threading.local):
    def __init__(self) -> None:
        self.around: list[Scope] = []  # from the outermost to the innermost


scopes = Scopes()


class graph_context(Scope):
    r"""Inside this block, a :class:`~graphrelu.GReLU` may be called with `x` alone, as PyG's
    models call their :obj:`act`.

    All calls in the block must be on the features of all nodes. If neither `batch` nor a sparse
    adjacency tells the number of nodes, the first call sets it.

    Args:
        edge_index (torch.Tensor or EdgeIndex or SparseTensor): The edge indices, or a sparse
            transposed adjacency.
        edge_weight (torch.Tensor, optional): Non-negative edge weights. (default: :obj:`None`)
        batch (torch.Tensor, optional): The batch vector. (default: :obj:`None`)
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
        num_nodes = None
        if isinstance(batch, Tensor) and batch.dim() == 1:
            num_nodes = batch.size(0)
        elif isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index):
            num_nodes = edge_index.size(0)
        self.graph = Graph(edge_index, edge_weight, batch, batch_size, num_nodes)

    def __enter__(self) -> None:
        prepare_checkpoints()
        self.task = _current_task()
        scopes.around.append(self)

    def __exit__(self, *error: object) -> None:
        last = next(i for i in reversed(range(len(scopes.around))) if scopes.around[i] is self)
        del scopes.around[last]  # the last one, unless other tasks have opened blocks since


def _current_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:  # there is no event loop
        return None


def _is_of_task(scope: Scope) -> bool:
    """Whether it does not belong to another task."""
    return scope.task is None or scope.task is _current_task()


def graph_around(x: Any, channels: int, is_needed: bool = True) -> Graph:
    """That of a GReLU that was called with `x` alone."""
    compiles = torch.compiler.is_compiling()  # which cannot ask for the task
    known = (scope for scope in reversed(scopes.around) if scope.graph is not None)
    scope = next((scope for scope in known if compiles or _is_of_task(scope)), None)
    if scope is None or scope.graph is None:
        if not is_needed:
            return Graph(None)
        raise TypeError(
            "edge_index must be given, or an activation that is called with x alone must be inside "
            "graphrelu.graph_context(edge_index) or in a model made by graphrelu.convert."
        )
    if compiles and isinstance(scope, graph_context):
        return _uncompiled_graph_around(x, channels, is_needed)
    prepare_checkpoints()
    if isinstance(x, Tensor) and x.dim() == 2:
        if problem := _problem(x, channels, scope.graph):
            raise ValueError(
                f"x must have {channels} channels and a row for each node of the current graph, "
                f"{problem}: where a model activates edges, part of its nodes, pooled graphs or "
                "several widths, build it with ReLU and call graphrelu.convert(model)."
            )
        if isinstance(scope, graph_context) and scope.graph.num_nodes is None:
            scope.graph = scope.graph._replace(num_nodes=x.size(0))
    return scope.graph


_uncompiled_graph_around = torch.compiler.disable(graph_around)


def _problem(x: Tensor, channels: int, graph: Graph) -> str:
    rows, num_nodes = x.size(0), graph.num_nodes
    if not torch.compiler.is_compiling():
        # Messages have a row for each edge; there may be as many edges as nodes.
        for frame, _ in walk_stack(sys._getframe()):
            if frame.f_code.co_name in ("message", "aggregate", "edge_update"):
                caller = frame.f_locals.get("self")
                if isinstance(caller, MessagePassing):
                    return f"but {type(caller).__name__} calls it on its messages"
    if num_nodes is None and isinstance(graph.edge_index, Tensor):
        ends = graph.edge_index
        can_look = ends.dim() == 2 and ends.numel() > 0 and values_on_cpu(ends)
        largest = int(ends.max()) if can_look else -1
        num_nodes = largest + 1 if largest >= rows else None
    if num_nodes not in (None, rows):
        return f"of which there are {num_nodes}, got {rows} rows"
    return "" if x.size(1) == channels else f"got shape {list(x.shape)}"


# Checkpoints: torch.utils.checkpoint runs a function again in the backward pass, perhaps after the
# block has ended and in another thread. It has no public way to pass that run anything that its
# user did not name, so the function it keeps is replaced by one that restores the scopes.


def second_run(around: list[Scope], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a checkpoint runs again, perhaps several times, inside the scopes of its first run."""
    before = scopes.around
    scopes.around = list(map(copy.copy, around))
    runs: list[Any] = [run for run in scopes.around if not isinstance(run, graph_context)]
    try:
        with runs[-1].interceptor() if runs else nullcontext():
            return function(*args, **kwargs)
    finally:
        scopes.around = before


_REENTRANT = CheckpointFunction.forward.__code__
_NON_REENTRANT = inspect.unwrap(checkpoint).__code__


def prepare_checkpoints() -> None:
    """Each surrounding checkpoint will run its function again inside the present scopes; called
    before these change and wherever they are read."""
    if torch.compiler.is_compiling():
        return
    for frame, _ in walk_stack(sys._getframe()):
        try:
            if frame.f_code is _REENTRANT:
                keeper, name = frame.f_locals["ctx"], "run_function"
            elif frame.f_code is _NON_REENTRANT and "gen" in frame.f_locals:
                keeper = frame.f_locals["gen"].gi_frame.f_locals["new_frame"]
                name = "recompute_fn"
            else:
                continue
            function = getattr(keeper, name)
        except (AttributeError, KeyError):
            raise RuntimeError(
                f"torch.utils.checkpoint must not be around a GReLU with torch "
                f"{torch.__version__}, which this version of graphrelu does not support."
            ) from None
        if getattr(function, "func", None) is not second_run:
            around = [copy.copy(scope) for scope in scopes.around if _is_of_task(scope)]
            for scope in around:
                scope.task = None  # the second run may be in any task
            setattr(keeper, name, partial(second_run, around, function))
