"""Node weights on a GPU: the softmax over the nodes of each graph, and what is made of it, in one
pass forward and one backward.

One program takes a column of a graph. Layout: `logits [N, H]`, `batch [N]`, sorted.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.functional import Form
from graphrelu.ops.triton.tiles import nodes_of

_FEW_NODES, _MANY_NODES = 1024, 4096  # that a program takes at a time
_NODES_OF_A_WARP = 256


@triton.jit
def _exponentials(logits_ptr, first, end, largest, temperature, H, BLOCK: tl.constexpr):
    """Of the distances from the largest logit. The difference is first: of `z / T - largest / T` a
    compiler makes a product and a difference in one, which does not vanish for the largest."""
    nodes = first + tl.arange(0, BLOCK)
    z = tl.load(logits_ptr + nodes * H, mask=nodes < end, other=float("-inf"))
    return tl.exp((z - largest) / temperature)


@triton.jit
def _softmax_parts(logits_ptr, start, end, temperature, H, BLOCK: tl.constexpr):
    """The largest logit, and the sum of the exponentials."""
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for first in range(start, end, BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        z = tl.load(logits_ptr + nodes * H, mask=nodes < end, other=float("-inf"))
        largest = tl.maximum(largest, z)
    largest = tl.max(largest, axis=0)
    total = tl.zeros([BLOCK], dtype=tl.float64)  # nodes of a large graph, one by one
    for first in range(start, end, BLOCK):
        own = _exponentials(logits_ptr, first, end, largest, temperature, H, BLOCK)
        total += own.to(tl.float64)
    return largest, tl.sum(total, axis=0).to(tl.float32)


@triton.jit
def _column(batch_ptr, num_nodes, BATCHED: tl.constexpr):
    """Of this program: where its nodes begin and end, and where its column begins."""
    graph, column = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    start, end = nodes_of(batch_ptr, graph, num_nodes, BATCHED)
    return start, end, column


@triton.jit
def weigh_kernel(
    logits_ptr,
    batch_ptr,
    gamma_ptr,
    num_nodes,
    temperature,
    gamma_max,
    H,
    BATCHED: tl.constexpr,
    CALIBRATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    start, end, column = _column(batch_ptr, num_nodes, BATCHED)
    logits_ptr += column
    largest, total = _softmax_parts(logits_ptr, start, end, temperature, H, BLOCK)
    size = (end - start).to(tl.float32) if CALIBRATED else 1.0
    for first in range(start, end, BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        own = _exponentials(logits_ptr, first, end, largest, temperature, H, BLOCK)
        gamma = own / total * size
        gamma = tl.where(gamma > gamma_max, gamma_max, gamma)
        tl.store(gamma_ptr + column + nodes * H, gamma, mask=nodes < end)


@triton.jit
def weigh_backward_kernel(
    logits_ptr,
    batch_ptr,
    grad_ptr,
    grad_logits_ptr,
    num_nodes,
    temperature,
    gamma_max,
    H,
    BATCHED: tl.constexpr,
    CALIBRATED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    start, end, column = _column(batch_ptr, num_nodes, BATCHED)
    logits_ptr += column
    largest, total = _softmax_parts(logits_ptr, start, end, temperature, H, BLOCK)
    size = (end - start).to(tl.float32) if CALIBRATED else 1.0
    dot = tl.zeros([BLOCK], dtype=tl.float64)
    # Twice over the nodes: for the sum of softmax times gradient, and with it.
    mean = 0.0
    for turn in tl.static_range(2):
        for first in range(start, end, BLOCK):
            nodes = first + tl.arange(0, BLOCK)
            own = _exponentials(logits_ptr, first, end, largest, temperature, H, BLOCK)
            softmax = own / total
            grad = size * tl.load(grad_ptr + column + nodes * H, mask=nodes < end, other=0.0)
            grad = tl.where(softmax * size > gamma_max, 0.0, grad)
            if turn == 0:
                dot += (softmax * grad).to(tl.float64)
            else:
                out = softmax * (grad - mean) / temperature
                tl.store(grad_logits_ptr + column + nodes * H, out, mask=nodes < end)
        mean = tl.sum(dot, axis=0).to(tl.float32)


def _launch(
    kernel: Any, logits: Tensor, form: Form, batch: Tensor | None, batch_size: int, *rest: Tensor
) -> None:
    num_nodes, columns = logits.shape
    graphs = logits if batch is None else batch.contiguous()  # not read without
    is_calibrated = form.mode == "calibrated"
    block = 1 << (num_nodes // batch_size).bit_length()
    block = min(max(block, _FEW_NODES), _MANY_NODES)
    with torch.cuda.device_of(logits):
        kernel[(batch_size, columns)](
            logits,
            graphs,
            *rest,
            num_nodes,
            form.temperature if is_calibrated else 1.0,
            form.gamma_max if is_calibrated else math.inf,
            columns,
            BATCHED=batch is not None,
            CALIBRATED=is_calibrated,
            BLOCK=block,
            num_warps=block // _NODES_OF_A_WARP,
        )


def forward(logits: Tensor, form: Form, batch: Tensor | None, batch_size: int) -> Tensor:
    """:func:`graphrelu.functional.weigh`."""
    logits = logits.contiguous()
    gamma = torch.empty_like(logits)
    if logits.numel() > 0:
        _launch(weigh_kernel, logits, form, batch, batch_size, gamma)
    return gamma


def backward(
    grad: Tensor, logits: Tensor, form: Form, batch: Tensor | None, batch_size: int
) -> Tensor:
    """The gradient of the logits."""
    logits, grad = logits.contiguous(), grad.contiguous()
    grad_logits = torch.empty_like(logits)
    if logits.numel() > 0:
        _launch(weigh_backward_kernel, logits, form, batch, batch_size, grad, grad_logits)
    return grad_logits
