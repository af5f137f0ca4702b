"""Prepare on a GPU: the sorted, normalised matrix and its transpose, in two launches behind a sort.

Layout: both directions in one tensor; `rowptr [2, N + 1]`, `col [2, E]` and `value [2, E]`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _ENTRIES = 128, 8


@triton.jit
def _first_entry(keys_ptr, key, entries):
    """The number of sorted keys below `key`."""
    low = tl.zeros_like(key)
    high = low + entries
    while tl.max(high - low, axis=0) > 0:
        middle = (low + high) // 2
        is_left = low < high
        below = is_left & (tl.load(keys_ptr + middle, mask=is_left, other=0) < key)
        high = tl.where(below, high, middle)
        low = tl.where(below, middle + 1, low)
    return low


@triton.jit
def rows_kernel(
    keys_ptr,
    order_ptr,
    weight_ptr,
    rowptr_ptr,
    scale_ptr,
    num_nodes,
    entries,
    BLOCK: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Where rows begin, and of the first direction, whose rows are targets, D^-1/2."""
    direction = tl.program_id(1).to(tl.int64)
    keys_ptr += direction * entries
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start = _first_entry(keys_ptr, rows * num_nodes, entries)
    tl.store(rowptr_ptr + direction * (num_nodes + 1) + rows, start, mask=rows <= num_nodes)
    if direction == 0:
        end = _first_entry(keys_ptr, (rows + 1) * num_nodes, entries)
        degree = tl.zeros([BLOCK, ENTRIES], dtype=tl.float64)
        for passed in range(0, tl.max(end - start, axis=0), ENTRIES):
            entry = start[:, None] + passed + tl.arange(0, ENTRIES)[None, :]
            mask = entry < end[:, None]
            edge = tl.load(order_ptr + entry, mask=mask, other=0)
            degree += tl.load(weight_ptr + edge, mask=mask, other=0.0).to(tl.float64)
        degree = tl.sum(degree, axis=1)
        scale = tl.where(degree == 0, 0.0, 1.0 / tl.sqrt(tl.where(degree == 0, 1.0, degree)))
        tl.store(scale_ptr + rows, scale, mask=rows < num_nodes)


@triton.jit
def entries_kernel(
    keys_ptr,
    order_ptr,
    weight_ptr,
    scale_ptr,
    col_ptr,
    value_ptr,
    num_nodes,
    entries,
    BLOCK: tl.constexpr,
):
    """The columns and values of both directions."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 2 * entries
    key = tl.load(keys_ptr + at, mask=mask, other=0)
    row, col = key // num_nodes, key % num_nodes
    edge = tl.load(order_ptr + at, mask=mask, other=0)
    value = tl.load(weight_ptr + edge, mask=mask, other=0.0).to(tl.float64)
    scale = tl.load(scale_ptr + row, mask=mask, other=0.0)
    value *= scale * tl.load(scale_ptr + col, mask=mask, other=0.0)
    tl.store(col_ptr + at, col.to(tl.int32), mask=mask)
    tl.store(value_ptr + at, value.to(tl.float32), mask=mask)


def prepare(source: Tensor, target: Tensor, weight: Tensor, num_nodes: int) -> list[list[Tensor]]:
    """Where rows begin, columns and values, of the matrix and of its transpose."""
    row, col = torch.stack([target, source]), torch.stack([source, target])
    keys, order = torch.add(col, row, alpha=num_nodes).sort(dim=1, stable=True)
    entries = source.numel()
    rowptr = keys.new_empty(2, num_nodes + 1, dtype=torch.int32)
    scale = weight.new_empty(num_nodes, dtype=torch.float64)
    cols, values = torch.empty_like(keys, dtype=torch.int32), weight.new_empty(2, entries)
    sizes = num_nodes, entries
    with torch.cuda.device_of(weight):
        rows_kernel[(num_nodes // _BLOCK + 1, 2)](
            *(keys, order, weight.contiguous(), rowptr, scale, *sizes),
            BLOCK=_BLOCK,
            ENTRIES=_ENTRIES,
        )
        entries_kernel[(2 * entries // _BLOCK + 1,)](
            *(keys, order, weight.contiguous(), scale, cols, values, *sizes), BLOCK=_BLOCK
        )
    return [list(each) for each in zip(rowptr, cols, values, strict=True)]
