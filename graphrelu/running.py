"""The graph-wide quantities of GReLU, where a graph is seen in parts: batches or processes."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphrelu import functional
from graphrelu.calibration import Calibration
from graphrelu.eager import is_transformed


class GraphStatistics(torch.nn.Module):
    r"""The mean of the diffused features, the smoothness and the normaliser of the node softmax.

    In training they are those of the batch, with `sync` of the batches of all processes, as in
    :class:`torch.nn.SyncBatchNorm`. With `track` their running averages are kept, and are used in
    evaluation, as in :class:`torch.nn.BatchNorm1d`.

    The normaliser is the mean of :math:`\exp(z_n / \tau)`, in the printed form the sum of
    :math:`\exp(z_n)`. It is averaged as such but kept as a logarithm, so that it cannot overflow.

    Args:
        channels (int, optional): Size of the mean; :obj:`None` without channel block.
        weights (int, optional): Number of logits per node that have a normaliser; :obj:`None`
            without.
        smooth (int, optional): Number of logits per node that have a smoothness; :obj:`None`
            without.
        mode (str): :obj:`"calibrated"` or :obj:`"paper"`.
        track (bool): Whether to keep running averages.
        momentum (float, optional): The weight of the latest batch, in (0, 1]. The first batches
            weigh the same, :math:`1, \tfrac{1}{2}, \tfrac{1}{3}, \ldots`, until that is less than
            `momentum`: the averages do not depend on where they start. :obj:`None` goes on so
            for ever.
        sync (bool): Whether to take the batches of all processes together in training.
        calibration (Calibration): Where the temperature :math:`\tau` is from.
        device (torch.device, optional): The device of the buffers.
    """

    running_mean: Tensor | None
    running_log_normaliser: Tensor | None
    running_smoothness: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        channels: int | None,
        weights: int | None,
        smooth: int | None,
        mode: str,
        track: bool,
        momentum: float | None,
        sync: bool,
        calibration: Calibration,
        device: torch.device | str | None,
    ) -> None:
        super().__init__()
        if momentum is not None and not 0 < momentum <= 1:
            raise ValueError(f"momentum must be in (0, 1] or None, got {momentum}.")
        self.weights = weights
        self.mode = mode
        self.track = track
        self.momentum = momentum
        self.sync = sync
        self.calibration = calibration

        def zeros(size: int | None) -> Tensor | None:
            return None if size is None or not track else torch.zeros(1, size, device=device)

        self.register_buffer("running_mean", zeros(channels))
        self.register_buffer("running_log_normaliser", zeros(weights))
        self.register_buffer("running_smoothness", zeros(smooth))
        count = torch.zeros((), dtype=torch.long, device=device) if track else None
        self.register_buffer("num_batches_tracked", count)
        self._has_been_updated = False

    def reset_running_stats(self) -> None:
        r"""Forgets all batches."""
        for buffer in self.buffers():
            buffer.zero_()
        self._has_been_updated = False

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._has_been_updated = False

    def forward(
        self, mean: Tensor | None, logits: Tensor | None, num_nodes: int, update: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        r"""The mean `[1, C]` and the logarithm of the normaliser `[1, W]` to be used.

        Args:
            mean (torch.Tensor, optional): The batch's mean.
            logits (torch.Tensor, optional): The node MLP's outputs `[N, W]`.
            num_nodes (int): The number of nodes of the batch.
            update (bool): Whether the batch is to enter the running averages, in training.
        """
        if self.weights is None:
            logits = None
        if self.track and not self.training:
            self._check_updated()
            return _like(self.running_mean, mean), _like(self.running_log_normaliser, logits)
        log_sum = None
        if logits is not None:
            log_sum = functional.log_sum_exp(logits, self.mode, self.calibration)
        given = next(t for t in (mean, log_sum) if t is not None)
        count = given.new_full((1, 1), num_nodes)
        if self._is_synchronised():
            mean, log_sum, count = _of_all_processes(mean, log_sum, count)
        if log_sum is not None and self.mode == "calibrated":
            log_sum = log_sum - count.log()
        if self.track and update:
            self._update(mean, log_sum, count)
        return mean, log_sum

    def smoothness(self, local: Tensor, averaged: Tensor, update: bool) -> Tensor:
        r"""The smoothness `[1, W]` to be used; to be called before the rest.

        Args:
            local (torch.Tensor): What the node MLP makes of each node by itself, `[N, W]`.
            averaged (torch.Tensor): And of the means around them.
            update (bool): Whether the batch is to enter the running averages, in training.
        """
        if self.track and not self.training:
            self._check_updated()
            assert self.running_smoothness is not None
            return self.running_smoothness.to(local.dtype)
        if self._is_synchronised():
            rho, count = _smoothness_of_all_processes(local, averaged)
        else:
            rho = functional.smoothness(local, averaged)
            count = local.new_full((1, 1), local.size(0))
        if self.running_smoothness is not None and update:
            assert self.num_batches_tracked is not None
            latest = self._weight_of(self.num_batches_tracked + 1, rho.dtype)
            old = self.running_smoothness.to(rho.dtype)
            new = torch.where(count > 0, old.lerp(rho.detach(), latest), old)
            self.running_smoothness.copy_(new)
        return rho

    def _is_synchronised(self) -> bool:
        return self.sync and self.training and _several_processes()

    def _weight_of(self, number: Tensor, dtype: torch.dtype) -> Tensor:
        """How much the batch of this number counts."""
        latest = number.to(dtype).reciprocal()
        return latest.clamp(min=0.0 if self.momentum is None else self.momentum)

    @torch.no_grad()
    def _update(self, mean: Tensor | None, log_normaliser: Tensor | None, count: Tensor) -> None:
        assert self.num_batches_tracked is not None
        some = count.squeeze() > 0  # an empty batch tells nothing
        self.num_batches_tracked += some
        latest = self._weight_of(self.num_batches_tracked, count.dtype)
        if self.running_mean is not None and mean is not None:
            old = self.running_mean.to(mean.dtype)
            self.running_mean.copy_(torch.where(some, old.lerp(mean, latest), old))
        if self.running_log_normaliser is not None and log_normaliser is not None:
            old = self.running_log_normaliser.to(log_normaliser.dtype)
            new = torch.logaddexp(old + torch.log1p(-latest), log_normaliser + latest.log())
            self.running_log_normaliser.copy_(torch.where(some, new, old))

    def _check_updated(self) -> None:
        """Looks at the counter until it has moved: on a GPU that waits, but not for long."""
        if self._has_been_updated or is_transformed():
            return
        assert self.num_batches_tracked is not None
        if int(self.num_batches_tracked) == 0:
            raise RuntimeError(
                "track_running_stats=True needs statistics in eval(): call the module in train() "
                "first, or load a state_dict that holds them."
            )
        self._has_been_updated = True


def _like(buffer: Tensor | None, tensor: Tensor | None) -> Tensor | None:
    return None if buffer is None or tensor is None else buffer.to(tensor.dtype)


def _several_processes() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _of_all_processes(
    mean: Tensor | None, log_sum: Tensor | None, count: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Mean, log-sum-exp and count of the nodes of all processes, by one collective call."""
    parts = [None if mean is None else mean * count, log_sum, count]
    sizes = [0 if part is None else part.size(1) for part in parts]
    row = torch.cat([part for part in parts if part is not None], dim=1)
    sums, log_sums, counts = _Gather.apply(row).split(sizes, dim=1)
    count = counts.sum(dim=0, keepdim=True)
    return (
        None if mean is None else sums.sum(dim=0, keepdim=True) / count.clamp(min=1),
        None if log_sum is None else log_sums.logsumexp(dim=0, keepdim=True),
        count,
    )


def _smoothness_of_all_processes(local: Tensor, averaged: Tensor) -> tuple[Tensor, Tensor]:
    """The smoothness over the nodes of all processes, and their number."""
    both = torch.cat([local, averaged], dim=1).double()
    count = both.new_full((1, 1), both.size(0))
    row = torch.cat([both.sum(0, keepdim=True), both.square().sum(0, keepdim=True), count], dim=1)
    total = _Gather.apply(row).sum(dim=0, keepdim=True)
    means, squares = total[:, :-1].div(total[:, -1:].clamp(min=1)).chunk(2, dim=1)
    of_local, of_averaged = (squares - means.square()).clamp(min=0).chunk(2, dim=1)
    noise = functional.SAME * squares[:, : local.size(1)]
    rho = functional.smoothness_ratio(of_averaged, of_local + noise)
    return rho.to(local.dtype), total[:, -1:]


class _Gather(torch.autograd.Function):
    """The rows `[1, D]` of all processes, `[P, D]`; each gets the sum of its gradients back."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, row: Tensor) -> Tensor:
        rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, row)
        return torch.cat(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        rank = dist.get_rank()
        return grad[rank : rank + 1]
