"""The learned maps of GReLU's two blocks, in the precision of their input."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Parameter


class DiagonalMap(torch.nn.Module):
    r""":math:`\mathbf{w} \odot \bar{\mathbf{e}} + \mathbf{c}`: each output sees one channel.

    Args:
        channels (int): `C`.
        rows (int): Outputs per channel.
        device (torch.device, optional): The device of the parameters.
    """

    def __init__(self, channels: int, rows: int, device: torch.device | str | None) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(rows, channels, device=device))
        self.bias = Parameter(torch.empty(rows, channels, device=device))
        self.zero_last_layer()

    def reset_parameters(self) -> None:
        self.zero_last_layer()

    def zero_last_layer(self) -> None:
        """Makes the output zero, whatever the input."""
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, mean: Tensor) -> Tensor:
        """From `[B, C]` to `[B, rows * C]`."""
        weight, bias = self.weight.to(mean.dtype), self.bias.to(mean.dtype)
        return torch.addcmul(bias, weight, mean.unsqueeze(1)).flatten(1)


class HyperMLP(torch.nn.Module):
    """Linear, or with one hidden layer.

    The first layer's weight can be applied on its own: it commutes with the diffusion.
    """

    def __init__(
        self,
        in_channels: int,
        hidden: int | None,
        out_channels: int,
        last_bias: bool,
        device: torch.device | str | None,
    ) -> None:
        super().__init__()
        width = out_channels if hidden is None else hidden
        first_bias = last_bias if hidden is None else True
        self.first = Linear(in_channels, width, bias=first_bias, device=device)
        self.last: Linear | None = None
        if hidden is not None:
            self.last = Linear(hidden, out_channels, bias=last_bias, device=device)

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        if self.last is not None:
            self.last.reset_parameters()

    def zero_last_layer(self) -> None:
        """Makes the output zero, whatever the input."""
        last = self.first if self.last is None else self.last
        for parameter in last.parameters():
            torch.nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        return self.after_projection(x @ self.projection(x.dtype).t())

    def projection(self, dtype: torch.dtype) -> Tensor:
        """The first layer's weight."""
        return self.first.weight.to(dtype)

    def after_projection(self, z: Tensor) -> Tensor:
        """All that follows the first layer's weight."""
        if self.first.bias is not None:
            z = z + self.first.bias.to(z.dtype)
        if self.last is None:
            return z
        bias = None if self.last.bias is None else self.last.bias.to(z.dtype)
        return F.linear(z.relu(), self.last.weight.to(z.dtype), bias)
