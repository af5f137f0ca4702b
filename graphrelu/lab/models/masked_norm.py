import torch
from torch import Tensor
from torch.nn import Parameter


class MaskedBatchNorm(torch.nn.Module):
    r""":class:`~torch.nn.BatchNorm1d` over those rows that are nodes, the others being padding.

    In training the running statistics are updated in place, also under :func:`torch.func.vmap`
    over stacked buffers, each model from its own rows.

    Args:
        channels (int): Size of each input sample.
        eps (float, optional): Added to the variance. (default: :obj:`1e-5`)
        momentum (float, optional): The share of a new batch in the running statistics.
            (default: :obj:`0.1`)
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.channels = channels
        self.eps = eps
        self.momentum = momentum
        self.weight = Parameter(torch.empty(channels))
        self.bias = Parameter(torch.empty(channels))
        self.register_buffer("running_mean", torch.empty(channels))
        self.register_buffer("running_var", torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module, and the running statistics."""
        for ones in (self.weight, self.running_var):
            torch.nn.init.ones_(ones)
        for zeros in (self.bias, self.running_mean):
            torch.nn.init.zeros_(zeros)

    def forward(self, x: Tensor, is_node: Tensor | None = None) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The features, of shape :math:`(N, C)`.
            is_node (torch.Tensor, optional): Which rows are nodes, of shape :math:`(N)`; all of
                them unless given. (default: :obj:`None`)
        """
        mean, variance = self.running_mean, self.running_var
        if self.training:
            if is_node is None:
                is_node = torch.ones_like(x[:, 0])
            share = is_node.to(x.dtype).unsqueeze(1)
            count = share.sum().clamp(min=1.0)
            mean = (share * x).sum(dim=0) / count
            variance = (share * (x - mean).square()).sum(dim=0) / count
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1.0))
                for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                    running.mul_(1 - self.momentum).add_(new, alpha=self.momentum)
        return (x - mean) * ((variance + self.eps).rsqrt() * self.weight) + self.bias

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"
