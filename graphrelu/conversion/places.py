"""For every activation, the places where it is called and how wide it is there."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.conversion.examples import Sight, watch
from graphrelu.conversion.selection import caller, is_plain_basic_gnn
from graphrelu.conversion.tracing import CannotTrace
from graphrelu.conversion.widths import Value, inputs_of_activations


class Place(NamedTuple):
    """One call of an activation."""

    position: tuple[str, int]  # the convolution before it, and the number of the call since then
    channels: int
    like: Tensor  # of the type, and on the device, that its parameters should have
    reason: str = ""  # why the activation has to stay here


def find_places(
    model: torch.nn.Module, names: list[str], labels: dict[int, str], example: Any
) -> dict[str, list[Place]]:
    """The places of each named activation; none for those that are never called.

    Args:
        model: The model, with its hooks.
        names: The names of activations.
        labels: The label of each convolution, by its id.
        example: Arguments of the model, if there are some.
    """
    sights = {} if example is None else watch(model, names, example)
    flows: dict[str, dict[str, Value]] = {}
    places = {}
    for name in names:
        owner_name, owner = caller(model, name)
        if is_plain_basic_gnn(owner):
            places[name] = _basic_gnn_places(owner, labels)
        elif name in sights:
            places[name] = _seen_places(name, sights[name])
        else:
            if owner_name not in flows:
                flows[owner_name] = _flow(owner, owner_name)
            short = name[len(owner_name) + 1 :] if owner_name else name
            places[name] = _known_place(name, flows[owner_name].get(short), model)
    return places


def _basic_gnn_places(gnn: Any, labels: dict[int, str]) -> list[Place]:
    """PyG's models call one `act` after every convolution but, without jumping knowledge, the
    last."""
    convs = gnn.convs if gnn.jk_mode is not None else gnn.convs[:-1]
    return [
        Place((labels[id(conv)], 0), gnn.hidden_channels, next(conv.parameters())) for conv in convs
    ]


def _seen_places(name: str, sights: list[Sight]) -> list[Place]:
    places: dict[tuple[str, int], Place] = {}
    for position, x, num_nodes in sights:
        reason = ""
        if x.dim() != 2 or num_nodes not in (None, x.size(0)):
            reason = f"it sees {list(x.shape)} where the graph has {num_nodes} nodes"
        place = Place(position, x.size(-1), x, reason)
        known = places.setdefault(position, place)
        if known.channels != place.channels:
            raise ValueError(
                f"model must call {name!r} with one number of channels at each place, got "
                f"{known.channels} and {place.channels} after {position[0]!r}."
            )
    return list(places.values())


def _flow(owner: torch.nn.Module, name: str) -> dict[str, Value]:
    try:
        return inputs_of_activations(owner)
    except CannotTrace as problem:
        raise ValueError(
            "example must be given, a Data object or a tuple or dict of arguments: what the "
            f"activations of {name or type(owner).__name__!r} see is unknown because {problem}."
        ) from problem


def _known_place(name: str, value: Value | None, model: torch.nn.Module) -> list[Place]:
    if value is None:
        return []
    if value.pooled:
        return [Place(("", 0), 0, torch.empty(0), "it follows a pooling, with one row per graph")]
    if value.width is None:
        raise ValueError(
            "example must be given, a Data object or a tuple or dict of arguments: the number of "
            f"channels at {name!r} does not follow from the layers before it."
        )
    source = model if value.layer is None else value.layer
    return [Place(("", 0), value.width, next(source.parameters()))]
