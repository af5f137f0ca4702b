"""Seeded dropout as one Triton kernel: the mask is never stored."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _mix(bits, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Of unsigned bits: products wrap around and shifts bring in zeros."""
    bits ^= bits >> 16
    bits *= FIRST
    bits ^= bits >> 13
    bits *= SECOND
    return bits ^ (bits >> 16)


@triton.jit(do_not_specialize=["call"])
def dropout_kernel(
    x_ptr,
    seed_ptr,
    step_ptr,
    out_ptr,
    numel,
    x_replica,
    call,
    threshold,
    SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPREAD: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    CALL: tl.constexpr,
):
    """The stages of :func:`graphrelu.lab.models.dropout.keep_mask`, and what they keep, scaled."""
    replica = tl.program_id(1).to(tl.int64)
    key = tl.load(seed_ptr + replica).to(tl.uint32) * SPREAD
    key = _mix(key + 1, FIRST, SECOND) + tl.load(step_ptr).to(tl.uint32) * SPREAD
    key = _mix(key, FIRST, SECOND) + (call + 1).to(tl.uint32) * CALL
    key = _mix(key, FIRST, SECOND)
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = _mix(index.to(tl.uint32) * SPREAD + key, FIRST, SECOND) + key
    bits = _mix(bits, FIRST, SECOND)
    keep = (bits & 0x7FFFFFFF).to(tl.int32) >= threshold
    mask = index < numel
    x = tl.load(x_ptr + replica * x_replica + index, mask=mask, other=0.0)
    if x.dtype != tl.float64:
        x = x.to(tl.float32)
    out = tl.where(keep, x * SCALE, 0.0)
    tl.store(out_ptr + replica * numel + index, out.to(out_ptr.dtype.element_ty), mask=mask)


def seeded_dropout(
    x: Tensor, seed: Tensor, step: Tensor, call: int, p: float, hash_constants: dict[str, int]
) -> Tensor:
    """Dropout of `x [R, ...]`, whose replicas may be one expanded tensor, by `seed [R]`."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    if not x[0].is_contiguous():
        x = x.contiguous()
    replicas, numel = x.size(0), x[0].numel()
    dropout_kernel[(triton.cdiv(numel, _BLOCK), replicas)](
        x,
        seed.contiguous(),
        step,
        out,
        numel,
        x.stride(0),
        call,
        int(p * 2**31),
        SCALE=1 / (1 - p),
        BLOCK=_BLOCK,
        **hash_constants,
    )
    return out
