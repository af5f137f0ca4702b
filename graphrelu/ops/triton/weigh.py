"""Node weights of a batch on a GPU: the softmax over the nodes of each graph, and what is made of
it, in one pass forward and one backward.

One program takes a graph. Layout: `logits [N, 1]`, `batch [N]`, sorted.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.functional import Form
from graphrelu.ops.triton.tiles import nodes_of

_FEW_NODES, _MANY_NODES = 1024, 4096  # that a program takes at a time
_NODES_OF_A_WARP = 256


@triton.jit
def _exponentials(logits_ptr, first, end, largest, temperature, BLOCK: tl.constexpr):
    """Of the distances from the largest logit. The difference is first: of `z / T - largest / T` a
    compiler makes a product and a difference in one, which does not vanish for the largest."""
    nodes = first + tl.arange(0, BLOCK)
    z = tl.load(logits_ptr + nodes, mask=nodes < end, other=float("-inf"))
    return tl.exp((z - largest) / temperature)


@triton.jit
def weigh_kernel(
    logits_ptr,
    batch_ptr,
    grad_ptr,
    out_ptr,
    num_nodes,
    temperature,
    gamma_max,
    BACKWARD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The weights, or from their gradient that of the logits."""
    start, end = nodes_of(batch_ptr, tl.program_id(0).to(tl.int64), num_nodes, True)
    largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for first in range(start, end, BLOCK):
        nodes = first + tl.arange(0, BLOCK)
        z = tl.load(logits_ptr + nodes, mask=nodes < end, other=float("-inf"))
        largest = tl.maximum(largest, z)
    largest = tl.max(largest, axis=0)
    sums = tl.zeros([BLOCK], dtype=tl.float64)  # nodes of a large graph, one by one
    for first in range(start, end, BLOCK):
        own = _exponentials(logits_ptr, first, end, largest, temperature, BLOCK)
        sums += own.to(tl.float64)
    total = tl.sum(sums, axis=0).to(tl.float32)
    size = (end - start).to(tl.float32)
    mean = 0.0
    # Backward twice over the nodes: for the sum of softmax times gradient, and with it.
    for turn in tl.static_range(2 if BACKWARD else 1):
        sums = tl.zeros([BLOCK], dtype=tl.float64)
        for first in range(start, end, BLOCK):
            nodes = first + tl.arange(0, BLOCK)
            own = _exponentials(logits_ptr, first, end, largest, temperature, BLOCK)
            softmax = own / total
            out = softmax * size
            is_capped = out > gamma_max
            if BACKWARD:
                grad = size * tl.load(grad_ptr + nodes, mask=nodes < end, other=0.0)
                grad = tl.where(is_capped, 0.0, grad)
                sums += (softmax * grad).to(tl.float64)
                out = softmax * (grad - mean) / temperature
            else:
                out = tl.where(is_capped, gamma_max, out)
            if turn == 1 or not BACKWARD:
                tl.store(out_ptr + nodes, out, mask=nodes < end)
        mean = tl.sum(sums, axis=0).to(tl.float32)


def run(
    logits: Tensor, form: Form, batch: Tensor, batch_size: int, grad: Tensor | None = None
) -> Tensor:
    """The weights, or from their gradient that of the logits."""
    logits = logits.contiguous()
    out = torch.empty_like(logits)
    if logits.numel() == 0:
        return out
    num_nodes = logits.size(0)
    block = 1 << (num_nodes // batch_size).bit_length()
    block = min(max(block, _FEW_NODES), _MANY_NODES)
    with torch.cuda.device_of(logits):
        weigh_kernel[(batch_size,)](
            logits,
            batch.contiguous(),
            logits if grad is None else grad.contiguous(),  # not read without
            out,
            num_nodes,
            form.temperature,
            form.gamma_max,
            BACKWARD=grad is not None,
            BLOCK=block,
            num_warps=block // _NODES_OF_A_WARP,
        )
    return out
