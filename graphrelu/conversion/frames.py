"""How an activation that is called with `x` alone finds its graph.

Every call of a converted model opens a frame, and hooks write into it what they see: the model's
own arguments, then those of each convolution. The activation reads the frame on top. Frames are
kept per thread and end with their call, also when it fails: no graph outlives its call.
"""

import inspect
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import EdgePooling, MessagePassing
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.nn.pool import ASAPooling, PANPooling, SAGPooling, TopKPooling
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

_EDGES = ("edge_index", "adj_t", "adj")
# Where the result of a pooling layer, (x, edge_index, ...), has its batch vector.
_POOLED_BATCH = {TopKPooling: 3, SAGPooling: 3, ASAPooling: 3, PANPooling: 3, EdgePooling: 2}
POOLINGS = tuple(_POOLED_BATCH)


class Graph(NamedTuple):
    edge_index: Any
    edge_weight: Tensor | None
    num_nodes: int | None


class Frame:
    """What one call of a model, or of a part of one, has shown so far."""

    def __init__(self, owner: torch.nn.Module, key: str, parent: "Frame | None") -> None:
        self.owner = owner
        self.key = key  # of the conversion
        self.parent = parent
        self.graph: Graph | None = None if parent is None else parent.graph
        self.batch: Tensor | None = None if parent is None else parent.batch
        self.batch_size: int | None = None if parent is None else parent.batch_size
        self.last: str = "" if parent is None else parent.last  # the convolution called last
        self.convolved = False  # whether that was within this frame
        self.calls: dict[str, int] = {}  # of each activation since then

    def place(self, activation: str) -> tuple[str, int]:
        """Tells this call of a shared activation from its others, and counts it."""
        count = self.calls.get(activation, 0)
        self.calls[activation] = count + 1
        return self.last, count


class _Frames(threading.local):
    def __init__(self) -> None:
        self.stack: list[Frame] = []


_frames = _Frames()


def current_frame() -> Frame | None:
    return _frames.stack[-1] if _frames.stack else None


class EnterModel:
    """The pre-hook of a model and of its parts; a part knows what the whole has seen.

    A whole model knows nothing of the calls around it: they are other models', or were interrupted
    from the keyboard, after which torch calls no hooks.
    """

    def __init__(self, model: torch.nn.Module, key: str, is_part: bool) -> None:
        self.names = parameter_names(model)
        self.key = key
        self.is_part = is_part

    def __call__(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        frame = Frame(model, self.key, current_frame() if self.is_part else None)
        arguments = _arguments(self.names, args, kwargs)
        graph = _read_graph(arguments)
        if graph is not None:
            frame.graph = graph
        if isinstance(arguments.get("batch"), Tensor):
            frame.batch, frame.batch_size = arguments["batch"], arguments.get("batch_size")
        _frames.stack.append(frame)


def leave_model(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    """The hook of a model; its own pre-hook may have failed before it opened a frame."""
    if not _frames.stack or _frames.stack[-1].owner is not model:
        return
    frame = _frames.stack.pop()
    parent = frame.parent
    if parent is not None and frame.convolved:
        parent.graph, parent.batch, parent.batch_size = frame.graph, frame.batch, frame.batch_size
        parent.last, parent.calls, parent.convolved = frame.last, {}, True


class EnterConvolution:
    """The pre-hook of a convolution: the activations after it see the graph that it saw."""

    def __init__(self, convolution: torch.nn.Module, label: str) -> None:
        self.names = parameter_names(convolution)
        self.label = label

    def __call__(
        self, convolution: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        frame = current_frame()
        if frame is None:
            return
        graph = _read_graph(_arguments(self.names, args, kwargs))
        if graph is not None:
            frame.graph = graph
        frame.last, frame.calls, frame.convolved = self.label, {}, True


def leave_pooling(
    pooling: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    """The hook of a pooling layer, which hands out a smaller graph."""
    frame = current_frame()
    if frame is not None:
        batch = next(i for kind, i in _POOLED_BATCH.items() if isinstance(pooling, kind))
        frame.graph = Graph(output[1], None, output[0].size(0))
        # A single graph needs no batch vector, though the layer makes one.
        frame.batch = None if frame.batch is None else output[batch]


def install_frames(
    model: torch.nn.Module, owners: list[torch.nn.Module], key: str
) -> dict[int, str]:
    """Adds the hooks; returns the label of each convolution, by its id.

    Args:
        model: The model.
        owners: Those of its modules, itself among them, that lead to an activation.
        key: What tells this conversion from others.
    """
    for owner in owners:
        enter = EnterModel(owner, key, is_part=owner is not model)
        owner.register_forward_pre_hook(enter, with_kwargs=True)
        owner.register_forward_hook(leave_model, with_kwargs=True, always_call=True)
    labels: dict[int, str] = {}
    inside = ""
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        if isinstance(module, (MessagePassing, *POOLINGS)) and name:
            inside = f"{name}."
        if isinstance(module, POOLINGS):
            module.register_forward_hook(leave_pooling, with_kwargs=True)
        elif isinstance(module, MessagePassing):
            labels[id(module)] = name
            module.register_forward_pre_hook(EnterConvolution(module, name), with_kwargs=True)
    return labels


def parameter_names(module: torch.nn.Module) -> list[str]:
    if isinstance(module, GraphSequential):
        return list(module.signature.param_dict)
    parameters = inspect.signature(module.forward).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _arguments(
    names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """A call's arguments by name; a `Data` object among them stands for its contents."""
    unnamed = map(str, range(len(args) - len(names)))  # of a forward with *args
    arguments = {**dict(zip((*names, *unnamed), args, strict=False)), **kwargs}
    if not any(name in arguments for name in _EDGES):
        for value in arguments.values():
            if isinstance(value, Data):
                wanted = (*_EDGES, "x", "edge_weight", "batch")
                return {name: value[name] for name in wanted if name in value}
    return arguments


def _is_edge_index(name: str, value: Any) -> bool:
    """Whether an argument by another name can only be a graph."""
    if "hyperedge" in name or "label" in name:
        return False
    if isinstance(value, SparseTensor) or is_torch_sparse_tensor(value):
        return True
    return (
        isinstance(value, Tensor)
        and value.dtype == torch.int64
        and value.dim() == 2
        and value.size(0) == 2
    )


def _read_graph(arguments: Mapping[str, Any]) -> Graph | None:
    named = [arguments[name] for name in _EDGES if arguments.get(name) is not None]
    found = named or [v for name, v in arguments.items() if _is_edge_index(name, v)]
    if not named and len(found) != 1:  # nothing, or a guess
        return None
    edge_index = found[0]
    if isinstance(edge_index, Mapping):
        raise TypeError(
            "edge_index must belong to one graph, got a dictionary: a converted model is for one "
            "type of nodes; for several, put a GReLU for each into the model by hand."
        )
    # Of two node sets the sources: that not all of them are activated must not go unnoticed.
    x = arguments.get("x")
    x = x[0] if isinstance(x, (tuple, list)) else x
    batch = arguments.get("batch")
    rows = x if isinstance(x, Tensor) else batch
    num_nodes = rows.size(0) if isinstance(rows, Tensor) else None
    return Graph(edge_index, arguments.get("edge_weight"), num_nodes)
