"""The graph networks of the paper's comparison, from PyG's convolutions: one class for all."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import (
    APPNP,
    ARMAConv,
    ChebConv,
    GATConv,
    GCNConv,
    GINConv,
    SAGEConv,
    SGConv,
)
from torch_geometric.nn.inits import reset

from graphrelu.diffusion import as_edges, check_values
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.propagation import PreparedInputs, convolve, prepare_graph
from graphrelu.lab.models.sparse import Features, as_features, dropout

# The options of each backbone, and what they are unless told otherwise.
BACKBONES: dict[str, dict[str, Any]] = {
    "cheb": {"K": 2},
    "gcn": {},
    "sage": {},
    "gat": {"heads": 8, "output_heads": 1},
    "arma": {"num_stacks": 2, "num_layers": 1, "shared_weights": False, "skip_dropout": 0.5},
    "appnp": {"K": 10, "alpha": 0.1},
    "sgc": {"K": 2},
}

_WITH_INPUT_DROPOUT = ("gat", "appnp")
_WITHOUT_EDGE_WEIGHTS = (SAGEConv, GATConv, GINConv)


class MaskedBatchNorm(torch.nn.BatchNorm1d):
    r""":class:`~torch.nn.BatchNorm1d` over those rows that are nodes, the others being padding.

    In training the running statistics are updated in place, also under :func:`torch.func.vmap`
    over stacked buffers, each model from its own rows.
    """

    running_mean: Tensor
    running_var: Tensor
    momentum: float

    def forward(self, x: Tensor, is_node: Tensor | None = None) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The features, of shape :math:`(N, C)`.
            is_node (torch.Tensor, optional): Which rows are nodes, of shape :math:`(N)`; all of
                them unless given. (default: :obj:`None`)
        """
        mean, variance = self.running_mean, self.running_var
        if self.training:
            if is_node is None:
                is_node = torch.ones_like(x[:, 0])
            share = is_node.to(x.dtype).unsqueeze(1)
            count = share.sum().clamp(min=1.0)
            mean = (share * x).sum(dim=0) / count
            variance = (share * (x - mean).square()).sum(dim=0) / count
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1.0))
                for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                    running.mul_(1 - self.momentum).add_(new, alpha=self.momentum)
        return (x - mean) * ((variance + self.eps).rsqrt() * self.weight) + self.bias


class Network(torch.nn.Module):
    """The common part of all networks: names, sizes, a layer, activations and reset.

    The arguments are those of :class:`GNN`; `known` are its backbones with their options.
    """

    def __init__(
        self,
        known: Mapping[str, Mapping[str, Any]],
        backbone: str,
        channels: tuple[int, int, int],
        activation: str | Callable[..., torch.nn.Module],
        dropout: float,
        activation_options: dict[str, Any] | None,
        backbone_options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        check_name("backbone", backbone, known)
        for option in backbone_options:
            check_name(f"options of backbone {backbone!r}", option, known[backbone])
        self.backbone = backbone
        self.in_channels, self.hidden_channels, self.out_channels = channels
        self.activation = activation
        self.dropout = dropout
        self.activation_options = activation_options or {}
        self.backbone_options = {**known[backbone], **backbone_options}
        self.convs = torch.nn.ModuleList()
        self.skips = torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        self.acts = torch.nn.ModuleList()
        self.propagation: torch.nn.Module | None = None

    def _layer(
        self,
        layer: int,
        x: Features,
        graph: tuple[Any, ...],
        apply: Callable[[torch.nn.Module, Any], Tensor],
        is_node: Tensor | None = None,
    ) -> Tensor:
        """Convolution, skip, normalisation and activation of a layer.

        `graph` is what the activations are called with, besides the features; `apply` calls a
        convolution; `is_node` is false for padding.
        """
        out = apply(self.convs[layer], x)
        if len(self.skips) > 0:
            out = out + apply(self.skips[layer], x)
        if len(self.norms) > 0:
            norm = self.norms[layer]
            out = norm(out, is_node) if isinstance(norm, MaskedBatchNorm) else norm(out)
        activated: Tensor = self.acts[layer](out, *graph)
        return activated

    def make_activation(self, channels: int) -> torch.nn.Module:
        """A fresh activation for a layer."""
        make = self.activation
        if isinstance(make, str):
            check_name("activation", make, ACTIVATIONS)
            make = ACTIVATIONS[make]
        act = make(channels, **self.activation_options)
        for module in act.modules():
            if list(module.parameters(recurse=False)) and not hasattr(module, "reset_parameters"):
                # Parameters that survive a reset would carry labels from one run to the next.
                name = type(module).__name__
                raise TypeError(f"activation must have a method reset_parameters, {name} has none.")
        return act

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module, those of the activations included, and
        running statistics."""
        for module in self.children():
            reset(module)

    def __repr__(self) -> str:
        name = self.activation
        name = name if isinstance(name, str) else getattr(name, "__name__", repr(name))
        options = "".join(f", {key}={value}" for key, value in self.backbone_options.items())
        return (
            f"{self.__class__.__name__}({self.backbone}, {self.in_channels}, "
            f"{self.hidden_channels}, {self.out_channels}, activation={name}, "
            f"dropout={self.dropout}{options})"
        )


class NodeNetwork(Network):
    """The common part of networks for nodes: forward passes on PyG's and on prepared inputs."""

    def forward(
        self,
        x: Tensor | PreparedInputs,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor or PreparedInputs): The node features; or features and graph from
                :meth:`prepare`, and nothing else.
            edge_index (torch.Tensor): The edge indices, or a sparse transposed adjacency.
            edge_weight (torch.Tensor, optional): The edge weights. :obj:`"sage"`,
                :obj:`"gat"` and :obj:`"gin"` leave them to the activation.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of each node, for the activation.
                (default: :obj:`None`)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`)
        """
        if isinstance(x, PreparedInputs):
            inputs = x
            fast = partial(convolve, graph=inputs.graph)
            return self._layers(inputs.x, inputs[2:], fast)

        def pyg(conv: torch.nn.Module, x: Tensor) -> Tensor:
            if isinstance(conv, torch.nn.Linear):
                return conv(x)
            if isinstance(conv, _WITHOUT_EDGE_WEIGHTS):
                return conv(x, edge_index)
            return conv(x, edge_index, edge_weight)

        return self._layers(x, (edge_index, edge_weight, batch, batch_size), pyg)

    def _layers(
        self,
        x: Features,
        graph: tuple[Any, ...],
        apply: Callable[[torch.nn.Module, Any], Tensor],
    ) -> Tensor:
        """All layers; the arguments are those of a layer."""
        raise NotImplementedError

    @torch.no_grad()
    def prepare(
        self,
        x: Features,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> PreparedInputs:
        r"""Features and graph, as constants, in the form that is fastest for this backbone.

        The arguments are those of :meth:`forward`; `x` may also be a sparse CSR tensor, and is
        kept sparse where fewer than a tenth of its entries are not zero. The result serves every
        model of the same backbone and options.
        """
        features = as_features(x)
        edges = as_edges(edge_index, edge_weight, features.size(0), features.dtype)
        check_values(edges, "power", batch)
        conv = self.convs[0] if self.propagation is None else self.propagation
        graph = prepare_graph(conv, edges)
        return PreparedInputs(features, graph, edge_index, edge_weight, batch, batch_size)


class GNN(NodeNetwork):
    r"""Two layers of a graph convolution, with an activation and dropout between them.

    .. code-block:: python

        model = GNN("gcn", 1433, 16, 7, activation="grelu")
        out = model(x, edge_index)

        inputs = model.prepare(x, edge_index)  # where features and graph never change:
        out = model(inputs)  # the same numbers, from sparse products alone

    The second form is made for :func:`torch.func.vmap` over the parameters of many models, and
    keeps sparse features sparse.

    Args:
        backbone (str): :obj:`"cheb"`, :obj:`"gcn"`, :obj:`"sage"` (mean), :obj:`"gat"`,
            :obj:`"arma"`, :obj:`"appnp"` or :obj:`"sgc"` (linear, without a hidden layer).
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the hidden layer, for :obj:`"gat"` of each head.
        out_channels (int): Size of each output sample.
        activation (str or callable, optional): A name of
            :obj:`~graphrelu.lab.models.activations.ACTIVATIONS`, or a function that makes a module
            from a number of channels, called as :class:`~graphrelu.GReLU`; :obj:`"none"` for
            :obj:`"sgc"`. (default: :obj:`"relu"`)
        dropout (float, optional): Dropout probability after the activation; in :obj:`"gat"` and
            :obj:`"appnp"` also of the input, in :obj:`"gat"` also of the attention.
            (default: :obj:`0.5`)
        activation_options (dict, optional): Further arguments of the activation.
            (default: :obj:`None`)
        **backbone_options (optional): :obj:`K` of :obj:`"cheb"` (default: :obj:`2`) and
            :obj:`"sgc"` (:obj:`2`); :obj:`K` (:obj:`10`) and :obj:`alpha` (:obj:`0.1`) of
            :obj:`"appnp"`; :obj:`heads` (:obj:`8`) and :obj:`output_heads` (:obj:`1`) of
            :obj:`"gat"`; :obj:`num_stacks` (:obj:`2`), :obj:`num_layers` (:obj:`1`),
            :obj:`shared_weights` (:obj:`False`) and :obj:`skip_dropout` (:obj:`0.5`) of
            :obj:`"arma"`.
    """

    def __init__(
        self,
        backbone: str,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        activation: str | Callable[..., torch.nn.Module] = "relu",
        dropout: float = 0.5,
        activation_options: dict[str, Any] | None = None,
        **backbone_options: Any,
    ) -> None:
        super().__init__(
            BACKBONES,
            backbone,
            (in_channels, hidden_channels, out_channels),
            activation,
            dropout,
            activation_options,
            backbone_options,
        )
        if backbone == "sgc":
            if activation != "none":
                raise ValueError(
                    f"activation must be 'none' for backbone 'sgc', got {activation!r}."
                )
            self.convs.append(SGConv(in_channels, out_channels, **self.backbone_options))
            return
        width = hidden_channels * (self.backbone_options["heads"] if backbone == "gat" else 1)
        self.convs.append(self._convolution(in_channels, hidden_channels, last=False))
        self.acts.append(self.make_activation(width))
        self.convs.append(self._convolution(width, out_channels, last=True))
        if backbone == "appnp":
            self.propagation = APPNP(**self.backbone_options)

    def _convolution(self, in_channels: int, out_channels: int, last: bool) -> torch.nn.Module:
        options = self.backbone_options
        if self.backbone == "gat":
            heads = options["output_heads" if last else "heads"]
            return GATConv(in_channels, out_channels, heads, not last, dropout=self.dropout)
        return convolution(self.backbone, in_channels, out_channels, options)

    def _layers(
        self,
        x: Features,
        graph: tuple[Any, ...],
        apply: Callable[[torch.nn.Module, Any], Tensor],
    ) -> Tensor:
        if self.backbone in _WITH_INPUT_DROPOUT:
            x = dropout(x, self.dropout, self.training)
        for layer in range(len(self.acts)):
            x = F.dropout(self._layer(layer, x, graph, apply), self.dropout, self.training)
        out = apply(self.convs[-1], x)
        return out if self.propagation is None else apply(self.propagation, out)


def convolution(
    backbone: str, in_channels: int, out_channels: int, options: dict[str, Any]
) -> torch.nn.Module:
    """A layer of a backbone whose layers are all of one kind."""
    if backbone == "arma":
        options = {**options, "act": None, "dropout": options["skip_dropout"]}
        del options["skip_dropout"]  # without act=None, PyG's layer applies a ReLU of its own
        return ARMAConv(in_channels, out_channels, **options)
    if backbone == "appnp":  # propagates at the end
        return torch.nn.Linear(in_channels, out_channels)
    kind = {"cheb": ChebConv, "gcn": GCNConv, "sage": SAGEConv}[backbone]
    return kind(in_channels, out_channels, **options)


def check_name(argument: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name in names:
        return
    nearest = get_close_matches(str(name).lower(), names, n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    expected = f"one of {', '.join(names)}" if names else "left out"
    raise ValueError(f"{argument} must be {expected}, got {name!r}{hint}")


def check_layers(layers: int) -> None:
    if not isinstance(layers, int) or layers < 1:
        raise ValueError(f"layers must be a whole number from 1, got {layers!r}.")
