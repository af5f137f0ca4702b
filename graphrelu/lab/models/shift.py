"""The graph as GCN propagates over it, for activations that look at their neighbours."""

from typing import Any

import torch
from torch import Tensor

from graphrelu.checks import check_batch, check_features, may_look
from graphrelu.diffusion import DiffusionSettings, PreparedGraph, prepared

# GCN's propagation: one step without teleport, over the graph with self-loops.
SHIFT = DiffusionSettings(alpha=0.0, steps=1, diffusion="power", add_self_loops=True)


def shift(
    x: Tensor,
    channels: int,
    edge_index: Any,
    edge_weight: Tensor | None,
    batch: Tensor | None,
    batch_size: int | None,
) -> tuple[PreparedGraph, Tensor | None, int]:
    r"""The operator :math:`\mathbf{S} = \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}}
    \hat{\mathbf{D}}^{-1/2}` with :math:`\hat{\mathbf{A}} = \mathbf{A} + \mathbf{I}`, prepared once
    per graph, and the batch vector with its number of graphs; all arguments are checked."""
    if isinstance(edge_index, PreparedGraph):
        return edge_index, batch, 1 if batch_size is None else batch_size
    check_features(x, edge_index, edge_weight, channels)
    looks = may_look(x)
    batch, batch_size = check_batch(x, batch, batch_size, looks)
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        graph = prepared(edge_index, edge_weight, x.size(0), dtype, SHIFT, batch, looks)
    return graph, batch, batch_size
