"""Which activations of a model are between its layers."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch.nn import ModuleDict, ModuleList
from torch_geometric.nn import MessagePassing
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.nn.models.basic_gnn import BasicGNN

from graphrelu.conversion.activation import (
    ACTIVATIONS,
    SMOOTH,
    reason_to_stay,
)
from graphrelu.conversion.frames import POOLINGS
from graphrelu.conversion.report import Replacement
from graphrelu.conversion.rewriting import (
    RECTIFIER_NAMES,
    SMOOTH_NAMES,
    attributes_to_modules,
    functional_calls,
    rewrite,
)
from graphrelu.conversion.tracing import CannotTrace

_CONTAINERS = (torch.nn.Sequential, ModuleList, ModuleDict)


def is_plain_basic_gnn(module: torch.nn.Module) -> bool:
    return isinstance(module, BasicGNN) and type(module).forward is BasicGNN.forward


def ancestors(model: torch.nn.Module, name: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules around a module, the nearest first."""
    while name:
        name = name.rpartition(".")[0]
        yield name, model.get_submodule(name)


def caller(model: torch.nn.Module, name: str) -> tuple[str, torch.nn.Module]:
    """The module whose `forward` calls the named one; the model itself may be a container."""
    around = list(ancestors(model, name))
    return next((pair for pair in around if not isinstance(pair[1], _CONTAINERS)), around[-1])


def callers(model: torch.nn.Module, names: list[str]) -> list[torch.nn.Module]:
    """All modules whose call leads to one of the named ones, the model itself among them."""
    found = {
        id(module): module
        for name in names
        for around, module in ancestors(model, name)
        if not around or not isinstance(module, _CONTAINERS)
    }
    return list(found.values())


def _is_within(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def _surrounding(model: torch.nn.Module, name: str) -> str:
    """What an activation is a part of that is no stack of layers; empty if nothing."""
    for _, module in ancestors(model, name):
        if isinstance(module, (MessagePassing, *POOLINGS)) or type(module).__name__ == "MLP":
            return type(module).__name__
    return ""


def _activations(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """All activations; one object under several names, each of which may be replaced, is listed
    under each."""
    seen: set[tuple[int, str]] = set()
    for name, module in list(model.named_modules(remove_duplicate=False)):
        parent, _, attribute = name.rpartition(".")
        if isinstance(module, ACTIVATIONS) and name:
            home = (id(model.get_submodule(parent)), attribute)
            if home not in seen:
                yield name, module
            seen.add(home)


def _reason(
    model: torch.nn.Module,
    name: str,
    force: bool,
    include: Sequence[str],
    exclude: Sequence[str],
) -> str:
    """Why an activation stays; empty where it is to be replaced."""
    if _is_within(name, exclude):
        return "it is excluded"
    surrounding = _surrounding(model, name)
    if surrounding and not _is_within(name, include):
        return f"it is inside {surrounding}; include=[{name!r}] replaces it all the same"
    return reason_to_stay(model.get_submodule(name), force)


def separate(
    model: torch.nn.Module, force: bool, include: Sequence[str], exclude: Sequence[str]
) -> list[Replacement]:
    """Makes a module of its own out of every call of an activation; returns what has to stay."""
    left = []
    for name, module in list(model.named_modules()):
        if _is_within(name, exclude) or isinstance(module, MessagePassing):
            continue
        if _surrounding(model, f"{name}.x") and not _is_within(name, include):
            continue
        attributes_to_modules(module, force)
        if is_plain_basic_gnn(module) or isinstance(module, (GraphSequential, *_CONTAINERS)):
            continue
        if type(module).__module__.startswith("torch.nn."):
            continue
        where = name or type(module).__name__
        for function in [] if force else functional_calls(module, SMOOTH_NAMES):
            reason = reason_to_stay(SMOOTH[0](), force)
            left.append(Replacement(where, f"{function}()", "", reason))
        children = [child for child, _ in module.named_modules() if child]
        dot = f"{name}." if name else ""
        excluded = [child for child in children if _is_within(dot + child, exclude)]
        try:
            rewrite(module, force, excluded)
        except CannotTrace as problem:
            # Otherwise an example shows which call of a shared module is which.
            names = (*RECTIFIER_NAMES, *SMOOTH_NAMES) if force else RECTIFIER_NAMES
            if functional_calls(module, names):
                raise ValueError(
                    "model must call its activations as modules, such as torch.nn.ReLU(), where "
                    f"functional calls cannot be found: those of {where!r} cannot because "
                    f"{problem}."
                ) from problem
    seen: set[int] = set()
    for name, module in _activations(model):
        if id(module) in seen and not _reason(model, name, force, include, exclude):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, copy.deepcopy(module))
        seen.add(id(module))
    return left


def select(
    model: torch.nn.Module, force: bool, include: Sequence[str], exclude: Sequence[str]
) -> tuple[list[str], list[Replacement]]:
    """The names of the activations to replace, and those that stay."""
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for argument, given in (("include", include), ("exclude", exclude)):
        for name in given:
            if name not in names:
                raise ValueError(f"{argument} must name modules of the model, got {name!r}.")
    chosen, left = [], []
    for name, module in _activations(model):
        reason = _reason(model, name, force, include, exclude)
        if reason:
            left.append(Replacement(name, repr(module), "", reason))
        else:
            chosen.append(name)
    return chosen, left
