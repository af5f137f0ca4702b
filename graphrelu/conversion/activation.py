"""Which activations can become a GReLU, and what stands in their place."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from graphrelu.conversion.frames import current_frame
from graphrelu.grelu import GReLU

RECTIFIERS = (torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.PReLU)
SMOOTH = (
    torch.nn.ELU,
    torch.nn.CELU,
    torch.nn.SELU,
    torch.nn.GELU,
    torch.nn.SiLU,
    torch.nn.Mish,
    torch.nn.Softplus,
    torch.nn.Hardswish,
    torch.nn.ReLU6,
    torch.nn.RReLU,
    torch.nn.Tanh,
)
ACTIVATIONS = (*RECTIFIERS, *SMOOTH)


def reason_to_stay(activation: torch.nn.Module, force: bool) -> str:
    """Why no GReLU starts as exactly this function; empty where one does."""
    if isinstance(activation, SMOOTH):
        return "" if force else "no GReLU equals it; force=True replaces it all the same"
    if isinstance(activation, torch.nn.PReLU) and activation.weight.numel() > 1:
        return "it has a slope for each channel"
    if negative_slope(activation) > 1:
        return "its slope is above 1"
    return ""


def can_be_replaced(module: torch.nn.Module, force: bool) -> bool:
    return isinstance(module, ACTIVATIONS) and not reason_to_stay(module, force)


def negative_slope(activation: torch.nn.Module) -> float:
    if isinstance(activation, torch.nn.LeakyReLU):
        return float(activation.negative_slope)
    if isinstance(activation, torch.nn.PReLU):
        return float(activation.weight.detach())
    return 0.0


class GraphActivation(torch.nn.Module):
    r"""One activation of a converted model: called with `x` alone, it takes the graph from the
    call of the convolution before it.

    Args:
        name (str): Where it is in the model.
        key (str): What tells the conversion of its model from others.
        places (list): For each module of `functions`, the convolution before its call and the
            number of the call since then.
        functions (list): A :class:`~graphrelu.GReLU` for each place, or the activation that was
            there where it has to stay.
    """

    def __init__(
        self,
        name: str,
        key: str,
        places: list[tuple[str, int]],
        functions: list[torch.nn.Module],
    ) -> None:
        super().__init__()
        self.name = name
        self.key = key
        self.places = {place: index for index, place in enumerate(places)}
        self.functions = ModuleList(functions)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for function in self.functions:
            if isinstance(function, GReLU):
                function.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features.
        """
        frame = current_frame()
        if frame is None or frame.key != self.key or frame.graph is None:
            raise RuntimeError(
                f"The GReLU at {self.name!r} has no graph: call the converted model itself with "
                "its edge_index, and on all nodes at once instead of by inference() or "
                "inference_per_layer(), which activate part of the nodes at a time."
            )
        index = 0
        if len(self.functions) > 1:
            place = frame.place(self.name)
            if place not in self.places:
                raise RuntimeError(
                    f"The activation {self.name!r} was not called after {place[0]!r} when the "
                    "model was converted: convert it with an example that takes the same path."
                )
            index = self.places[place]
        function = self.functions[index]
        if not isinstance(function, GReLU):
            return function(x)
        if isinstance(x, Tensor) and x.dim() == 2 and x.size(1) != function.channels:
            raise ValueError(
                f"x at {self.name!r} must have {function.channels} channels, as the layers before "
                f"it have, got {x.size(1)}: convert the model with an example of its arguments."
            )
        edge_index, edge_weight, num_nodes = frame.graph
        self._check_rows("nodes of the graph before it", x, num_nodes)
        if frame.batch is None:
            return function(x, edge_index, edge_weight)
        self._check_rows("entries of batch", x, frame.batch.size(0))
        return function(x, edge_index, edge_weight, frame.batch, frame.batch_size)

    def _check_rows(self, expected: str, x: Any, count: int | None) -> None:
        if count is not None and isinstance(x, Tensor) and x.dim() > 0 and x.size(0) != count:
            raise ValueError(
                f"x at {self.name!r} must have a row for each of the {count} {expected}, got "
                f"{x.size(0)}: a GReLU activates all nodes of a graph at once; if this activation "
                f"sees something else, convert the model with exclude=[{self.name!r}]."
            )
