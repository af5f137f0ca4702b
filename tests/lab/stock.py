"""The laboratory's networks with the forward passes of PyG's own convolutions, as a reference."""

from torch import Tensor

from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.models.propagation import PreparedInputs


def by_pyg(model: GNN, x: Tensor, edge_index: Tensor, weight: Tensor | None = None) -> Tensor:
    """The model's outputs."""
    out: Tensor = model(PreparedInputs(x, None, edge_index, weight))
    return out
