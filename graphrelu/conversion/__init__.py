"""GReLU in a model that exists already, trained or not."""

import copy
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch_geometric.nn import EdgePooling, HANConv, HeteroConv, HGTConv, MessagePassing
from torch_geometric.nn import Sequential as GraphSequential
from torch_geometric.nn.pool import ASAPooling, PANPooling, SAGPooling, TopKPooling

from graphrelu.conversion.activations import EXACT, MODULES
from graphrelu.conversion.calls import (
    Activation,
    Attention,
    Call,
    Closed,
    Convolution,
    Owner,
    Pooling,
    Template,
    set_call,
)
from graphrelu.conversion.examples import run_example
from graphrelu.conversion.report import Replacement, Replacements
from graphrelu.conversion.run import Conversion, GReLUs, Place, Sight
from graphrelu.grelu import GReLU

__all__ = ["Replacement", "Replacements", "convert", "replacements"]

_POOLINGS = (TopKPooling, SAGPooling, ASAPooling, PANPooling, EdgePooling)
_ATTENTION = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
# The classes of these packages have no methods that are the model's own.
_FRAMEWORKS = ("torch", "pytorch_lightning", "lightning")


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
    conversion.sights = []
    probe = copy.deepcopy(model)
    _install(probe, conversion)
    run_example(probe, example)
    sights, conversion.sights = conversion.sights, None
    _check_exclude(model, sights, exclude)
    chosen = _choose(sights, activations, exclude, conversion.report)
    has_grelu = any(isinstance(module, GReLU) for module in model.modules())
    if not conversion.report.changed and not has_grelu:
        found = "; ".join(map(str, conversion.report)) or "it calls none"
        raise ValueError(
            f"model must have an activation that a GReLU can replace, got "
            f"{type(model).__name__}: {found}."
        )
    converted = model if inplace else copy.deepcopy(model)
    _install(converted, conversion)
    modules = dict(converted.named_modules())
    for owner, places in chosen.items():
        grelus = GReLUs()
        for place, sight in places.items():
            grelus.places[place] = None if sight is None else len(grelus)
            if sight is not None:
                grelus.append(_grelu(sight, modules[owner].training, grelu_options))
                conversion.calls_functions |= sight.is_function
        modules[owner].grelus = grelus
    vars(converted)["_conversion"] = conversion
    return converted


def replacements(model: torch.nn.Module) -> Replacements:
    r"""What :func:`convert` changed in a model and what it left, with the reason; to be printed.

    Args:
        model (torch.nn.Module): A converted model, or one that contains converted models.
    """
    found = Replacements()
    conversions = list(_conversions(model))
    for prefix, conversion in conversions:
        dot = f"{prefix}." if prefix else ""
        found += [r._replace(name=dot + r.name) for r in conversion.report]
    if not conversions:
        raise ValueError("model must be a converted one: call graphrelu.convert on it first.")
    return found


def _conversions(model: torch.nn.Module) -> Iterator[tuple[str, Conversion]]:
    for name, module in model.named_modules():
        if "_conversion" in vars(module):
            yield name, vars(module)["_conversion"]


def _check_arguments(
    model: Any, activations: Any, exclude: Any, grelu_options: dict[str, Any]
) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    wrappers = (DataParallel, DistributedDataParallel, torch.jit.ScriptModule)
    if hasattr(model, "_orig_mod") or isinstance(model, wrappers):
        raise ValueError(
            f"model must not be compiled or wrapped yet, got {type(model).__name__}: convert it "
            "first."
        )
    for argument, value in (("activations", activations), ("exclude", exclude)):
        if isinstance(value, str) or not all(isinstance(name, str) for name in value):
            raise TypeError(f"{argument} must be a list of names, got {value!r}.")
    names = [name for name in MODULES.values() if name != "prelu"]
    for name in activations:
        if name not in names:
            raise ValueError(f"activations must be of {', '.join(names)}, got {name!r}.")
    if next(_conversions(model), None) is not None:
        raise ValueError("model must not be converted already: convert the whole of it at once.")
    for module in model.modules():
        if isinstance(module, (HeteroConv, HGTConv, HANConv)):
            raise ValueError(
                f"model must be for one type of nodes, got a {type(module).__name__} in it."
            )
        if hasattr(module, "grelus"):
            raise ValueError(
                f"model must not have an attribute grelus, which is where GReLUs are put, got a "
                f"{type(module).__name__} with one."
            )
    for name in ("channels", "device", "negative_slope"):
        if name in grelu_options:
            raise TypeError(f"{name} must not be given: it follows from the activation replaced.")
    GReLU(1, **grelu_options)  # says what is wrong with an option
    for name, value in (("K", 1), ("mode", "paper")):
        if grelu_options.get(name) == value:
            raise ValueError(
                f"{name} must not be {value!r}, with which a fresh GReLU is no ReLU: build the "
                "model with such a GReLU instead."
            )


def _check_exclude(model: torch.nn.Module, sights: list[Sight], exclude: Sequence[str]) -> None:
    names = {name for name, _ in model.named_modules(remove_duplicate=False)}
    for name in exclude:
        if not name or name not in names | {str(sight.place) for sight in sights}:
            raise ValueError(
                f"exclude must name modules of the model or places of activations, got {name!r}."
            )


def _install(model: torch.nn.Module, conversion: Conversion) -> None:
    """Puts a call before the methods of all modules that matter."""
    closed = " "  # the module that all of what follows is inside of; no name starts so
    for name, module in list(model.named_modules()):
        kind: type[Call] | None = None
        is_inside = f"{name}.".startswith(closed)
        if isinstance(module, _ATTENTION):
            kind = Attention
        elif is_inside or hasattr(type(module), "__deepcopy__"):
            continue  # a class that copies itself would lose the call
        elif type(module) in MODULES:
            kind = Activation
        elif isinstance(module, GReLU):
            kind = Closed
        elif isinstance(module, (MessagePassing, *_POOLINGS)) and name:
            kind = Pooling if isinstance(module, _POOLINGS) else Convolution
        elif not type(module).__module__.startswith("torch."):
            for method in _own_methods(module):
                set_call(module, Owner(module, method, name, conversion))
            if isinstance(module, GraphSequential):
                set_call(module, Template(module, "_set_jittable_template", name, conversion))
        elif any(True for _ in module.parameters(recurse=False)):
            kind = Call
        if isinstance(module, torch.jit.ScriptModule):
            kind, closed = None, f"{name}."
        if kind is not None:
            set_call(module, kind(module, "forward", name, conversion))
            if issubclass(kind, Closed) and not is_inside:
                closed = f"{name}."


def _own_methods(module: torch.nn.Module) -> list[str]:
    """The methods that a model's own classes define, which may call activations."""
    names = {"forward"}
    for cls in type(module).__mro__:
        if cls.__module__.split(".")[0] not in (*_FRAMEWORKS, "builtins"):
            names |= {name for name, value in vars(cls).items() if isinstance(value, FunctionType)}
    return sorted(
        name
        for name in names
        if name == "forward" or not (name.startswith("__") or hasattr(torch.nn.Module, name))
    )


def _choose(
    sights: list[Sight],
    activations: Sequence[str],
    exclude: Sequence[str],
    report: Replacements,
) -> dict[str, dict[Place, Sight | None]]:
    """For each module, the places of its activations, with nothing where one stays."""
    chosen: dict[str, dict[Place, Sight | None]] = {}
    for owner, place in dict.fromkeys((sight.owner, sight.place) for sight in sights):
        own = [sight for sight in sights if (sight.owner, sight.place) == (owner, place)]
        reason = next((sight.problem for sight in own if sight.problem), "")
        if place.slope > 1:
            reason = "its slope is above 1"
        if place.activation == "prelu":
            reason = "its slope is a parameter"
        elif place.activation not in activations:
            reason = f"activations does not name {place.activation!r}"
            reason += "" if place.activation in EXACT else ", which no GReLU starts as"
        if _is_excluded(owner, place, exclude):
            reason = "it is excluded"
        chosen.setdefault(owner, {})[place] = None if reason else own[0]
        slope = f", negative_slope={place.slope:g}" if place.slope else ""
        after = "" if reason else f"GReLU({place.width}{slope})"
        report.append(Replacement(str(place), own[0].before, after, reason))
    return chosen


def _is_excluded(owner: str, place: Place, exclude: Sequence[str]) -> bool:
    names = (owner, place.where)
    return str(place) in exclude or any(
        f"{name}.".startswith(f"{prefix}.") for name in names for prefix in exclude
    )


def _grelu(sight: Sight, training: bool, options: dict[str, Any]) -> GReLU:
    like = sight.like
    assert like is not None
    grelu = GReLU(
        sight.place.width, negative_slope=sight.place.slope, device=like.device, **options
    )
    return grelu.to(like.dtype).train(training)
