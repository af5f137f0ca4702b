"""How a pass over the features is divided: programs, and the tiles of rows and channels they take.

A program walks over tiles of rows and keeps sums over the rows in registers. Partial sums are
written by program and added in a fixed order: the same input gives the same bits twice. Everything
is computed in float32, whatever the type of the features. Rows and offsets are 64-bit: features may
have more elements than 32 bits can count.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

_MAX_CHANNELS_PER_TILE = 256
# Wider tiles have other settings.
_WIDE = 128


class Setting(NamedTuple):
    """How a pass is divided."""

    tile: int  # elements
    num_warps: int
    stages: int  # of the loop over tiles; from 2 on, loads are ahead of their use
    programs: int  # that walk over the rows, at most


# Of each pass, by the bytes of a feature. Registers decide: a thread of the backward pass keeps
# four sums for each of its elements. Programs are a multiple of what a large GPU runs at a time, to
# hide the latency of its loads, and few enough that their partial sums cost nothing. Measured on an
# H200.
_SETTINGS = {
    "apply": {4: Setting(2048, 4, 1, 1056), 2: Setting(2048, 4, 2, 1056)},
    "apply_backward": {4: Setting(1024, 4, 3, 1056), 2: Setting(1024, 4, 3, 1056)},
    "project": {4: Setting(2048, 4, 2, 1056), 2: Setting(2048, 4, 2, 1056)},
    "project_backward": {4: Setting(1024, 4, 1, 1584), 2: Setting(2048, 4, 3, 1056)},
}
_WIDE_SETTINGS = {"apply_backward": {2: Setting(512, 4, 3, 1056)}}


@lru_cache(maxsize=1024)
def plan(
    name: str, dtype: torch.dtype, num_nodes: int, channels: int, replicas: int
) -> tuple[int, dict[str, Any]]:
    """The programs of a pass for each replica, and their constants."""
    cols = min(triton.next_power_of_2(channels), _MAX_CHANNELS_PER_TILE)
    setting = _SETTINGS[name].get(dtype.itemsize, _SETTINGS[name][4])
    if cols > _WIDE:
        setting = _WIDE_SETTINGS.get(name, {}).get(dtype.itemsize, setting)
    rows = max(1, setting.tile // cols)
    at_most = setting.programs // replicas
    programs = max(1, min(triton.cdiv(num_nodes, rows), at_most))
    tile = {"C": channels, "ROWS": rows, "COLS": cols, "STAGES": setting.stages}
    return programs, {"num_warps": setting.num_warps, **tile}


def with_dense_rows(tensor: Tensor) -> Tensor:
    """The tensor itself if its last dimension is consecutive; else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.size(-1) == 1 else tensor.contiguous()


def with_replicas(tensor: Tensor, own_dims: int) -> Tensor:
    """With a leading dimension of replicas."""
    return tensor if tensor.dim() > own_dims else tensor.unsqueeze(0)
