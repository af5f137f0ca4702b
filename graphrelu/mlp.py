import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear


class HyperMLP(torch.nn.Module):
    """The MLP of a GReLU block: linear, or with one hidden layer, in the precision of its input.

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
