"""Dropout whose mask depends on the seed of the run, not on the other runs of the batch.

A mask is a hash of (seed, step, number of the call within the step, element): the same alone and
in a batch of any size, on any device. :class:`SeededDropout` puts it in the place of
`torch.nn.functional.dropout` in every module called inside, PyG's convolutions included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

# Odd multipliers with well spread bits: the golden ratio's, those of MurmurHash3's finaliser, and
# one of a random generator's.
HASH = {"SPREAD": 0x9E3779B1, "FIRST": 0x85EBCA6B, "SECOND": 0xC2B2AE35, "CALL": 0x2545F491}


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
        keep = keep_mask(self.seed, self.step, call, x.numel(), p).view(x.shape)
        # A product, as torch's own dropout: `where` takes ten times as long on a CPU.
        return x / (1 - p) * keep.to(x.dtype)
