"""The graph among the arguments of a call."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphrelu.context import Graph

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_EDGES = ("edge_index", "adj_t", "adj")


def parameter_names(module: torch.nn.Module, method: str = "forward") -> list[str]:
    """The positional arguments of a method."""
    if isinstance(module, GraphSequential) and method == "forward":
        return list(module.signature.param_dict)
    parameters = inspect.signature(getattr(module, method)).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def read(names: list[str], args: Args, kwargs: Kwargs, named: str | None, guess: bool) -> Graph:
    """The graph and the batch vector that a call was given, each None where it was given none.

    The graph is the argument that is `named`, else one of the usual names, else, for a `guess`, the
    only one that looks like a graph. `names` are those of the positional arguments.
    """
    unnamed = [f"*{i}" for i in range(len(args) - len(names))]  # of a forward with *args
    arguments = {**dict(zip((*names, *unnamed), args, strict=False)), **kwargs}
    batch_size = arguments.get("batch_size")
    data = next((value for value in arguments.values() if isinstance(value, Data)), None)
    if data is not None:
        batch_size = data.num_graphs if isinstance(data, Batch) else None
        wanted = (*_EDGES, named or "x", "x", "edge_weight", "batch")
        arguments = {name: data[name] for name in wanted if name in data}
    batch = arguments.get("batch")
    if not isinstance(batch, Tensor) or batch.is_floating_point() or batch.dim() != 1:
        batch, batch_size = None, None
    weight = arguments.get("edge_weight")
    if isinstance(weight, Tensor):
        weight = weight.view(-1) if weight.dim() == 2 and weight.size(1) == 1 else weight
        weight = weight if weight.is_floating_point() else weight.float()
    edge_index = _edge_index(arguments, named, guess)
    return Graph(edge_index, weight, batch, batch_size, _num_nodes(arguments, batch))


def _edge_index(arguments: Mapping[str, Any], named: str | None, guess: bool) -> Any:
    if named is not None and named in arguments:
        return arguments[named]
    found = [arguments[name] for name in _EDGES if _is_graph(arguments.get(name))]
    if not found and guess:
        others = [n for n in arguments if "hyperedge" not in n and "label" not in n]
        found = [arguments[name] for name in others if _is_graph(arguments[name])]
        found = found if len(found) == 1 else []  # of two any would be a guess
    return found[0] if found else None


def _is_graph(value: Any) -> bool:
    if not isinstance(value, Tensor) or is_torch_sparse_tensor(value):
        return isinstance(value, (Tensor, SparseTensor))
    return value.dtype in (torch.int64, torch.int32) and value.dim() == 2 and value.size(0) == 2


def _num_nodes(arguments: Mapping[str, Any], batch: Tensor | None) -> int | None:
    """None where it is not known, and where sources and targets are two sets of nodes."""
    x = arguments.get("x", next(iter(arguments.values()), None))
    if isinstance(x, (tuple, list)):
        sizes = [part.size(0) for part in x if isinstance(part, Tensor)]
        return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] else None
    if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
        return x.size(0) if x.dim() == 2 else None
    return None if batch is None else batch.size(0)
