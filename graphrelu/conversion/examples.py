"""Runs a model once, on an example that was given or made up, to see where it calls activations."""

import contextlib
import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch_geometric.data import Data
from torch_geometric.nn import Sequential as GraphSequential

from graphrelu.conversion.graphs import parameter_names

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def run_example(model: torch.nn.Module, example: Any) -> None:
    """Runs the model in its own mode, then in the other one; give it a copy, which may change."""
    examples = example if isinstance(example, list) else [example]
    calls = [_made_up(model) if one is None else _given(model, one) for one in examples]
    devices = {p.get_device() for p in model.parameters() if p.is_cuda}
    with torch.random.fork_rng(devices=devices):
        for call in calls:
            call()
        model.train(not model.training)
        for call in calls:
            with contextlib.suppress(Exception):  # one graph may be too few to train with
                call()


def call_with(model: torch.nn.Module, data: Data) -> Any:
    """Calls a model with what its arguments name of a graph, or with the object as a whole."""
    names = parameter_names(model)
    if "edge_index" in names or "adj_t" in names:
        return model(**{name: data[name] for name in names if name in data})
    return model(data)


def _given(model: torch.nn.Module, example: Any) -> Callable[[], Any]:
    """A model may write into its arguments, so that it gets copies."""
    if isinstance(example, Data):
        return lambda: call_with(model, example.clone())
    if isinstance(example, tuple):
        return lambda: model(*tree_map(_copied, example))
    if isinstance(example, dict):
        return lambda: model(**tree_map(_copied, example))
    if callable(example) and not isinstance(example, torch.nn.Module):
        return lambda: example(model)
    raise TypeError(
        "example must be a Data object, a tuple or dict of the model's arguments, a function that "
        f"calls the model, or a list of these, got {type(example).__name__}."
    )


def _copied(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else copy.copy(value)


def _made_up(model: torch.nn.Module) -> Callable[[], Any]:
    """Three paths of 13 nodes together, for models that are called with `x` and `edge_index`, or
    with `data`; what has a default keeps it."""
    batch = torch.tensor([0] * 6 + [1] * 4 + [2] * 3)
    first = torch.arange(12)[batch[1:] == batch[:-1]]
    edge_index = torch.stack([first, first + 1])
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    width = _input_width(model)
    x = torch.linspace(-1, 1, 13 * width).view(13, width).to(like.dtype)
    weight = torch.ones(edge_index.size(1), dtype=like.dtype)
    data = Data(x=x, edge_index=edge_index, edge_weight=weight, batch=batch).to(like.device)
    parameters = inspect.signature(model.forward).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind in _NAMED]
    if isinstance(model, GraphSequential):
        required = parameter_names(model)
    unknown = [name for name in required if name not in data]
    if unknown and len(required) > 1:
        raise _example_needed(model, f"its argument {unknown[0]!r} is unknown")

    def call() -> Any:
        own = data.clone()
        try:
            return model(own) if unknown else model(**{name: own[name] for name in required})
        except Exception as error:
            name = type(error).__name__
            raise _example_needed(model, f"on a small graph it raises {name}") from error

    return call


def _input_width(model: torch.nn.Module) -> int:
    """Of the model, or of its first layer."""
    for module in model.modules():
        for name in ("in_channels", "in_features", "dim_in"):
            width = getattr(module, name, None)
            if isinstance(width, int) and width > 0:
                return width
            if isinstance(width, int):
                raise _example_needed(model, "its input has no width yet")
    raise _example_needed(model, "it tells no width of its input")


def _example_needed(model: torch.nn.Module, reason: str) -> ValueError:
    return ValueError(
        "example must be given, such as example=data or example=(x, edge_index), as "
        f"{type(model).__name__} does not show where it calls activations: {reason}."
    )
