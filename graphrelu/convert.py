"""GReLU in a model that exists already, trained or not."""

import copy
import uuid
from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.nn import HANConv, HeteroConv, HGTConv, MessagePassing
from torch_geometric.nn import Sequential as GraphSequential

from graphrelu.conversion.activation import GraphActivation, negative_slope
from graphrelu.conversion.classes import converted_class
from graphrelu.conversion.examples import run, same_output
from graphrelu.conversion.frames import install_frames
from graphrelu.conversion.places import Place, find_places
from graphrelu.conversion.report import Replacement, Replacements
from graphrelu.conversion.selection import callers, select, separate
from graphrelu.conversion.tracing import copy_with_same_tensors
from graphrelu.grelu import GReLU


def convert(
    model: torch.nn.Module,
    *,
    example: Any = None,
    inplace: bool = False,
    force: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    **grelu_options: Any,
) -> torch.nn.Module:
    r"""Replaces every activation between the layers of a model by a :class:`~graphrelu.GReLU` of
    its own.

    The converted model is called exactly as before, and its output is the same to the last bit
    until it is trained further. Each GReLU takes the graph from the call of the convolution before
    it, else from the model's own arguments. :func:`replacements` tells what was changed.

    Args:
        model (torch.nn.Module): The model: one of PyG's, a
            :class:`torch_geometric.nn.Sequential`, or any module with :class:`torch.nn.ReLU`,
            :class:`~torch.nn.LeakyReLU` or :class:`~torch.nn.PReLU` children, or with functional
            calls such as :func:`torch.relu` in its :meth:`forward`.
        example (Data or tuple or dict, optional): Arguments to call the model with once, where
            the widths do not follow from its layers. (default: :obj:`None`)
        inplace (bool, optional): If :obj:`True`, converts the model itself, its parameters
            staying the same objects, rather than a copy. (default: :obj:`False`)
        force (bool, optional): If :obj:`True`, also replaces ELU, GELU and other activations that
            no GReLU starts as, and accepts options that change the output.
            (default: :obj:`False`)
        include (list of str, optional): Names of activations, or of modules around them, to be
            replaced although they are inside an MLP or a convolution. (default: :obj:`()`)
        exclude (list of str, optional): Names of activations, or of modules around them, that
            stay. (default: :obj:`()`)
        **grelu_options (optional): Further arguments of :class:`~graphrelu.GReLU`.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> model = GCN(16, 32, num_layers=2, out_channels=7)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 0, 3]])
        >>> converted = convert(model)
        >>> torch.equal(converted(x, edge_index), model(x, edge_index))
        True
    """
    _check_arguments(model, force, include, exclude, grelu_options)
    converted = copy_with_same_tensors(model) if inplace else copy.deepcopy(model)

    key = uuid.uuid4().hex
    left = separate(converted, force, include, exclude)
    names, staying = select(converted, force, include, exclude)
    left += staying
    owners = callers(converted, names)
    labels = install_frames(converted, owners, key)
    places = find_places(converted, names, labels, example)
    report = Replacements()
    for name in names:
        report += _replace(converted, name, key, places[name], grelu_options)
    report += left
    if not report.changed:
        found = "; ".join(map(str, report)) or "it has none"
        raise ValueError(
            f"model must have an activation that a GReLU can replace, got "
            f"{type(model).__name__}: {found}."
        )
    for owner in owners:
        # PyG's Sequential resets its children by itself, and keeps code on its class.
        if hasattr(owner, "reset_parameters") and not isinstance(owner, GraphSequential):
            owner.__class__ = converted_class(*getattr(owner, "_conversion", (type(owner), "")))
    converted._replacements = report  # type: ignore[assignment]
    if example is not None and not force:
        _check_output(model, converted, example)
    if inplace:
        model.__class__ = type(converted)
        model.__dict__.clear()
        model.__setstate__(converted.__dict__)
        return model
    return converted


def replacements(model: torch.nn.Module) -> Replacements:
    r"""What :func:`convert` changed in a model and what it left, with the reason; to be printed.

    Args:
        model (torch.nn.Module): A converted model, or one that contains converted models.
    """
    found = Replacements()
    converted = False
    for prefix, module in model.named_modules():
        if "_replacements" in vars(module):
            converted = True
            dot = f"{prefix}." if prefix else ""
            found += [r._replace(name=dot + r.name) for r in vars(module)["_replacements"]]
    if not converted:
        raise ValueError("model must be a converted one: call graphrelu.convert on it first.")
    return found


def _check_arguments(
    model: Any,
    force: bool,
    include: Any,
    exclude: Any,
    grelu_options: dict[str, Any],
) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    if hasattr(model, "_orig_mod"):
        raise ValueError("model must not be compiled yet: convert it first, then compile it.")
    for argument, value in (("include", include), ("exclude", exclude)):
        if isinstance(value, str) or not all(isinstance(name, str) for name in value):
            raise TypeError(f"{argument} must be a list of names, got {value!r}.")
    for module in model.modules():
        if isinstance(module, GraphActivation):
            raise ValueError(
                "model must not be converted already: convert the whole of it at once."
            )
        if isinstance(module, (HeteroConv, HGTConv, HANConv)):
            raise ValueError(
                f"model must be for one type of nodes, got a {type(module).__name__} in it: put a "
                "GReLU for each type into the model by hand."
            )
    if not any(isinstance(module, MessagePassing) for module in model.modules()):
        raise ValueError(
            f"model must have a graph convolution, got {type(model).__name__} without any "
            "torch_geometric.nn.MessagePassing."
        )
    for name in ("channels", "device", "negative_slope"):
        if name in grelu_options:
            raise TypeError(f"{name} must not be given: it follows from the activation replaced.")
    GReLU(1, **grelu_options)  # says what is wrong with an option
    for name, value in (("K", 1), ("mode", "paper")):
        if grelu_options.get(name) == value and not force:
            raise ValueError(
                f"force must be True for {name}={value!r}, with which a fresh GReLU is no ReLU."
            )


def _replace(
    model: torch.nn.Module,
    name: str,
    key: str,
    places: list[Place],
    grelu_options: dict[str, Any],
) -> list[Replacement]:
    """Puts a GReLU into each place of an activation."""
    activation = model.get_submodule(name)
    if not places:
        return [Replacement(name, repr(activation), "", "it is not called")]
    functions: list[torch.nn.Module] = []
    report = []
    for place in places:
        where = f"{name} after {place.position[0]}" if len(places) > 1 else name
        if place.reason:
            functions.append(copy.deepcopy(activation))
            report.append(Replacement(where, repr(activation), "", place.reason))
            continue
        grelu = GReLU(
            place.channels,
            negative_slope=0.0
            if grelu_options.get("mode") == "paper"
            else negative_slope(activation),
            device=place.like.device,
            **grelu_options,
        )
        functions.append(grelu.to(place.like.dtype).train(activation.training))
        report.append(Replacement(where, repr(activation), repr(grelu)))
    if any(isinstance(function, GReLU) for function in functions):
        owner_name, _, attribute = name.rpartition(".")
        replaced = GraphActivation(name, key, [place.position for place in places], functions)
        setattr(model.get_submodule(owner_name), attribute, replaced.train(activation.training))
    return report


def _check_output(model: torch.nn.Module, converted: torch.nn.Module, example: Any) -> None:
    before, after = (run(copy.deepcopy(m), example) for m in (model, converted))
    if not same_output(before, after):
        raise ValueError(
            "model must do what its layers and its forward show, but on the example the converted "
            "model gives another output: use modules such as torch.nn.ReLU() instead of "
            "functional calls, or exclude what writes into its input."
        )
