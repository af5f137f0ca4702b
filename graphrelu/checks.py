"""Bad input gets one sentence that names the argument and what was expected."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphrelu.functional import DEFAULT, DIFFUSIONS, MODES, Form
from graphrelu.ops.cpu import can_be_read, is_read_for_free


def check_options(
    form: Form,
    channels: int,
    alpha: float,
    steps: int,
    diffusion: str,
    node_wise: bool,
    channel_wise: bool,
) -> None:
    """The arguments of :class:`~graphrelu.GReLU`."""
    for name, value in (("channels", channels), ("K", form.K), ("steps", steps)):
        check_count(name, value)
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha must be in (0, 1], got {alpha}.")
    if diffusion not in DIFFUSIONS:
        raise ValueError(f"diffusion must be one of {', '.join(DIFFUSIONS)}, got {diffusion!r}.")
    if form.mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {form.mode!r}.")
    if not (node_wise or channel_wise):
        raise ValueError("node_wise and channel_wise must not both be False: nothing would adapt.")
    for name in ("scale", "temperature"):
        if not getattr(form, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(form, name)}.")
    if math.isinf(form.scale):
        raise ValueError("scale must be finite, got inf.")
    if not 0 <= form.dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), got {form.dropout}.")
    if not form.negative_slope <= 1:
        raise ValueError(
            f"negative_slope must be at most 1, as max(x, s * x) is LeakyReLU only then, "
            f"got {form.negative_slope}."
        )
    if form.mode == "paper":
        for name in ("negative_slope", "dropout", "scale", "temperature"):
            if getattr(form, name) != getattr(DEFAULT, name):
                raise ValueError(f"{name} must be left out in mode='paper', which has none.")


def check_count(name: str, value: Any) -> None:
    """A whole number from 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")


def check_features(x: Any, edge_index: Any, edge_weight: Tensor | None, channels: int) -> None:
    """What can be told of `x`, and of where the graph is, without looking at values."""
    for name, value in (("x", x), ("edge_index", edge_index)):
        if not isinstance(value, Tensor) and isinstance(value, (Mapping, HeteroData)):
            raise TypeError(
                f"{name} must belong to one node type, got {type(value).__name__}: use one GReLU "
                "per node type, with that type's x and the edge_index of a relation within it."
            )
    if isinstance(x, tuple):
        raise TypeError(
            "x must belong to one node type, got a tuple, as from to_hetero: use to_hetero on what "
            "is between the activations, and HeteroGReLU as activation."
        )
    if isinstance(x, Data):
        raise TypeError("x must be a tensor, got Data: pass data.x and data.edge_index.")
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}.")
    if not x.is_floating_point():
        raise TypeError(f"x must be of a floating type, got {x.dtype}.")
    if x.dim() != 2:
        raise ValueError(f"x must be of shape [num_nodes, {channels}], got {list(x.shape)}.")
    if x.size(1) != channels:
        raise ValueError(f"x must have {channels} channels, got {x.size(1)}.")
    if isinstance(edge_weight, Tensor) and not edge_weight.is_floating_point():
        raise TypeError(
            f"edge_weight must be of a floating type, got {edge_weight.dtype}: a batch vector is "
            "given by its name, batch=batch."
        )
    check_device("edge_index", edge_index, x)
    check_device("edge_weight", edge_weight, x)


def check_device(name: str, tensor: Any, x: Tensor) -> None:
    if isinstance(tensor, Tensor) and tensor.device != x.device:
        raise ValueError(f"{name} must be on {x.device}, where x is, got {tensor.device}.")


def check_batch(
    x: Tensor, batch: Tensor | None, batch_size: int | None, looks: bool
) -> tuple[Tensor | None, int]:
    """Returns the batch vector and the number of graphs; none and 1 for a single graph."""
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch must be given for a batch_size of {batch_size}.")
        return None, 1
    if not isinstance(batch, Tensor) or batch.dtype not in (torch.int64, torch.int32):
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"batch must be a tensor of int64 graph ids, got {kind}.")
    if batch.shape != (x.size(0),):
        raise ValueError(
            f"batch must be of shape [{x.size(0)}], one graph id per node, got {list(batch.shape)}."
        )
    check_device("batch", batch, x)
    if batch_size is None:
        batch_size = int(batch[-1]) + 1 if batch.numel() > 0 else 0
    if looks and batch.numel() > 0 and can_be_read(batch):
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch must be sorted in ascending order.")
        if int(batch[0]) < 0:
            raise ValueError(f"batch must not hold negative graph ids, got {int(batch[0])}.")
        if int(batch[-1]) >= batch_size:
            raise ValueError(
                f"batch must hold graph ids below batch_size={batch_size}, got {int(batch[-1])}."
            )
    return batch.long(), batch_size


def may_look(x: Tensor) -> bool:
    """Whether values may be looked at here: it would break a graph or synchronise a GPU."""
    return is_read_for_free(x)
