"""The passes of :mod:`graphrelu.ops.cpu` on a GPU, each as one Triton kernel."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from graphrelu.ops import cpu
from graphrelu.ops.triton.kernels import (
    apply_kernel,
    backward_kernel,
    project_backward_kernel,
    project_kernel,
)
from graphrelu.ops.triton.launch import launch


class _Setting(NamedTuple):
    """How a pass is cut up."""

    tile: int  # elements
    num_warps: int
    stages: int  # of the loop over tiles; from 2 on, loads are ahead of their use
    programs: int  # that walk over the rows, at most


# Of each pass, by the bytes of a feature. Registers decide: a thread of the backward pass keeps
# four sums for each of its elements. Programs are a multiple of what a large GPU runs at a time, to
# hide the latency of its loads, and few enough that their partial sums cost nothing. Measured on an
# H200.
_SETTINGS = {
    "apply": {4: _Setting(2048, 4, 1, 1056), 2: _Setting(2048, 4, 2, 1056)},
    "backward": {4: _Setting(1024, 4, 3, 1056), 2: _Setting(1024, 4, 3, 1056)},
    "project": {4: _Setting(2048, 4, 2, 1056), 2: _Setting(2048, 4, 2, 1056)},
    "project_backward": {4: _Setting(1024, 4, 1, 1584), 2: _Setting(2048, 4, 3, 1056)},
}
_MAX_CHANNELS_PER_TILE = 256
# Where a tile is wider than this, other settings than the above.
_WIDE = 128
_WIDE_SETTINGS = {"backward": {2: _Setting(512, 4, 3, 1056)}}


class Cut(NamedTuple):
    """The programs of a pass for each group (a graph of a replica), and their constants."""

    programs: int
    options: dict[str, Any]


@lru_cache(maxsize=1024)
def cut(name: str, dtype: torch.dtype, num_nodes: int, channels: int, groups: int) -> Cut:
    """How the pass is cut up for features of this type and shape."""
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS_PER_TILE)
    setting = _SETTINGS[name].get(dtype.itemsize, _SETTINGS[name][4])
    if cols > _WIDE:
        setting = _WIDE_SETTINGS.get(name, {}).get(dtype.itemsize, setting)
    rows = max(1, setting.tile // cols)
    programs = max(1, min(triton.cdiv(num_nodes, rows * groups), setting.programs // groups))
    tile = {"C": channels, "ROWS": rows, "COLS": cols, "STAGES": setting.stages}
    return Cut(programs, {"num_warps": setting.num_warps, **tile})


def _rows_apart(tensor: Tensor) -> Tensor:
    """The tensor itself where its last dimension is consecutive; else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) == 1 else tensor.contiguous()


def _replica_stride(tensor: Tensor) -> int:
    return 0 if tensor.size(0) == 1 else tensor.stride(0)


def _graph_starts(batch: Tensor | None, num_graphs: int, x: Tensor) -> Tensor:
    if batch is None:
        return x  # not read
    return torch._convert_indices_from_coo_to_csr(batch, num_graphs)


def piecewise_max(
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> Tensor:
    """The forward pass: reads x once, writes y once."""
    x, gamma = _rows_apart(x), _rows_apart(gamma)
    slopes, intercepts = slopes.contiguous(), intercepts.contiguous()
    replicas = max(x.size(0), gamma.size(0), slopes.size(0))
    _, num_nodes, channels = x.shape
    y = torch.empty_like(x) if x.size(0) == replicas else x.new_empty(replicas, *x.shape[1:])
    if y.numel() == 0:
        return y
    _, num_graphs, K, _ = slopes.shape
    strides = (
        _replica_stride(x),
        x.stride(1),
        y.stride(0),
        y.stride(1),
        _replica_stride(gamma),
        gamma.stride(1),
        _replica_stride(slopes),
    )
    tensors = (x, gamma, slopes, intercepts, _graph_starts(batch, num_graphs, x), y)
    programs, options = cut("apply", x.dtype, num_nodes, channels, num_graphs * replicas)
    launch(
        apply_kernel,
        (num_graphs, programs, replicas),
        tensors,
        (num_nodes, *strides),
        (base[0], base[-1]),  # segments beyond the first share one base slope
        K=K,
        J=gamma.size(2),
        BATCHED=batch is not None,
        **options,
    )
    return y


def piecewise_max_backward(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, gamma, slopes and intercepts."""
    if grad.numel() == 0:
        grad_gamma, grad_slopes, grad_intercepts = (
            t.new_zeros(grad.size(0), *t.shape[1:]) for t in (gamma, slopes, intercepts)
        )
        return torch.empty_like(grad), grad_gamma, grad_slopes, grad_intercepts
    grad, x, gamma = _rows_apart(grad), _rows_apart(x), _rows_apart(gamma)
    slopes, intercepts = slopes.contiguous(), intercepts.contiguous()
    replicas, num_nodes, channels = grad.shape
    num_graphs, K, J = slopes.size(1), slopes.size(2), gamma.size(2)
    programs, options = cut("backward", x.dtype, num_nodes, channels, num_graphs * replicas)
    grad_x = torch.empty_like(grad)
    grad_gamma = gamma.new_empty(replicas, num_nodes, J)
    partial = slopes.new_empty(replicas, num_graphs, programs, 2, K, channels)
    strides = (
        grad.stride(0),
        grad.stride(1),
        _replica_stride(x),
        x.stride(1),
        grad_x.stride(0),
        grad_x.stride(1),
        _replica_stride(gamma),
        gamma.stride(1),
        _replica_stride(slopes),
    )
    starts = _graph_starts(batch, num_graphs, x)
    tensors = (grad, x, gamma, slopes, intercepts, starts, grad_x, grad_gamma, partial)
    launch(
        backward_kernel,
        (num_graphs, programs, replicas),
        tensors,
        (num_nodes, *strides),
        (base[0], base[-1]),
        K=K,
        J=J,
        BATCHED=batch is not None,
        K_PADDED=1 << (K - 1).bit_length(),
        **options,
    )
    grad_slopes, grad_intercepts = (partial[:, :, :, i].sum(dim=2) for i in range(2))
    return grad_x, grad_gamma, grad_slopes, grad_intercepts


def project_and_sum(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[R, N, H]` and `mass @ x` `[R, 1, C]`."""
    if weight.size(1) > 1:  # a hidden layer: a matrix product, which torch does best
        return cpu.project_and_sum(x, weight, mass)
    if x.numel() == 0:
        replicas, num_nodes, channels = x.shape
        return weight.new_empty(replicas, num_nodes, 1), weight.new_zeros(replicas, 1, channels)
    x, weight = x.contiguous(), weight.contiguous()
    replicas, num_nodes, channels = x.shape
    programs, options = cut("project", x.dtype, num_nodes, channels, replicas)
    projection = weight.new_empty(replicas, num_nodes, 1)
    partial = weight.new_empty(replicas, programs, channels)
    launch(
        project_kernel,
        (programs, replicas, 1),
        (x, weight, mass, projection, partial),
        (num_nodes,),
        **options,
    )
    return projection, partial.sum(dim=1, keepdim=True)


def project_and_sum_backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    grad_projection: Tensor,
    grad_sum: Tensor,
    grad_x: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x, added to `grad_x` in place where it is given, and of the weight."""
    if weight.size(1) > 1:
        return cpu.project_and_sum_backward(x, weight, mass, grad_projection, grad_sum, grad_x)
    x, weight = x.contiguous(), weight.contiguous()
    grad_projection, grad_sum = grad_projection.contiguous(), grad_sum.contiguous()
    replicas, num_nodes, channels = x.shape
    out = torch.empty_like(x) if grad_x is None else grad_x.contiguous()
    if x.numel() == 0:
        return out, torch.zeros_like(weight)
    programs, options = cut("project_backward", x.dtype, num_nodes, channels, replicas)
    partial = weight.new_empty(replicas, programs, channels)
    launch(
        project_backward_kernel,
        (programs, replicas, 1),
        (x, weight, mass, grad_projection, grad_sum, out, partial),
        (num_nodes,),
        ACCUMULATE=grad_x is not None,
        **options,
    )
    return out, partial.sum(dim=1, keepdim=True)
