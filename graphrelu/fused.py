"""The passes of :mod:`graphrelu.blocked` on a GPU, each as one Triton kernel."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from graphrelu import blocked
from graphrelu.triton_kernels import (
    apply_kernel,
    backward_kernel,
    project_backward_kernel,
    project_kernel,
)

if TYPE_CHECKING:
    from graphrelu.sliced import Sliced

# Elements of a tile; with four warps a thread then holds 16 numbers of each operand.
_TILE = 2048
_MAX_CHANNELS_PER_TILE = 256
# Programs that walk over the rows: eight for every multiprocessor of a large GPU, to hide the
# latency of its loads, and few enough that their partial sums cost nothing.
_PROGRAMS = 1056


def _tile(channels: int) -> dict[str, int]:
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS_PER_TILE)
    return {"ROWS": max(1, _TILE // cols), "COLS": cols}


def _programs(num_nodes: int, rows: int, groups: int) -> int:
    """How many programs share the rows of one group (a graph of a replica)."""
    return max(1, min(triton.cdiv(num_nodes, rows * groups), _PROGRAMS // groups))


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
    num_graphs, K = slopes.size(1), slopes.size(2)
    tile = _tile(channels)
    programs = _programs(num_nodes, tile["ROWS"], num_graphs * replicas)
    apply_kernel[(programs, num_graphs, replicas)](
        x,
        gamma,
        slopes,
        intercepts,
        _graph_starts(batch, num_graphs, x),
        y,
        num_nodes,
        _replica_stride(x),
        x.stride(1),
        y.stride(0),
        y.stride(1),
        _replica_stride(gamma),
        gamma.stride(1),
        _replica_stride(slopes),
        base[0],
        base[-1],  # segments beyond the first share one base slope
        C=channels,
        K=K,
        J=gamma.size(2),
        BATCHED=batch is not None,
        **tile,
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
    grad_x, grad_gamma, partial = piecewise_max_partials(
        grad, x, gamma, slopes, intercepts, base, batch
    )
    grad_slopes, grad_intercepts = (partial[:, :, :, i].sum(dim=2) for i in range(2))
    return grad_x, grad_gamma, grad_slopes, grad_intercepts


def piecewise_max_partials(
    grad: Tensor,
    x: Tensor,
    gamma: Tensor,
    slopes: Tensor,
    intercepts: Tensor,
    base: Sequence[float],
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x and gamma, and parts of those of slopes and intercepts that are yet to be
    added, `[R, B, parts, 2, K, C]`: reads x and grad once, writes one."""
    grad, x, gamma = _rows_apart(grad), _rows_apart(x), _rows_apart(gamma)
    slopes, intercepts = slopes.contiguous(), intercepts.contiguous()
    replicas, num_nodes, channels = grad.shape
    num_graphs, K, J = slopes.size(1), slopes.size(2), gamma.size(2)
    grad_x = torch.empty_like(grad)
    grad_gamma = gamma.new_empty(replicas, num_nodes, J)
    tile = _tile(channels)
    programs = _programs(num_nodes, tile["ROWS"], num_graphs * replicas)
    partial = slopes.new_empty(replicas, num_graphs, programs, 2, K, channels)
    backward_kernel[(programs, num_graphs, replicas)](
        grad,
        x,
        gamma,
        slopes,
        intercepts,
        _graph_starts(batch, num_graphs, x),
        grad_x,
        grad_gamma,
        partial,
        num_nodes,
        grad.stride(0),
        grad.stride(1),
        _replica_stride(x),
        x.stride(1),
        grad_x.stride(0),
        grad_x.stride(1),
        _replica_stride(gamma),
        gamma.stride(1),
        _replica_stride(slopes),
        base[0],
        base[-1],  # segments beyond the first share one base slope
        C=channels,
        K=K,
        J=J,
        BATCHED=batch is not None,
        K_PADDED=triton.next_power_of_2(K),
        **tile,
    )
    return grad_x, grad_gamma, partial


def project_and_sum(x: Tensor, weight: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[R, N, H]` and `mass @ x` `[R, 1, C]`."""
    if weight.size(1) > 1:  # a hidden layer: a matrix product, which torch does best
        return blocked.project_and_sum(x, weight, mass)
    if x.numel() == 0:
        replicas, num_nodes, channels = x.shape
        return weight.new_empty(replicas, num_nodes, 1), weight.new_zeros(replicas, 1, channels)
    projection, partial = project(x, weight, mass)
    return projection.unsqueeze(2), partial.sum(dim=1, keepdim=True)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, sliced: "Sliced | None" = None
) -> tuple[Tensor, Tensor]:
    """`x @ weight.T` `[R, N]`, as `sliced` wants it, and parts of `mass @ x`, `[R, parts, C]`."""
    x, weight = x.contiguous(), weight.contiguous()
    replicas, num_nodes, channels = x.shape
    projection = weight.new_empty(replicas, num_nodes)
    tile = _tile(channels)
    programs = _programs(num_nodes, tile["ROWS"], replicas)
    partial = weight.new_empty(replicas, programs, channels)
    rank, scale = (mass, mass) if sliced is None else (sliced.rank, sliced.scale)
    project_kernel[(programs, replicas)](
        x,
        weight,
        mass,
        rank,
        scale,
        projection,
        partial,
        num_nodes,
        SLICED=sliced is not None,
        C=channels,
        **tile,
    )
    return projection, partial


def project_and_sum_backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    grad_projection: Tensor,
    grad_sum: Tensor,
    grad_x: Tensor | None = None,
    sliced: "Sliced | None" = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of x, added to `grad_x` in place where it is given, and of the weight.

    The projection's own comes as `sliced` gives it, where there is one.
    """
    if weight.size(1) > 1:
        return blocked.project_and_sum_backward(x, weight, mass, grad_projection, grad_sum, grad_x)
    x, weight = x.contiguous(), weight.contiguous()
    grad_projection, grad_sum = grad_projection.contiguous(), grad_sum.contiguous()
    replicas, num_nodes, channels = x.shape
    out = torch.empty_like(x) if grad_x is None else grad_x.contiguous()
    if x.numel() == 0:
        return out, torch.zeros_like(weight)
    tile = _tile(channels)
    programs = _programs(num_nodes, tile["ROWS"], replicas)
    partial = weight.new_empty(replicas, programs, channels)
    rank, unscale = (mass, mass) if sliced is None else (sliced.rank, sliced.unscale)
    project_backward_kernel[(programs, replicas)](
        x,
        weight,
        mass,
        rank,
        unscale,
        grad_projection,
        grad_sum,
        out,
        partial,
        num_nodes,
        SLICED=sliced is not None,
        C=channels,
        ACCUMULATE=grad_x is not None,
        **tile,
    )
    return out, partial.sum(dim=1, keepdim=True)
