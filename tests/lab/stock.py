"""The laboratory's networks with the forward passes of PyG's own convolutions, as a reference."""

from unittest import mock

import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import GATConv, GINConv, SAGEConv

from graphrelu.lab.models import backbones
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.models.propagation import PreparedInputs


def by_pyg(model: GNN, x: Tensor, edge_index: Tensor, weight: Tensor | None = None) -> Tensor:
    """The model's outputs."""

    def convolve(conv: torch.nn.Module, x: Tensor, graph: None) -> Tensor:
        if isinstance(conv, Linear):
            return conv(x)
        if isinstance(conv, (SAGEConv, GATConv, GINConv)):  # know no edge weights
            return conv(x, edge_index)
        return conv(x, edge_index, weight)

    with mock.patch.object(backbones, "convolve", convolve):
        return model(PreparedInputs(x, None, edge_index, weight))  # type: ignore[arg-type]
