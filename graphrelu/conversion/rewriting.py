"""Every call of an activation gets a module of its own, which can then be replaced."""

import copy
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from graphrelu.conversion.activation import can_be_replaced
from graphrelu.conversion.classes import converted_class
from graphrelu.conversion.tracing import (
    CannotTrace,
    input_is_used_after,
    source_of,
    trace_for_rewriting,
)

# By function or, for methods of tensors, by name.
_RECTIFIERS: dict[Any, type[torch.nn.Module]] = {
    F.relu: torch.nn.ReLU,
    torch.relu: torch.nn.ReLU,
    torch.relu_: torch.nn.ReLU,
    "relu": torch.nn.ReLU,
    "relu_": torch.nn.ReLU,
    F.leaky_relu: torch.nn.LeakyReLU,
}
_SMOOTH: dict[Any, type[torch.nn.Module]] = {
    F.elu: torch.nn.ELU,
    F.celu: torch.nn.CELU,
    F.selu: torch.nn.SELU,
    F.gelu: torch.nn.GELU,
    F.silu: torch.nn.SiLU,
    F.mish: torch.nn.Mish,
    F.softplus: torch.nn.Softplus,
}
RECTIFIER_NAMES = ("relu", "relu_", "leaky_relu")
SMOOTH_NAMES = ("elu", "celu", "selu", "gelu", "silu", "mish", "softplus")


def functional_calls(module: torch.nn.Module, names: tuple[str, ...]) -> list[str]:
    """Which of `names` the code of the module's class mentions, its children's names aside."""
    mentioned: set[str] = set()
    for kind in type(module).__mro__:
        if not kind.__module__.startswith("torch.nn."):
            for value in vars(kind).values():
                if isinstance(value, types.FunctionType):
                    mentioned.update(_names(value.__code__))
    children = dict(module.named_children())
    return [name for name in names if name in mentioned and name not in children]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def attributes_to_modules(module: torch.nn.Module, force: bool) -> None:
    """An activation that is kept as a function, such as `self.act = F.relu`, as a module."""
    functions = {**_RECTIFIERS, **_SMOOTH} if force else _RECTIFIERS
    for name, value in list(vars(module).items()):
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) and (
            value in functions
        ):
            setattr(module, name, functions[value]())


def rewrite(module: torch.nn.Module, force: bool, excluded: list[str]) -> None:
    """Gives the module a `forward` in which each call of an activation is that of a child of its
    own; nothing else changes, and nothing at all where that is so already.

    Args:
        module: The module; its class becomes a subclass of what it was.
        force: Whether smooth activations count.
        excluded: The names of children that stay shared.
    """
    functions = {**_RECTIFIERS, **_SMOOTH} if force else _RECTIFIERS
    graph = trace_for_rewriting(module)
    seen: set[str] = set()
    changed = False
    for node in list(graph.nodes):
        if (
            node.op in ("call_function", "call_method")
            and node.target in functions
            and len(node.all_input_nodes) == 1  # no computed slope
        ):
            options = {key: value for key, value in node.kwargs.items() if key != "input"}
            activation = functions[node.target](*node.args[1:], **options)
            in_place = node.target in (torch.relu_, "relu_") or options.get("inplace", False)
            if in_place and input_is_used_after(node):
                raise CannotTrace("its forward uses the input of an activation that overwrites it")
        elif node.op == "call_module" and node.target in seen:
            activation = copy.deepcopy(module.get_submodule(node.target))
        else:
            if node.op == "call_module":
                child = module.get_submodule(node.target)
                if can_be_replaced(child, force) and node.target not in excluded:
                    seen.add(node.target)
            continue
        name = _free_name(module, type(activation).__name__.lower())
        module.add_module(name, activation.train(module.training))
        with graph.inserting_before(node):
            x = node.args[0] if node.args else node.kwargs["input"]
            node.replace_all_uses_with(graph.call_module(name, (x,)))
        graph.erase_node(node)
        changed = True
    if changed:
        kind: Any = type(module)
        module.__class__ = converted_class(kind, source_of(graph))


def _free_name(module: torch.nn.Module, name: str) -> str:
    number = 1
    while hasattr(module, f"{name}{number}"):
        number += 1
    return f"{name}{number}"
