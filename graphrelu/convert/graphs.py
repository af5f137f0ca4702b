"""The graph among the arguments of a call."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor

from graphrelu.context import Graph

_EDGES = ("edge_index", "adj_t", "adj")


class Found(NamedTuple):
    """What the arguments of a call tell."""

    graph: Graph | None = None
    batch: Tensor | None = None
    batch_size: int | None = None


def parameter_names(module: torch.nn.Module, method: str = "forward") -> list[str]:
    """The positional arguments of a method."""
    if isinstance(module, GraphSequential) and method == "forward":
        return list(module.signature.param_dict)
    parameters = inspect.signature(getattr(module, method)).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def read(
    names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any], named: str | None = None
) -> Found:
    """The graph and the batch vector that a call was given.

    Args:
        names: The positional arguments of what was called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        named: The name of the argument that is the graph, where it is known.
    """
    unnamed = [f"*{i}" for i in range(len(args) - len(names))]  # of a forward with *args
    arguments = {**dict(zip((*names, *unnamed), args, strict=False)), **kwargs}
    batch_size = arguments.get("batch_size")
    for value in arguments.values():
        if isinstance(value, Data):
            batch_size = value.num_graphs if isinstance(value, Batch) else None
            wanted = (*_EDGES, named or "x", "x", "edge_weight", "batch")
            arguments = {name: value[name] for name in wanted if name in value}
            break
    edge_index = _edge_index(arguments, named)
    batch = arguments.get("batch")
    if not isinstance(batch, Tensor) or batch.is_floating_point() or batch.dim() != 1:
        batch, batch_size = None, None
    if edge_index is None:
        return Found(None, batch, batch_size)
    weight = arguments.get("edge_weight")
    if isinstance(weight, Tensor):
        weight = weight.view(-1) if weight.dim() == 2 and weight.size(1) == 1 else weight
        weight = weight if weight.is_floating_point() else weight.float()
    graph = Graph(edge_index, weight, num_nodes=_num_nodes(arguments, batch))
    return Found(graph, batch, batch_size)


def _edge_index(arguments: Mapping[str, Any], named: str | None) -> Any:
    if any(isinstance(value, HeteroData) for value in arguments.values()) or any(
        isinstance(arguments.get(name), Mapping) for name in ("x", *_EDGES)
    ):
        raise TypeError(
            "edge_index must belong to one graph, got one for each type of edges: a converted "
            "model is for one type of nodes."
        )
    if named is not None and named in arguments:
        return arguments[named]
    for name in _EDGES:
        if _looks_like_edges(arguments.get(name)):
            return arguments[name]
    others = [
        value
        for name, value in arguments.items()
        if "hyperedge" not in name and "label" not in name and _looks_like_edges(value)
    ]
    return others[0] if len(others) == 1 else None  # of two any would be a guess


def _looks_like_edges(value: Any) -> bool:
    if isinstance(value, SparseTensor):
        return True
    if not isinstance(value, Tensor):
        return False
    if is_torch_sparse_tensor(value):
        return True
    return value.dtype in (torch.int64, torch.int32) and value.dim() == 2 and value.size(0) == 2


def _num_nodes(arguments: Mapping[str, Any], batch: Tensor | None) -> int | None:
    """None where it is not known, and where sources and targets are two sets of nodes."""
    x = arguments.get("x")
    if x is None:
        x = next(iter(arguments.values()), None)
    if isinstance(x, (tuple, list)):
        sizes = [part.size(0) for part in x if isinstance(part, Tensor)]
        return sizes[0] if len(sizes) == 2 and sizes[0] == sizes[1] else None
    if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
        return x.size(0) if x.dim() == 2 else None
    return batch.size(0) if batch is not None else None
