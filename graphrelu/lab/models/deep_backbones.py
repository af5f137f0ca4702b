"""Deep networks, as they are trained today: for nodes, and for graphs of a set."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import APPNP, GATConv, GINConv, SAGEConv

from graphrelu.lab.models.backbones import (
    BACKBONES,
    MaskedBatchNorm,
    NodeNetwork,
    check_layers,
    check_name,
    convolution,
)
from graphrelu.lab.models.graph_backbones import POOLING, GraphGNN, pool
from graphrelu.lab.models.propagation import SelfLoopSAGEConv
from graphrelu.lab.models.sparse import Features

# The options of each backbone, and what they are unless told otherwise.
DEEP_BACKBONES: dict[str, dict[str, Any]] = {
    "gcn": {},
    "sage": {"add_self_loops": False},
    "gat": {"heads": 8},
    "gin": {},
    "cheb": BACKBONES["cheb"],
    "arma": BACKBONES["arma"],
    "appnp": BACKBONES["appnp"],
}
NORMS = ("layer", "batch")


class DeepGNN(NodeNetwork):
    r"""Any number of graph convolutions, and a linear head.

    Each layer is a convolution with a linear skip around it, then normalisation, an activation of
    its own and dropout: the networks of `"Classic GNNs are Strong Baselines"
    <https://arxiv.org/abs/2406.08993>`_. As in
    :class:`~graphrelu.lab.models.backbones.GNN`, features and graph can be prepared, and the
    arguments that are not listed are the same; dropout follows each activation.

    Args:
        backbone (str): :obj:`"gcn"`, :obj:`"sage"` (mean), :obj:`"gat"` (the heads'
            outputs side by side), :obj:`"gin"` (with an MLP of two layers, whose inner ReLU is
            not the compared activation), :obj:`"cheb"`, :obj:`"arma"` or :obj:`"appnp"` (linear
            layers, and one propagation at the end).
        hidden_channels (int): Size of each hidden layer, for :obj:`"gat"` of all heads together.
        layers (int, optional): Number of convolutions. (default: :obj:`4`)
        norm (str, optional): :obj:`"layer"`, :obj:`"batch"`, or none. Batch normalisation takes
            the statistics of all nodes it is called with, in evaluation as well: where every
            pass sees the whole graph, they are the statistics of training.
            (default: :obj:`None`)
        residual (bool, optional): If set to :obj:`True`, a linear map of a convolution's input is
            added to its output, before normalisation and activation. (default: :obj:`False`)
        linear_first (bool, optional): If set to :obj:`True`, the features are projected to the
            hidden size, with dropout, before the first convolution. (default: :obj:`False`)
        **backbone_options (optional): :obj:`add_self_loops` (default: :obj:`False`) of
            :obj:`"sage"`, with which a node is one of its neighbours; :obj:`heads` (default:
            :obj:`8`) of :obj:`"gat"`; those of :class:`~graphrelu.lab.models.backbones.GNN` for
            :obj:`"cheb"`, :obj:`"arma"` and :obj:`"appnp"`.
    """

    def __init__(
        self,
        backbone: str,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        activation: str | Callable[..., torch.nn.Module] = "relu",
        layers: int = 4,
        norm: str | None = None,
        residual: bool = False,
        linear_first: bool = False,
        dropout: float = 0.5,
        activation_options: dict[str, Any] | None = None,
        **backbone_options: Any,
    ) -> None:
        super().__init__(
            DEEP_BACKBONES,
            backbone,
            (in_channels, hidden_channels, out_channels),
            activation,
            dropout,
            activation_options,
            backbone_options,
        )
        check_layers(layers)
        if norm is not None:
            check_name("norm", norm, NORMS)
        options = self.backbone_options
        if backbone == "gat" and hidden_channels % options["heads"] != 0:
            raise ValueError(
                f"hidden_channels must be a multiple of heads ({options['heads']}), "
                f"got {hidden_channels}."
            )
        settings = {"layers": layers, "norm": norm}
        settings |= {"residual": residual, "linear_first": linear_first}
        self.backbone_options = {**settings, **options}

        self.first = Linear(in_channels, hidden_channels) if linear_first else None
        for layer in range(layers):
            width = in_channels if layer == 0 and not linear_first else hidden_channels
            self.convs.append(self._convolution(width, options))
            if residual:
                self.skips.append(Linear(width, hidden_channels))
            if norm == "layer":
                self.norms.append(torch.nn.LayerNorm(hidden_channels))
            elif norm == "batch":
                # Running statistics would be updated in place, which vmap does not allow.
                batch_norm = torch.nn.BatchNorm1d(hidden_channels, track_running_stats=False)
                self.norms.append(batch_norm)
            self.acts.append(self.make_activation(hidden_channels))
        self.head = Linear(hidden_channels, out_channels)
        if backbone == "appnp":
            self.propagation = APPNP(**options)

    def _convolution(self, in_channels: int, options: dict[str, Any]) -> torch.nn.Module:
        width = self.hidden_channels
        if self.backbone == "gat":
            return GATConv(in_channels, width // options["heads"], options["heads"])
        if self.backbone == "gin":
            return gin_convolution(in_channels, width)
        if self.backbone == "sage":
            kind = SelfLoopSAGEConv if options["add_self_loops"] else SAGEConv
            return kind(in_channels, width)
        return convolution(self.backbone, in_channels, width, options)

    def _layers(
        self,
        x: Features,
        graph: tuple[Any, ...],
        apply: Callable[[torch.nn.Module, Any], Tensor],
    ) -> Tensor:
        if self.first is not None:
            x = F.dropout(apply(self.first, x), p=self.dropout, training=self.training)
        for layer in range(len(self.convs)):
            x = F.dropout(self._layer(layer, x, graph, apply), self.dropout, self.training)
        out = apply(self.head, x)
        return out if self.propagation is None else apply(self.propagation, out)


class DeepGraphGNN(GraphGNN):
    r"""The layers of :class:`DeepGNN`; pooling and a linear head turn the nodes of each graph into
    its outputs, as in :class:`~graphrelu.lab.models.graph_backbones.GraphGNN`, whose calls it has.
    The arguments that are not listed are those of :class:`DeepGNN`.

    Args:
        backbone (str): :obj:`"gcn"`, :obj:`"sage"` or :obj:`"gin"`.
        norm (str, optional): :obj:`"layer"`, :obj:`"batch"` with running statistics, or none.
            (default: :obj:`None`)
    """

    def __init__(
        self,
        backbone: str,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        activation: str | Callable[..., torch.nn.Module] = "relu",
        layers: int = 4,
        norm: str | None = None,
        residual: bool = False,
        dropout: float = 0.5,
        activation_options: dict[str, Any] | None = None,
    ) -> None:
        channels = in_channels, hidden_channels, out_channels
        super().__init__(backbone, *channels, layers, activation, dropout, activation_options)
        if norm is not None:
            check_name("norm", norm, NORMS)
        self.backbone_options |= {"norm": norm, "residual": residual}
        kind = {"layer": torch.nn.LayerNorm, "batch": MaskedBatchNorm}.get(norm or "")
        self.norms = torch.nn.ModuleList(kind(hidden_channels) for _ in self.convs if kind)
        widths = (in_channels, *(layers - 1) * (hidden_channels,))
        self.skips = torch.nn.ModuleList(Linear(w, hidden_channels) for w in widths if residual)

    def _convolution(self, in_channels: int) -> torch.nn.Module:
        if self.backbone == "gin":
            return gin_convolution(in_channels, self.hidden_channels)
        return super()._convolution(in_channels)

    def _layer(self, *arguments: Any) -> Tensor:
        return F.dropout(super()._layer(*arguments), self.dropout, self.training)

    def _readout(self, features: Sequence[Tensor], batch: Tensor, batch_size: int) -> Tensor:
        out: Tensor = self.head(pool(features[-1], batch, batch_size, POOLING[self.backbone]))
        return out


def gin_convolution(in_channels: int, out_channels: int) -> torch.nn.Module:
    """With an MLP of two layers, whose inner ReLU is not the compared activation."""
    mlp = (Linear(in_channels, out_channels), torch.nn.ReLU(), Linear(out_channels, out_channels))
    return GINConv(torch.nn.Sequential(*mlp))
