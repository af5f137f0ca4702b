"""Activations by name: their modules, their functions, and what a call of one asks for."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.conversion.graphs import Args, Kwargs

EXACT = ("relu", "leaky_relu")  # which a fresh GReLU is
MODULES: dict[type[torch.nn.Module], str] = {
    torch.nn.ReLU: "relu",
    torch.nn.LeakyReLU: "leaky_relu",
    torch.nn.PReLU: "prelu",
    torch.nn.ELU: "elu",
    torch.nn.CELU: "celu",
    torch.nn.SELU: "selu",
    torch.nn.GELU: "gelu",
    torch.nn.SiLU: "silu",
    torch.nn.Mish: "mish",
    torch.nn.Softplus: "softplus",
    torch.nn.Hardswish: "hardswish",
    torch.nn.ReLU6: "relu6",
    torch.nn.Tanh: "tanh",
}
# F.relu, torch.relu, Tensor.relu, and the same with an underscore, which write into their input.
FUNCTIONS: dict[Callable[..., Any], str] = {
    getattr(home, name + end): name + end
    for name in MODULES.values()
    for end in ("", "_")
    for home in (F, torch, Tensor)
    if hasattr(home, name + end)
}


class Asked(NamedTuple):
    """What a call of an activation asks for."""

    name: str
    x: Any
    slope: float = 0.0  # below zero
    in_place: bool = False


def asked_of_module(module: Any, args: Args, kwargs: Kwargs) -> Asked:
    name = MODULES[type(module)]
    slope = float(module.negative_slope) if name == "leaky_relu" else 0.0
    x = args[0] if args else kwargs.get("input")
    return Asked(name, x, slope, bool(getattr(module, "inplace", False)))


def asked_of_function(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Asked:
    name = FUNCTIONS[function]
    x = args[0] if args else kwargs.get("input")
    others: Any = args[1:]
    flag = others[-1] if others and isinstance(others[-1], bool) else False
    in_place = name.endswith("_") or bool(kwargs.get("inplace", flag))
    name = name.removesuffix("_")
    slope = kwargs.get("negative_slope", others[0] if others else 0.01)
    return Asked(name, x, float(slope) if name == "leaky_relu" else 0.0, in_place)
