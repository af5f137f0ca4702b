"""How many channels an activation sees, and whether it still sees nodes, without running it."""

import operator
from typing import Any, NamedTuple

import torch
from torch_geometric.nn import Aggregation, MessagePassing
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.nn.pool import glob

from graphrelu.conversion.activation import ACTIVATIONS
from graphrelu.conversion.frames import POOLINGS
from graphrelu.conversion.tracing import input_is_used_after, trace

# Functions and methods whose result is as wide as their first argument.
_ELEMENTWISE = {"add", "iadd", "sub", "mul", "truediv", "neg", "dropout", "normalize", "contiguous"}
_ELEMENTWISE |= {"clone", "float", "relu", "elu", "leaky_relu", "getattr", "getitem", "layer_norm"}
# Attributes that tell how wide a module's result is.
_WIDTHS = ("out_channels", "out_features", "num_features", "normalized_shape", "channels")
# Modules whose result is as wide as their argument: they keep no width of their own.
_SAME_WIDTH = (*ACTIVATIONS, torch.nn.Identity, torch.nn.Dropout, torch.nn.AlphaDropout)


class Value(NamedTuple):
    """What is known of a tensor."""

    width: int | None = None
    pooled: bool = False  # whether it has one row per graph
    layer: torch.nn.Module | None = None  # the last one with parameters


def inputs_of_activations(module: torch.nn.Module) -> dict[str, Value]:
    """For each activation that `module.forward` calls, by its name in `module`, its input."""
    seen: dict[str, Value] = {}
    if isinstance(module, GraphSequential):
        _walk_sequential(module, seen)
    else:
        _walk_trace(module, seen)
    return seen


def _walk_sequential(module: Any, seen: dict[str, Value]) -> None:
    # PyG sets `forward` on the instance, where torch.fx does not look.
    values: dict[str, Value] = {}
    for child in module._children:
        inputs = [values.get(name, Value()) for name in child.param_names]
        function = getattr(module, child.name)
        if isinstance(function, torch.nn.Module):
            out = _after(child.name, function, inputs, seen)
        else:
            out = _after_function(function, getattr(function, "__name__", ""), inputs)
        values.update(dict.fromkeys(child.return_names, out))


def _walk_trace(module: torch.nn.Module, seen: dict[str, Value]) -> None:
    values: dict[torch.fx.Node, Value] = {}
    for node in trace(module).nodes:
        inputs = [values[argument] for argument in node.all_input_nodes]
        if node.op == "call_module":
            child = module.get_submodule(node.target)
            values[node] = _after(node.target, child, inputs, seen)
            in_place = isinstance(child, ACTIVATIONS) and getattr(child, "inplace", False)
            if in_place and input_is_used_after(node):
                raise ValueError(
                    f"model must not use the input of {node.target!r} again, which overwrites it "
                    "as a GReLU does not: make it one with inplace=False first."
                )
        elif node.op in ("call_function", "call_method"):
            name = node.target if node.op == "call_method" else node.target.__name__
            values[node] = _after_function(node.target, name, inputs)
        else:
            values[node] = Value()


def _after(
    name: str, module: torch.nn.Module, inputs: list[Value], seen: dict[str, Value]
) -> Value:
    value = inputs[0] if inputs else Value()
    if isinstance(module, torch.nn.Sequential):
        for key, child in module.named_children():
            value = _after(f"{name}.{key}", child, [value], seen)
        return value
    if isinstance(module, Aggregation):
        return value._replace(pooled=True)
    if isinstance(module, ACTIVATIONS):
        seen[name] = value
    if isinstance(module, _SAME_WIDTH):
        return value
    has_parameters = next(module.parameters(), None) is not None
    width = _out_width(module)
    propagates = isinstance(module, MessagePassing) and not has_parameters
    keeps = propagates or isinstance(module, POOLINGS) or "Norm" in type(module).__name__
    if width is None and keeps:
        width = value.width
    layer = module if has_parameters else value.layer
    return Value(width, any(v.pooled for v in inputs), layer)


def _after_function(function: Any, name: str, inputs: list[Value]) -> Value:
    if not inputs:
        return Value()
    if getattr(function, "__module__", "") == glob.__name__:
        return inputs[0]._replace(pooled=True)
    if function is operator.getitem and len(inputs) == 2:
        return inputs[0]._replace(pooled=False)  # rows of graphs, looked up for each node
    known = next((value for value in inputs if value.width is not None), inputs[0])
    pooled = any(value.pooled for value in inputs)
    return Value(known.width if name in _ELEMENTWISE else None, pooled, known.layer)


def _out_width(module: Any) -> int | None:
    for name in _WIDTHS:
        width = getattr(module, name, None)
        if isinstance(width, tuple) and len(width) == 1:
            width = width[0]  # of LayerNorm
        if isinstance(width, int) and width > 0:
            concatenates = getattr(module, "concat", False) is True
            return width * getattr(module, "heads", 1) if concatenates else width
    network = getattr(module, "nn", None)
    if isinstance(module, MessagePassing) and isinstance(network, torch.nn.Module):
        return _last_width(network)
    if "Norm" in type(module).__name__ and isinstance(getattr(module, "in_channels", None), int):
        return int(module.in_channels)  # PyG's normalisations
    children = list(module.children())
    return _out_width(children[0]) if len(children) == 1 else None


def _last_width(module: torch.nn.Module) -> int | None:
    """Of the last layer of a network, as in GIN."""
    widths = [_out_width(child) for child in module.modules() if not list(child.children())]
    return next((width for width in reversed(widths) if width is not None), None)
