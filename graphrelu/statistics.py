"""The graph-wide quantities of GReLU, where a graph is seen in parts: batches or processes."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import has_values

# The weight of the latest batch. The first batches weigh the same, 1, 1/2, 1/3, ..., until that is
# less: the averages do not depend on where they start.
MOMENTUM = 0.1


class GraphStatistics(torch.nn.Module):
    r"""The mean of the diffused features and the normaliser of the node softmax.

    In training they are those of the batch, with `sync` of the batches of all processes, as in
    :class:`torch.nn.SyncBatchNorm`. With `track` their running averages are kept, and are used in
    evaluation, as in :class:`torch.nn.BatchNorm1d`.

    The normaliser is the mean of :math:`\exp(z_n / T)`, in the printed form the sum of
    :math:`\exp(z_n)`. It is averaged as such but kept as a logarithm, so that it cannot overflow.

    Args:
        channels (int, optional): Size of the mean; :obj:`None` without channel block.
        weights (int, optional): Number of logits per node; :obj:`None` without node block.
        track (bool): Whether to keep running averages.
        sync (bool): Whether to take the batches of all processes together in training.
    """

    running_mean: Tensor | None
    running_log_normaliser: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, channels: int | None, weights: int | None, track: bool, sync: bool) -> None:
        super().__init__()
        self.track = track
        self.sync = sync
        sizes = {"running_mean": channels, "running_log_normaliser": weights}
        for name, size in sizes.items():
            buffer = None if size is None or not track else torch.zeros(1, size)
            self.register_buffer(name, buffer)
        count = torch.zeros((), dtype=torch.long) if track else None
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
        self,
        mean: Tensor | None,
        logits: Tensor | None,
        num_nodes: int,
        form: functional.Form,
        update: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        r"""The mean `[1, C]` and the logarithm of the normaliser `[1, W]` to be used.

        Args:
            mean (torch.Tensor, optional): The batch's mean.
            logits (torch.Tensor, optional): The node MLP's outputs `[N, W]`.
            num_nodes (int): The number of nodes of the batch.
            form (Form): Mode and temperature of the softmax.
            update (bool): Whether the batch is to enter the running averages, in training.
        """
        if self.track and not self.training:
            self._check_updated()
            return _like(self.running_mean, mean), _like(self.running_log_normaliser, logits)
        log_sum = None if logits is None else functional.log_sum_exp(logits, form)
        given = next(t for t in (mean, log_sum) if t is not None)
        count = given.new_full((1, 1), num_nodes)
        is_distributed = dist.is_available() and dist.is_initialized()
        if self.sync and self.training and is_distributed and dist.get_world_size() > 1:
            mean, log_sum, count = _of_all_processes(mean, log_sum, count)
        if log_sum is not None and form.mode == "calibrated":
            log_sum = log_sum - count.log()
        if self.track and update:
            self._update(mean, log_sum, count)
        return mean, log_sum

    @torch.no_grad()
    def _update(self, mean: Tensor | None, log_normaliser: Tensor | None, count: Tensor) -> None:
        assert self.num_batches_tracked is not None
        some = count.squeeze() > 0  # an empty batch tells nothing
        self.num_batches_tracked += some
        latest = self.num_batches_tracked.to(count.dtype).reciprocal()
        latest = latest.clamp(min=MOMENTUM)
        if self.running_mean is not None and mean is not None:
            old = self.running_mean.to(mean.dtype)
            self.running_mean.copy_(torch.where(some, old.lerp(mean, latest), old))
        if self.running_log_normaliser is not None and log_normaliser is not None:
            old = self.running_log_normaliser.to(log_normaliser.dtype)
            new = torch.logaddexp(old + torch.log1p(-latest), log_normaliser + latest.log())
            self.running_log_normaliser.copy_(torch.where(some, new, old))

    def _check_updated(self) -> None:
        """Looks at the counter until it has moved: on a GPU that waits, but not for long."""
        assert self.num_batches_tracked is not None
        if self._has_been_updated or not has_values(self.num_batches_tracked):
            return
        if int(self.num_batches_tracked) == 0:
            raise RuntimeError(
                "track_running_stats=True needs statistics in eval(): call the module in train() "
                "first, or load a state_dict that holds them."
            )
        self._has_been_updated = True


def _like(buffer: Tensor | None, tensor: Tensor | None) -> Tensor | None:
    return None if buffer is None or tensor is None else buffer.to(tensor.dtype)


def _of_all_processes(
    mean: Tensor | None, log_sum: Tensor | None, count: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Mean, log-sum-exp and count of the nodes of all processes, by one collective call."""
    from torch.distributed.nn.functional import all_gather  # whose gradient is the sum over them

    parts = [None if mean is None else mean * count, log_sum, count]
    sizes = [0 if part is None else part.size(1) for part in parts]
    row = torch.cat([part for part in parts if part is not None], dim=1)
    sums, log_sums, counts = torch.cat(all_gather(row)).split(sizes, dim=1)
    count = counts.sum(dim=0, keepdim=True)
    return (
        None if mean is None else sums.sum(dim=0, keepdim=True) / count.clamp(min=1),
        None if log_sum is None else log_sums.logsumexp(dim=0, keepdim=True),
        count,
    )
