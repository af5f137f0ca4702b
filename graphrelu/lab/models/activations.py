r"""What GReLU is compared with, under GReLU's call signature: the paper's rectifiers, and others.

Each is called as `act(x, edge_index, ...)`; a rectifier ignores the graph. Each layer of a model
takes a fresh object, so that learned parameters are never shared.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear

from graphrelu.grelu import GReLU
from graphrelu.lab.models.digraf import CELLS, DiGRAF, diffeomorphism
from graphrelu.lab.models.graph_activation import Undecomposed


class Rectifier(torch.nn.Module):
    """An activation that sees the features only.

    Args:
        channels (int): Size of each input sample.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""

    def forward(self, x: Tensor, *graph: Any, **batch: Any) -> Tensor:
        r"""Forward pass; everything but `x` is ignored."""
        return self.activate(x)

    def activate(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"


class ReLU(Rectifier):
    r""":math:`\max(x, 0)`."""

    def activate(self, x: Tensor) -> Tensor:
        return F.relu(x)


class LeakyReLU(Rectifier):
    r""":math:`\max(x, 0.01 x)`."""

    def activate(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, negative_slope=0.01)


class ELU(Rectifier):
    r""":math:`x` above zero, :math:`e^x - 1` below."""

    def activate(self, x: Tensor) -> Tensor:
        return F.elu(x)


class PReLU(Rectifier):
    r""":math:`x` above zero, :math:`p x` below, with one learned :math:`p` per layer."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.weight = torch.nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.weight, 0.25)

    def activate(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)


class Maxout(Rectifier):
    r"""The larger of two learned linear maps, :math:`\max(\mathbf{W}_1 \mathbf{x} + \mathbf{b}_1,
    \mathbf{W}_2 \mathbf{x} + \mathbf{b}_2)`: a network layer, not an elementwise function."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.lin = Linear(channels, 2 * channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def activate(self, x: Tensor) -> Tensor:
        return torch.maximum(*self.lin(x).chunk(2, dim=-1))


class GELU(Rectifier):
    r""":math:`x \, \Phi(x)` with the normal distribution function :math:`\Phi`."""

    def activate(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class SiLU(Rectifier):
    r""":math:`x \, \sigma(x)`, also known as Swish."""

    def activate(self, x: Tensor) -> Tensor:
        return F.silu(x)


class PlainDiGRAF(Rectifier):
    r""":class:`~graphrelu.lab.models.digraf.DiGRAF` without its GNN: the parameters of the
    diffeomorphism are learned, and are the same for every graph."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.theta = torch.nn.Parameter(torch.empty(1, CELLS - 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.theta)

    def activate(self, x: Tensor) -> Tensor:
        return diffeomorphism(x, self.theta.tanh())


ACTIVATIONS: dict[str, type[torch.nn.Module]] = {
    "relu": ReLU,
    "lrelu": LeakyReLU,
    "elu": ELU,
    "prelu": PReLU,
    "maxout": Maxout,
    "gelu": GELU,
    "silu": SiLU,
    "digraf": DiGRAF,
    "digraf-plain": PlainDiGRAF,
    "grelu": GReLU,
    "undecomposed": Undecomposed,
}
