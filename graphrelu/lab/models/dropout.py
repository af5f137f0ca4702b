"""Dropout whose mask depends on the seed of the run, not on the other runs of the batch.

A mask is a hash of (seed, step, number of the call within the step, element): the same alone and
in a batch of any size, on any device. :class:`SeededDropout` puts it in the place of
`torch.nn.functional.dropout` in every module called inside, PyG's convolutions included. On a GPU
one kernel hashes and drops, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from graphrelu.ops import replicated, uses_triton

# Odd multipliers with well spread bits: the golden ratio's, those of MurmurHash3's finaliser, and
# one of a random generator's.
HASH = {"SPREAD": 0x9E3779B1, "FIRST": 0x85EBCA6B, "SECOND": 0xC2B2AE35, "CALL": 0x2545F491}
_BLOCK = 1024  # elements of a program


def _signed(value: int) -> int:
    """A 32-bit constant as torch's signed type holds it."""
    return value - (1 << 32) if value >= 1 << 31 else value


_SPREAD, _FIRST, _SECOND, _CALL = map(_signed, HASH.values())

_CPU_BLOCK = 1 << 15  # elements, so that a block stays in the cache of a core


def _mix(bits: Tensor) -> Tensor:
    """MurmurHash3's finaliser, in place; int32 products wrap around, as the hash needs."""
    # torch shifts arithmetically: the mask clears the copies of the sign.
    bits ^= (bits >> 16) & 0xFFFF
    bits *= _FIRST
    bits ^= (bits >> 13) & 0x7FFFF
    bits *= _SECOND
    bits ^= (bits >> 16) & 0xFFFF
    return bits


@torch.library.custom_op("graphrelu_lab::keep_mask", mutates_args=())
def keep_mask(seed: Tensor, step: Tensor, call: int, numel: int, p: float) -> Tensor:
    """Which of `numel` elements stay, `[*seed.shape, numel]`; each with probability `1 - p`."""
    # Equal hashes in a stage would repeat in all later ones, so each stage mixes fully.
    key = seed.to(torch.int32).unsqueeze(-1) * _SPREAD
    key = _mix(_mix(key + 1) + step.to(torch.int32) * _SPREAD)
    key = _mix(key + (call + 1) * _CALL)
    if seed.is_cpu:
        return _keep_mask_on_cpu(key, numel, int(p * 2**31))
    index = torch.arange(numel, dtype=torch.int32, device=seed.device) * _SPREAD
    bits = _mix(_mix(index + key) + key)
    return (bits & 0x7FFFFFFF) >= int(p * 2**31)


def _keep_mask_on_cpu(key: Tensor, numel: int, threshold: int) -> Tensor:
    """The same by NumPy, whose integer operations take a tenth of the time of torch's."""
    mask = torch.empty(*key.shape[:-1], numel, dtype=torch.bool)
    rows, keys = mask.view(key.numel(), numel).numpy(), key.flatten().numpy().view(np.uint32)
    index = np.arange(numel, dtype=np.uint32) * np.uint32(HASH["SPREAD"])
    room = np.empty((2, _CPU_BLOCK), dtype=np.uint32)
    for start in range(0, numel, _CPU_BLOCK):
        block = index[start : start + _CPU_BLOCK]
        bits, shifted = room[:, : block.size]
        for row, own_key in zip(rows, keys, strict=True):
            bits[:] = block
            for _ in range(2):
                bits += own_key
                for shift, factor in ((16, HASH["FIRST"]), (13, HASH["SECOND"]), (16, 1)):
                    np.right_shift(bits, shift, out=shifted)
                    bits ^= shifted
                    bits *= np.uint32(factor)
            bits &= 0x7FFFFFFF
            np.greater_equal(bits, threshold, out=row[start : start + _CPU_BLOCK])
    return mask


@keep_mask.register_fake
def _(seed: Tensor, step: Tensor, call: int, numel: int, p: float) -> Tensor:
    return seed.new_empty((*seed.shape, numel), dtype=torch.bool)


@keep_mask.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], seed: Tensor, step: Tensor, call: int, numel: int, p: float
) -> tuple[Tensor, int]:
    return keep_mask(seed.movedim(in_dims[0], 0), step, call, numel, p), 0


@torch.library.custom_op("graphrelu_lab::seeded_dropout", mutates_args=())
def _seeded_dropout(x: Tensor, seed: Tensor, step: Tensor, call: int, p: float) -> Tensor:
    """Dropout of `x [R, ...]`, whose replicas may be one expanded tensor, by `seed [R]`."""
    from graphrelu.lab.models import kernels  # needs Triton

    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    if not x[0].is_contiguous():
        x = x.contiguous()
    replicas, numel = x.size(0), x[0].numel()
    kernels.dropout_kernel[-(-numel // _BLOCK), replicas](
        *(x, seed.contiguous(), step, out, numel, x.stride(0), call, int(p * 2**31)),
        **{"SCALE": 1 / (1 - p), "BLOCK": _BLOCK, **HASH},
    )
    return out


@_seeded_dropout.register_fake
def _(x: Tensor, seed: Tensor, step: Tensor, call: int, p: float) -> Tensor:
    return x.new_empty(x.shape)


@_seeded_dropout.register_vmap
def _(
    info: Any, in_dims: tuple[Any, ...], x: Tensor, seed: Tensor, step: Tensor, call: int, p: float
) -> tuple[Tensor, int]:
    x, seed = (
        replicated(tensor, dim, info.batch_size)
        for tensor, dim in zip((x, seed), in_dims, strict=False)
    )
    out = _seeded_dropout(x.flatten(0, 1), seed.flatten(), step, call, p)
    return out.unflatten(0, x.shape[:2]), 0


class _SeededDropout(torch.autograd.Function):
    """The backward pass drops the gradient; the mask is computed again, not kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, seed: Tensor, step: Tensor, call: int, p: float) -> Tensor:
        return _seeded_dropout(x.unsqueeze(0), seed.unsqueeze(0), step, call, p).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, seed, step, *ctx.options = inputs
        ctx.save_for_backward(seed, step)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x = _SeededDropout.apply(grad, *ctx.saved_tensors, *ctx.options)
        return grad_x, None, None, None, None


class SeededDropout(TorchFunctionMode):
    """Inside this context dropout draws its masks for `seed` at `step`.

    Args:
        seed: The run's seed, a scalar tensor; under `vmap` one for each run.
        step: The training step, a scalar tensor.
    """

    def __init__(self, seed: Tensor, step: Tensor) -> None:
        super().__init__()
        self.seed = seed
        self.step = step
        self.call = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.dropout:
            return self._dropout(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _dropout(
        self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return x
        call, self.call = self.call, self.call + 1
        if uses_triton(x):
            out: Tensor = _SeededDropout.apply(x, self.seed, self.step, call, p)
            return out
        keep = keep_mask(self.seed, self.step, call, x.numel(), p).view(x.shape)
        # A product, as torch's own dropout: `where` takes ten times as long on a CPU.
        return x / (1 - p) * keep.to(x.dtype)
