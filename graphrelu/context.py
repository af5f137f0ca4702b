"""The graph of an activation that is called with `x` alone.

What knows the graph is a :class:`Scope` around the call: a :class:`graph_context`, or the call of a
converted model. The activation asks the innermost one that knows a graph. Scopes are kept in a
context variable: each thread and each task of an event loop has its own.
"""

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar, Token
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointFunction, checkpoint
from torch_geometric.nn import MessagePassing
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphrelu.functional import values_on_cpu


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


Scopes = tuple[Scope, ...]
_scopes: ContextVar[Scopes] = ContextVar("graphrelu_scopes", default=())


class _Traced(threading.local):
    """What torch.compile reads, as it cannot read context variables."""

    def __init__(self) -> None:
        self.runs: list[Scope] = []  # of converted models
        self.contexts = 0  # how many are open


_traced = _Traced()


def scopes_around() -> Scopes:
    """From the outermost to the innermost."""
    return tuple(_traced.runs) if torch.compiler.is_compiling() else _scopes.get()


def runs_around() -> list[Any]:
    """The runs of converted models alone."""
    return _traced.runs


def enter_run(run: Scope) -> Callable[[], object]:
    """Puts the run of a converted model around a call; the function returned takes it away."""
    _traced.runs.append(run)
    if torch.compiler.is_compiling():
        return _traced.runs.pop
    token = _scopes.set((*_scopes.get(), run))

    def leave() -> None:
        _scopes.reset(token)
        _traced.runs.pop()

    return leave


class graph_context:
    r"""Inside this block, a :class:`~graphrelu.GReLU` may be called with `x` alone, as PyG's
    models call their :obj:`act`.

    All calls in the block must be on the features of all nodes. Where the number of nodes is not
    known from `batch` or a sparse adjacency, the first call tells it.

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
        num_nodes = None
        if isinstance(batch, Tensor) and batch.dim() == 1:
            num_nodes = batch.size(0)
        elif isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index):
            num_nodes = edge_index.size(0)
        self.graph: Graph | None = Graph(edge_index, edge_weight, batch, batch_size, num_nodes)
        self._tokens: list[Token[Scopes]] = []

    def __enter__(self) -> None:
        prepare_checkpoints()
        self._tokens.append(_scopes.set((*_scopes.get(), self)))
        _traced.contexts += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _scopes.reset(self._tokens.pop())
        _traced.contexts -= 1


def graph_around(
    x: Any, channels: int, is_needed: bool = True
) -> tuple[Any, Tensor | None, Any, int | None]:
    """The arguments of a GReLU that was called with `x` alone."""
    compiles = torch.compiler.is_compiling()
    if compiles and _traced.contexts and all(run.graph is None for run in _traced.runs):
        return _uncompiled_graph_around(x, channels, is_needed)
    scope = next((scope for scope in reversed(scopes_around()) if scope.graph is not None), None)
    if scope is None or scope.graph is None:
        if not is_needed:
            return None, None, None, None
        raise TypeError(
            "edge_index must be given, or an activation that is called with x alone must be inside "
            "graphrelu.graph_context(edge_index) or in a model made by graphrelu.convert."
        )
    if not compiles:
        _check_callers()
        prepare_checkpoints()
    if isinstance(x, Tensor) and x.dim() == 2:
        _check_shape(x, channels, scope.graph)
        if isinstance(scope, graph_context) and scope.graph.num_nodes is None:
            scope.graph = scope.graph._replace(num_nodes=x.size(0))
    return scope.graph[:4]


_uncompiled_graph_around = torch.compiler.disable(graph_around)


def _check_shape(x: Tensor, channels: int, graph: Graph) -> None:
    rows, num_nodes = x.size(0), graph.num_nodes
    if num_nodes is None and isinstance(graph.edge_index, Tensor):
        ends = graph.edge_index
        can_look = ends.dim() == 2 and ends.numel() > 0 and values_on_cpu(ends)
        largest = int(ends.max()) if can_look else -1
        num_nodes = largest + 1 if largest >= rows else None
    if num_nodes not in (None, rows):
        raise ValueError(
            f"x must have a row for each node of the graph around, of which there are {num_nodes}, "
            f"got {rows}: where a model activates edges, parts of its nodes or pooled graphs, too, "
            "build it with ReLU and call graphrelu.convert(model)."
        )
    if x.size(1) != channels:
        raise ValueError(
            f"x must have {channels} channels, got shape {list(x.shape)}: where a model calls its "
            "activation at several widths, build it with ReLU and call graphrelu.convert(model)."
        )


def _check_callers() -> None:
    """Messages of a convolution have a row for each edge. There may be as many as nodes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("message", "aggregate", "edge_update"):
            caller = frame.f_locals.get("self")
            if isinstance(caller, MessagePassing):
                raise ValueError(
                    f"x must have a row for each node, but {type(caller).__name__} calls the "
                    "activation on its messages, which are edges: build the model with ReLU and "
                    "call graphrelu.convert(model), which leaves those alone."
                )
        frame = frame.f_back


# Checkpoints: torch.utils.checkpoint runs a function again in the backward pass, perhaps after the
# block has ended and in another thread. It can hand nothing to that second run, so the function
# that it keeps is replaced by one that puts the scopes back.


class SecondRun:
    """A function that a checkpoint runs again, perhaps several times, inside the scopes of its
    first run."""

    def __init__(self, function: Callable[..., Any], lines: list[str]) -> None:
        self.function = function
        self.lines = lines  # that led to the checkpoint
        self.scopes = tuple(map(copy.copy, scopes_around()))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        scopes: tuple[Any, ...] = tuple(map(copy.copy, self.scopes))
        runs = [scope for scope in scopes if not isinstance(scope, graph_context)]
        token, before = _scopes.set(scopes), (_traced.runs, _traced.contexts)
        _traced.runs, _traced.contexts = runs, len(scopes) - len(runs)
        try:
            with ExitStack() as stack:
                for run in runs:
                    stack.enter_context(run.interceptor())
                return self.function(*args, **kwargs)
        finally:
            _scopes.reset(token)
            _traced.runs, _traced.contexts = before


_REENTRANT = CheckpointFunction.forward.__code__
_NON_REENTRANT = inspect.unwrap(checkpoint).__code__
_SECOND_RUN = SecondRun.__call__.__code__


def prepare_checkpoints() -> None:
    """Each checkpoint around will run its function again inside the scopes that are around now;
    called before these change and wherever they are read."""
    if torch.compiler.is_compiling():
        return
    for frame in _frames_around(sys._getframe(1)):
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
                f"{torch.__version__}, which this version of graphrelu does not know."
            ) from None
        if not isinstance(function, SecondRun):
            setattr(keeper, name, SecondRun(function, lines_of_calls(frame)))


def lines_of_calls(frame: FrameType) -> list[str]:
    """The line of each function on the way from a method of a converted model to this frame, the
    innermost first. Lines count from the start of their function."""
    lines: list[str] = []
    for caller in _frames_around(frame):
        name = caller.f_globals.get("__name__", "")
        if caller.f_code is _SECOND_RUN:
            lines += caller.f_locals["self"].lines
        elif name.startswith("torch.nn.modules.") and not lines:
            break  # the caller is a module of torch, which is not the model's code
        elif not name.startswith("torch."):
            line = caller.f_lineno - caller.f_code.co_firstlineno
            lines.append(f"{caller.f_code.co_name}:{line}")
    return lines


def _frames_around(frame: FrameType | None) -> Iterator[FrameType]:
    """The stack of calls from this frame up to the method of a converted model, which has looked
    at what is around itself, or up to a second run."""
    while frame is not None and _is_conversion(frame):
        frame = frame.f_back
    while frame is not None and not _is_conversion(frame):
        yield frame
        frame = None if frame.f_code is _SECOND_RUN else frame.f_back


def _is_conversion(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "graphrelu.conversion"
