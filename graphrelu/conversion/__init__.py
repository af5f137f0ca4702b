"""GReLU in a model that exists already, trained or not."""

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch_geometric.nn import HANConv, HeteroConv, HGTConv

from graphrelu.conversion.examples import run_example
from graphrelu.conversion.run import (
    MODULES,
    Children,
    Conversion,
    GReLUs,
    Place,
    Sight,
    install,
    kind_of,
)
from graphrelu.grelu import GReLU

__all__ = ["Replacement", "Replacements", "convert", "replacements"]

EXACT = ("relu", "leaky_relu")  # which a fresh GReLU is


class Replacement(NamedTuple):
    """One place of a converted model where an activation is called."""

    name: str
    before: str
    after: str  # empty where the activation stays
    reason: str = ""  # why it stays

    def __str__(self) -> str:
        what = f"-> {self.after}" if self.after else f"stays: {self.reason}"
        return f"{self.name}: {self.before} {what}"


class Replacements(list[Replacement]):
    """All of them; printed, one in a line."""

    @property
    def changed(self) -> list[Replacement]:
        return [replacement for replacement in self if replacement.after]

    @property
    def left(self) -> list[Replacement]:
        return [replacement for replacement in self if not replacement.after]

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def convert(
    model: torch.nn.Module,
    *,
    example: Any = None,
    inplace: bool = False,
    activations: Sequence[str] = EXACT,
    exclude: Sequence[str] = (),
    graph: str | None = None,
    **grelu_options: Any,
) -> torch.nn.Module:
    r"""Replaces every ReLU and LeakyReLU between the layers of a model by a
    :class:`~graphrelu.GReLU` of its own.

    The converted model is called exactly as before and runs its own :meth:`forward`; its output is
    the same to the last bit until it is trained further. Modules such as :class:`torch.nn.ReLU` and
    functions such as :func:`torch.relu` are replaced alike. Each GReLU takes the graph from the
    convolution before it, else from the model's own arguments. :func:`replacements` tells what was
    changed.

    Args:
        model (torch.nn.Module): The model.
        example (Data or tuple or dict or callable or list, optional): Arguments to run a copy of
            the model with once, or a function that runs it, to see where it calls activations; or
            a list of these. Needed where a small made-up graph does not do. (default: :obj:`None`)
        inplace (bool, optional): If :obj:`True`, converts the model itself rather than a copy.
            (default: :obj:`False`)
        activations (list of str, optional): The names of the activations to replace. No GReLU
            starts as one of :obj:`"elu"`, :obj:`"gelu"`, :obj:`"silu"` and other smooth ones: they
            become a ReLU's, and the output changes. (default: :obj:`("relu", "leaky_relu")`)
        exclude (list of str, optional): What stays: names of modules, with all that they call, or
            of places as :func:`replacements` names them. (default: :obj:`()`)
        graph (str, optional): The name of the model's argument that is the graph, where it is none
            of :obj:`edge_index`, :obj:`adj_t` and :obj:`adj`, for activations before the first
            convolution and models without :class:`~torch_geometric.nn.conv.MessagePassing`.
            (default: :obj:`None`)
        **grelu_options (optional): Further arguments of :class:`~graphrelu.GReLU`.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> model = GCN(16, 32, num_layers=2, out_channels=7)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> converted = convert(model)
        >>> torch.equal(converted(x, edge_index), model(x, edge_index))
        True
    """
    _check_arguments(model, activations, exclude, grelu_options)
    conversion = Conversion(tuple(activations), graph)
    conversion.sights = {}
    probe = copy.deepcopy(model)
    install(probe, conversion)
    run_example(probe, example)
    sights, conversion.sights = conversion.sights, None
    _check_exclude(model, sights, exclude)
    reasons = {key: _reason(*key, sights[key], activations, exclude) for key in sights}
    report = Replacements(
        _replacement(place, sight, reasons[owner, place])
        for (owner, place), sight in sights.items()
    )
    report += _never_called(model, {place.where for _, place in sights})
    if not report.changed and not any(isinstance(module, GReLU) for module in model.modules()):
        raise ValueError(
            f"model must have an activation that a GReLU can replace, got "
            f"{type(model).__name__}: {'; '.join(map(str, report)) or 'it calls none'}."
        )
    converted = model if inplace else copy.deepcopy(model)
    install(converted, conversion)
    modules = dict(converted.named_modules(remove_duplicate=False))
    for (name, place), sight in sights.items():
        owner = modules[name]
        conversion.places[name, place] = None
        if not reasons[name, place]:
            if not hasattr(owner, "grelus"):
                owner._modules = Children(owner._modules)
                owner.grelus = GReLUs()
            conversion.places[name, place] = len(owner.grelus)
            options = {"negative_slope": place.slope, **grelu_options}
            grelu = GReLU(place.width, **options).to(sight.like).train(owner.training)
            owner.grelus.append(grelu)
            conversion.calls_functions |= sight.module is None
    vars(converted)["_replacements"] = report
    return converted


def replacements(model: torch.nn.Module) -> Replacements:
    r"""What :func:`convert` changed in a model and what it left, with the reason; to be printed.

    Args:
        model (torch.nn.Module): A converted model, or one that contains converted models.
    """
    modules = [(n, m) for n, m in model.named_modules() if "_replacements" in vars(m)]
    if not modules:
        raise ValueError("model must be a converted one: call graphrelu.convert on it first.")
    return Replacements(
        replacement._replace(name=f"{name}.{replacement.name}" if name else replacement.name)
        for name, module in modules
        for replacement in vars(module)["_replacements"]
    )


def _check_arguments(
    model: Any, activations: Any, exclude: Any, grelu_options: dict[str, Any]
) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("model must not be compiled yet, got a ScriptModule: convert it first.")
    for argument, value in (("activations", activations), ("exclude", exclude)):
        if isinstance(value, str) or not all(isinstance(name, str) for name in value):
            raise TypeError(f"{argument} must be a list of names, got {value!r}.")
    names = [name for name in MODULES.values() if name != "prelu"]
    for name in activations:
        if name not in names:
            raise ValueError(f"activations must be of {', '.join(names)}, got {name!r}.")
    for module in model.modules():
        kind = type(module).__name__
        is_wrapped = isinstance(module, (DataParallel, DistributedDataParallel))
        if is_wrapped or hasattr(module, "_orig_mod"):
            raise ValueError(
                f"model must not be compiled or wrapped yet, got a {kind} in it: convert it first."
            )
        if "_replacements" in vars(module):
            raise ValueError(
                "model must not be converted already: convert the whole of it at once."
            )
        if isinstance(module, (HeteroConv, HGTConv, HANConv, torch.fx.GraphModule)):
            raise ValueError(
                f"model must be for one type of nodes and not traced, got a {kind} in it: for "
                "several types, use graphrelu.HeteroGReLU."
            )
        if hasattr(module, "grelus"):
            raise ValueError(
                f"model must not have an attribute grelus, which is where GReLUs are put, got a "
                f"{kind} with one."
            )
    for name in ("channels", "negative_slope"):
        if name in grelu_options:
            raise TypeError(f"{name} must not be given: it follows from the activation replaced.")
    GReLU(1, **grelu_options)  # says what is wrong with an option
    for name, value in (("K", 1), ("mode", "paper")):
        if grelu_options.get(name) == value:
            raise ValueError(
                f"{name} must not be {value!r}, with which a fresh GReLU is no ReLU: build the "
                "model with such a GReLU instead."
            )


def _check_exclude(model: torch.nn.Module, sights: Any, exclude: Sequence[str]) -> None:
    names = {name for name, _ in model.named_modules(remove_duplicate=False)}
    for name in exclude:
        if not name or name not in names | {str(place) for _, place in sights}:
            raise ValueError(
                f"exclude must name modules of the model or places of activations, got {name!r}."
            )


def _reason(
    owner: str, place: Place, sight: Sight, activations: Sequence[str], exclude: Sequence[str]
) -> str:
    """Why an activation stays; empty where it does not."""
    inside = [f"{name}." for name in (owner, place.where)]
    if str(place) in exclude or any(i.startswith(f"{name}.") for name in exclude for i in inside):
        return "it is excluded"
    if place.activation == "prelu":
        return "its slope is a parameter"
    if place.activation not in activations:
        reason = f"activations does not name {place.activation!r}"
        return reason if place.activation in EXACT else f"{reason}, which no GReLU starts as"
    return "its slope is above 1" if place.slope > 1 else sight.problem


def _never_called(model: torch.nn.Module, called: set[str]) -> Replacements:
    """The activations that the run did not see, with the reason."""
    found, inside = Replacements(), {"": ""}
    names: dict[int, set[str]] = defaultdict(set)
    for name, module in model.named_modules(remove_duplicate=False):
        names[id(module)].add(name)
    for name, module in model.named_modules():
        outer = max((i for i in inside if f"{name}.".startswith(f"{i}.")), key=len, default="")
        if name and kind_of(module, name) in ("convolution", "closed"):
            inside.setdefault(name, type(module).__name__)
        is_called = any(f"{c}.".startswith(f"{n}.") for c in called for n in names[id(module)])
        if not isinstance(module, tuple(MODULES)) or is_called:
            continue
        reason = "the run on the example does not call it"
        if inside[outer]:
            reason = f"it is a part of {outer}, a {inside[outer]}"
        elif type(module) not in MODULES:
            reason = f"its class {type(module).__name__} may compute something else"
        found.append(Replacement(name, repr(module), "", reason))
    return found


def _replacement(place: Place, sight: Sight, reason: str) -> Replacement:
    slope = f", negative_slope={place.slope:g}" if place.slope else ""
    before = f"{place.activation}()" if sight.module is None else repr(sight.module)
    after = "" if reason else f"GReLU({place.width}{slope})"
    return Replacement(str(place), before, after, reason)
