"""The forms of the study of the context, and their training where only torch, PyG and NumPy are.

`python -m scripts.context_forms RUNS.pt RECORD.jsonl` takes the arguments of
`python -m graphrelu.lab.engine.prepared`.
"""

from typing import Any

import torch
from torch import Tensor

from graphrelu import GReLU
from graphrelu.functional import graph_mean, kept, piecewise_max
from graphrelu.lab.engine import prepared
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.graph_activation import GraphActivation
from graphrelu.ops import without_autocast
from graphrelu.ops.diffuse import DiffusionSettings, PreparedGraph, diffuse


def neighbours(x: Tensor, graph: PreparedGraph) -> Tensor:
    """A X."""
    assert graph.matrices is not None
    return diffuse(x, *graph.matrices, 0.0, 1)


class ContextGReLU(GReLU):
    """GReLU whose channel block sees the neighbourhood, beside the graph or in its place."""

    def __init__(self, channels: int, context: str = "neighbourhood", **options: Any) -> None:
        self.context = context
        super().__init__(channels, **options)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        assert self.channel_mlp is not None
        like = self.channel_mlp.weight
        self.neighbour_weight = torch.nn.Parameter(torch.zeros_like(like))
        if self.context == "neighbourhood":
            like.requires_grad_(False)  # stays zero

    def forward(self, x: Tensor, edge_index: Any = None, *rest: Any, **named: Any) -> Tensor:
        edge_weight, batch, batch_size = (*rest, None, None, None)[:3]
        batch, batch_size = named.get("batch", batch), named.get("batch_size", batch_size)
        graph, batch, batch_size = self._read(x, edge_index, edge_weight, batch, batch_size)
        assert self.channel_mlp is not None
        with without_autocast(x):
            gamma, _ = self._hyperfunction(x, graph, batch, batch_size)
            logits = self.channel_mlp.bias
            if self.context == "both":
                mean = self._mean(x, graph, batch, batch_size)
                logits = logits + self.channel_mlp.weight * mean.unsqueeze(-2)
            logits = logits + self.neighbour_weight * neighbours(x, graph).unsqueeze(-2)
            parameters = torch.tanh(self.scale * logits)  # [N, 2K, C]
            if self.training and self.dropout > 0:
                left = kept(graph.mass, x.size(0), self.channels, self.dropout)
                gamma, parameters = gamma * left.nodes, parameters * left.channels
            parameters = gamma.unsqueeze(-1) * parameters
            slopes, intercepts = parameters[:, : self.K], parameters[:, self.K :]
            alpha = [base + slopes[:, k] for k, base in enumerate(self._form.base_slopes)]
            return piecewise_max(x, alpha, intercepts.unbind(1))

    def _mean(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        """The mean of the diffused features, of each node's graph."""
        mean = graph_mean(x, graph.mass, batch, batch_size)
        return mean if batch is None else mean[batch]


class NeighbourReLU(GraphActivation):
    """The control: a path to the neighbours, learned for each channel, and a ReLU."""

    propagation = DiffusionSettings(alpha=0.1, steps=10)
    self_loops = False

    def __init__(self, channels: int, scale: float = 8.0) -> None:
        super().__init__(channels)
        self.scale = scale
        self.weight = torch.nn.Parameter(torch.zeros(channels))

    def reset_parameters(self) -> None:
        torch.nn.init.zeros_(self.weight)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        return (x + torch.tanh(self.scale * self.weight) * neighbours(x, graph)).relu()


MODULES = {"context-grelu": ContextGReLU, "neighbour-relu": NeighbourReLU}


# For configurations to name the forms: on import, as each process of a pool does.
ACTIVATIONS.update(MODULES)

if __name__ == "__main__":
    prepared.main()
