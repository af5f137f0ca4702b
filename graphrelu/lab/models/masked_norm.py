import torch
from torch import Tensor


class MaskedBatchNorm(torch.nn.BatchNorm1d):
    r""":class:`~torch.nn.BatchNorm1d` over those rows that are nodes, the others being padding.

    In training the running statistics are updated in place, also under :func:`torch.func.vmap`
    over stacked buffers, each model from its own rows.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float

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
