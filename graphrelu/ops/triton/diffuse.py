"""Diffuse on a GPU, over compressed rows.

A program adds the entries of its rows in a fixed order. The libraries' products divide a long row
among programs that finish in any order, so they do not give the same bits twice.
"""

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphrelu.functional import pagerank

CompressedRows = tuple[Tensor, Tensor, Tensor]  # where they begin, columns, values

# Rows of a program for one column, and entries of a row that it takes at a time.
_ROWS, _ENTRIES = 32, 16
# For several columns, a program (one warp) takes a row: columns, and products, of its tile.
_COLS, _TILE = 128, 256
# Programs that wait for each other must all run at once. A multiprocessor has 64 Ki registers,
# from compute capability 7 on: enough for this many programs, warps and registers of a thread.
_PROGRAMS, _WARPS, _REGISTERS = 8, 4, 64
# Triton starts programs that wait for each other from here on; AMD's compiler bounds no registers.
HAS_COOPERATIVE_LAUNCH = (
    tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3) and torch.version.hip is None
)


@triton.jit
def _wait_for_all(arrived_ptr, count):
    """Returns once `count` programs have arrived here; what they wrote can then be read."""
    tl.debug_barrier()
    tl.atomic_add(arrived_ptr, 1, sem="acq_rel")
    while tl.atomic_add(arrived_ptr, 0, sem="acq_rel") < count:
        pass
    tl.debug_barrier()


@triton.jit
def column_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    constant_ptr,
    buffers_ptr,
    arrived_ptr,
    num_rows,
    steps,
    a,
    b,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """`vector = a * matrix @ vector + b * constant`, for one column, `steps` times. One of two
    buffers is read while the other is written."""
    for step in range(steps):
        out_ptr = buffers_ptr + (step % 2) * num_rows
        first_row = tl.program_id(0).to(tl.int64) * ROWS
        for first in range(first_row, num_rows, tl.num_programs(0) * ROWS):
            rows = first + tl.arange(0, ROWS)
            in_rows = rows < num_rows
            start = tl.load(rowptr_ptr + rows, mask=in_rows, other=0)
            end = tl.load(rowptr_ptr + rows + 1, mask=in_rows, other=0)
            total = tl.zeros([ROWS, ENTRIES], dtype=tl.float32)
            for passed in range(0, tl.max(end - start, axis=0), ENTRIES):
                entries = start[:, None] + passed + tl.arange(0, ENTRIES)[None, :]
                mask = entries < end[:, None]
                col = tl.load(col_ptr + entries, mask=mask, other=0)
                value = tl.load(value_ptr + entries, mask=mask, other=0.0)
                # Past the cache of a multiprocessor, to which others do not write.
                x = tl.load(vector_ptr + col, mask=mask, other=0.0, cache_modifier=".cg")
                total += value * x
            constant = tl.load(constant_ptr + rows, mask=in_rows, other=0.0)
            tl.store(out_ptr + rows, a * tl.sum(total, axis=1) + b * constant, mask=in_rows)
        if step + 1 < steps:
            _wait_for_all(arrived_ptr, (step + 1) * tl.num_programs(0))
        vector_ptr = out_ptr


@triton.jit
def columns_kernel(
    rowptr_ptr,
    col_ptr,
    value_ptr,
    vector_ptr,
    previous_ptr,
    out_ptr,
    width,
    a,
    b,
    ENTRIES: tl.constexpr,
    COLS: tl.constexpr,
):
    """The same for several columns, `[N, width]`."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    in_cols = cols < width
    end = tl.load(rowptr_ptr + row + 1)
    total = tl.zeros([ENTRIES, COLS], dtype=tl.float32)
    for first in range(tl.load(rowptr_ptr + row), end, ENTRIES):
        entries = first + tl.arange(0, ENTRIES)
        in_row = entries < end
        col = tl.load(col_ptr + entries, mask=in_row, other=0).to(tl.int64)
        value = tl.load(value_ptr + entries, mask=in_row, other=0.0)
        mask = in_row[:, None] & in_cols[None, :]
        x = tl.load(vector_ptr + col[:, None] * width + cols[None, :], mask=mask, other=0.0)
        total += value[:, None] * x
    at = row * width + cols
    previous = tl.load(previous_ptr + at, mask=in_cols, other=0.0)
    tl.store(out_ptr + at, a * tl.sum(total, axis=0) + b * previous, mask=in_cols)


@lru_cache
def _num_programs(device: torch.device) -> int:
    """How many run at once; Triton's interpreter runs them one after the other."""
    if device.type != "cuda":
        return 1
    gpu = torch.cuda.get_device_properties(device)
    fit = min(_PROGRAMS, gpu.max_threads_per_multi_processor // (32 * _WARPS))
    return fit * gpu.multi_processor_count


def _iterate(
    x: Tensor, matrix: CompressedRows, constant: Tensor, a: float, b: float, steps: int
) -> Tensor:
    """`a * matrix @ x + b * constant` for one column, `steps` times in one launch."""
    num_rows = x.size(0)
    programs = -(-num_rows // _ROWS)  # `triton.cdiv` takes the host longer
    options: dict[str, Any] = {}
    if steps > 1:
        programs = min(programs, _num_programs(x.device))
        if programs > 1:
            options = {"launch_cooperative_grid": True, "maxnreg": _REGISTERS}
    buffers = x.new_empty(min(steps, 2), num_rows, 1)
    counter = torch.zeros if steps > 1 else torch.empty  # of a single step nobody waits for
    arrived = counter(1, dtype=torch.int32, device=x.device)
    with torch.cuda.device_of(x):
        column_kernel[(programs,)](
            *(*matrix, x, constant, buffers, arrived, num_rows, steps, a, b),
            **{"ROWS": _ROWS, "ENTRIES": _ENTRIES, "num_warps": _WARPS, **options},
        )
    return buffers[(steps - 1) % 2]


def forward(x: Tensor, matrix: CompressedRows, alpha: float, steps: int) -> Tensor:
    """:func:`graphrelu.functional.pagerank` of a contiguous `x [N, F]` in float32."""
    num_rows, width = x.shape
    if width == 1 and HAS_COOPERATIVE_LAUNCH:
        return _iterate(x, matrix, x, 1.0 - alpha, float(alpha), steps)
    cols = min(_COLS, triton.next_power_of_2(width))

    def add_product(
        previous: Tensor, matrix: CompressedRows, current: Tensor, *, beta: float, alpha: float
    ) -> Tensor:
        if width == 1:
            return _iterate(current, matrix, previous, alpha, beta, steps=1)
        out = torch.empty_like(current)
        with torch.cuda.device_of(out):
            columns_kernel[(num_rows, triton.cdiv(width, cols))](
                *(*matrix, current, previous, out, width, alpha, beta),
                ENTRIES=_TILE // cols,
                COLS=cols,
                num_warps=1,
            )
        return out

    return pagerank(x, matrix, alpha, steps, add_product)
