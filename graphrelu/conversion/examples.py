"""Runs a model on an example, to see what its activations see."""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Data

from graphrelu.conversion.frames import current_frame, parameter_names


class Sight(NamedTuple):
    """One call of an activation."""

    place: tuple[str, int]
    x: Tensor
    num_nodes: int | None


class Watcher:
    """A pre-hook that notes what an activation is called with."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sights: list[Sight] = []

    def __call__(self, activation: torch.nn.Module, args: tuple[Any, ...]) -> None:
        frame = current_frame()
        assert frame is not None
        num_nodes = None if frame.graph is None else frame.graph.num_nodes
        self.sights.append(Sight(frame.place(self.name), args[0], num_nodes))


def _call_arguments(model: torch.nn.Module, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Data):
        names = parameter_names(model)
        if "edge_index" in names or "adj_t" in names:
            return (), {name: example[name] for name in names if name in example}
        return (copy.copy(example),), {}  # a model may write into it
    if isinstance(example, tuple):
        return tuple(copy.copy(a) if isinstance(a, Data) else a for a in example), {}
    if isinstance(example, dict):
        return (), example
    raise TypeError(
        "example must be a Data object, or a tuple or dict of the model's arguments, got "
        f"{type(example).__name__}."
    )


def run(model: torch.nn.Module, example: Any) -> Any:
    """The output of the model, put into evaluation; give it a copy, which may cache something."""
    args, kwargs = _call_arguments(model, example)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return model.eval()(*args, **kwargs)


def watch(model: torch.nn.Module, names: list[str], example: Any) -> dict[str, list[Sight]]:
    """All calls of the named activations."""
    model = copy.deepcopy(model)
    watchers = {name: Watcher(name) for name in names}
    for name, watcher in watchers.items():
        model.get_submodule(name).register_forward_pre_hook(watcher)
    run(model, example)
    return {name: watcher.sights for name, watcher in watchers.items()}


def same_output(a: Any, b: Any) -> bool:
    """Whether two outputs are equal, tensor by tensor."""
    leaves, others = tree_leaves(a), tree_leaves(b)
    return len(leaves) == len(others) and all(
        torch.allclose(x, y, rtol=0, atol=0, equal_nan=True)
        for x, y in zip(leaves, others, strict=True)
        if isinstance(x, Tensor)
    )
