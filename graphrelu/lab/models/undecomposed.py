import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphrelu import functional
from graphrelu.checks import check_count
from graphrelu.graph import PreparedGraph
from graphrelu.lab.models.graph_activation import GraphActivation


class Undecomposed(GraphActivation):
    r"""The hyperfunction that the `"Graph-adaptive Rectified Linear Unit for Graph Neural
    Networks" <https://doi.org/10.1145/3485447.3512159>`_ paper rejects: one graph convolution
    that gives every node :math:`K` slopes and intercepts for each of its :math:`C` channels.

    .. math::
        x^{\prime}_{nc} = \max_{1 \leq k \leq K} \left\{ \alpha^k_{nc} x_{nc} + \beta^k_{nc}
        \right\}

    .. math::
        \alpha^k_{nc} &= [k = 1] + p^k_{nc}, \qquad \beta^k_{nc} = q^k_{nc}

        \mathbf{P}, \mathbf{Q} &= \tanh \left( s \left( \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}}
        \hat{\mathbf{D}}^{-1/2} \mathbf{X} \mathbf{W} + \mathbf{b} \right) \right), \qquad
        \hat{\mathbf{A}} = \mathbf{A} + \mathbf{I}

    Residual slopes, the factor :math:`s` and parameters that start at zero are those of
    :class:`~graphrelu.GReLU`: the two differ in the hyperfunction alone, of which this one has
    :math:`2KC(C + 1)` parameters and takes memory for :math:`2KC` numbers per node.

    Args:
        channels (int): Size of each input and output sample.
        K (int, optional): Number of segments. (default: :obj:`2`)
    """

    def __init__(self, channels: int, K: int = 2) -> None:
        super().__init__(channels)
        check_count("K", K)
        self.K = K
        self.conv = GCNConv(channels, 2 * K * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for parameter in self.conv.parameters():
            torch.nn.init.zeros_(parameter)

    def activate(
        self, x: Tensor, graph: PreparedGraph, batch: Tensor | None, batch_size: int
    ) -> Tensor:
        # Before the weights: of the two orders, this one propagates C columns and not 2KC.
        logits = F.linear(graph.diffuse(x), self.conv.lin.weight, self.conv.bias)
        form = functional.Form(K=self.K)
        slopes, intercepts = functional.channel_parameters(logits, self.channels, form).unbind(1)
        first = torch.arange(self.K, device=x.device).view(1, -1, 1) == 0
        return functional.piecewise_max(x, (first + slopes).unbind(1), intercepts.unbind(1))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, K={self.K})"
