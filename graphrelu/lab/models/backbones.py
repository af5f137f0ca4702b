"""The graph networks for nodes, from PyG's convolutions: the paper's, and deep ones."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear
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

from graphrelu.graph import as_edges, check_values
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.propagation import (
    PreparedInputs,
    SelfLoopSAGEConv,
    convolve,
    prepare_graph,
)
from graphrelu.lab.models.sparse import Features, as_features, dropout
from graphrelu.lab.names import check_name

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

_WITH_INPUT_DROPOUT = ("gat", "appnp")
_WITHOUT_EDGE_WEIGHTS = (SAGEConv, GATConv, GINConv)

# Calls a module, a convolution with the graph as well.
Apply = Callable[[torch.nn.Module, Any], Tensor]


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
    """The common part of all networks: arguments, a layer, activations and reset.

    The arguments are those of :class:`GNN`. A subclass lists its backbones and their options, the
    settings of all of its backbones, and makes its layers in :meth:`build`.
    """

    backbones: ClassVar[dict[str, dict[str, Any]]]
    settings: ClassVar[dict[str, Any]] = {}

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
        super().__init__()
        check_name("backbone", backbone, self.backbones)
        known = self.backbones[backbone]
        for option in backbone_options.keys() - self.settings.keys():
            check_name(f"option of {backbone}", option, known)
        self.backbone = backbone
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.activation = activation
        self.dropout = dropout
        self.activation_options = activation_options or {}
        self.backbone_options = {**self.settings, **known, **backbone_options}
        layers = self.backbone_options.get("layers", 1)
        if not isinstance(layers, int) or layers < 1:
            raise ValueError(f"layers must be a whole number from 1, got {layers!r}.")
        if (norm := self.backbone_options.get("norm")) is not None:
            check_name("norm", norm, NORMS)
        self.convs = torch.nn.ModuleList()
        self.skips = torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        self.acts = torch.nn.ModuleList()
        self.propagation: torch.nn.Module | None = None
        self.build(**self.backbone_options)

    def build(self, **options: Any) -> None:
        """Makes the layers. The order of the random draws is part of what a seed stands for."""
        raise NotImplementedError

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

    def _layer(
        self,
        layer: int,
        x: Features,
        graph: tuple[Any, ...],
        apply: Apply,
        is_node: Tensor | None = None,
    ) -> Tensor:
        """Convolution, skip, normalisation and activation of a layer.

        `graph` is what the activations are called with, besides the features; `is_node` is false
        for padding.
        """
        out = apply(self.convs[layer], x)
        if len(self.skips) > 0:
            out = out + apply(self.skips[layer], x)
        if len(self.norms) > 0:
            norm = self.norms[layer]
            out = norm(out, is_node) if isinstance(norm, MaskedBatchNorm) else norm(out)
        activated: Tensor = self.acts[layer](out, *graph)
        return activated

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


class GNN(Network):
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
            :obj:`"gat"`; :obj:`num_stacks` (:obj:`2`), :obj:`num_layers` (always :obj:`1`),
            :obj:`shared_weights` (:obj:`False`) and :obj:`skip_dropout` (:obj:`0.5`) of
            :obj:`"arma"`.
    """

    backbones = BACKBONES

    def build(self, **options: Any) -> None:
        first, hidden, out = self.in_channels, self.hidden_channels, self.out_channels
        if self.backbone == "sgc":
            if self.activation != "none":
                raise ValueError(
                    f"activation must be 'none' for backbone 'sgc', got {self.activation!r}."
                )
            self.convs.append(SGConv(first, out, **options))
        elif self.backbone == "gat":
            heads, width = options["heads"], options["heads"] * hidden
            self.convs.append(GATConv(first, hidden, heads, dropout=self.dropout))
            self.acts.append(self.make_activation(width))
            last = GATConv(width, out, options["output_heads"], concat=False, dropout=self.dropout)
            self.convs.append(last)
        else:
            self.convs.append(convolution(self.backbone, first, hidden, **options))
            self.acts.append(self.make_activation(hidden))
            self.convs.append(convolution(self.backbone, hidden, out, **options))
        if self.backbone == "appnp":
            self.propagation = APPNP(**options)

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
            return self._layers(x.x, x[2:], partial(convolve, graph=x.graph))

        def pyg(conv: torch.nn.Module, x: Tensor) -> Tensor:
            if isinstance(conv, Linear):
                return conv(x)
            if isinstance(conv, _WITHOUT_EDGE_WEIGHTS):
                return conv(x, edge_index)
            return conv(x, edge_index, edge_weight)

        return self._layers(x, (edge_index, edge_weight, batch, batch_size), pyg)

    def _layers(self, x: Features, graph: tuple[Any, ...], apply: Apply) -> Tensor:
        x = self._enter(x, apply)
        for layer in range(len(self.acts)):
            x = F.dropout(self._layer(layer, x, graph, apply), self.dropout, self.training)
        out = apply(self._last(), x)
        return out if self.propagation is None else apply(self.propagation, out)

    def _enter(self, x: Features, apply: Apply) -> Features:
        """What the first layer sees."""
        with_dropout = self.backbone in _WITH_INPUT_DROPOUT
        return dropout(x, self.dropout, self.training) if with_dropout else x

    def _last(self) -> torch.nn.Module:
        """The layer behind the last activation."""
        return self.convs[-1]

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
        graph = prepare_graph(self.propagation or self.convs[0], edges)
        return PreparedInputs(features, graph, edge_index, edge_weight, batch, batch_size)


class DeepGNN(GNN):
    r"""Any number of graph convolutions, and a linear head.

    Each layer is a convolution with a linear skip around it, then normalisation, an activation of
    its own and dropout: the networks of `"Classic GNNs are Strong Baselines"
    <https://arxiv.org/abs/2406.08993>`_. The arguments that are not listed are those of
    :class:`GNN`; dropout follows each activation.

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
            :obj:`8`) of :obj:`"gat"`; those of :class:`GNN` for :obj:`"cheb"`, :obj:`"arma"` and
            :obj:`"appnp"`.
    """

    backbones = DEEP_BACKBONES
    settings: ClassVar = {"layers": 4, "norm": None, "residual": False, "linear_first": False}

    def build(  # type: ignore[override]
        self, layers: int, norm: str | None, residual: bool, linear_first: bool, **options: Any
    ) -> None:
        width, hidden = self.in_channels, self.hidden_channels
        self.first = Linear(width, hidden) if linear_first else None
        for layer in range(layers):
            width = hidden if linear_first or layer > 0 else width
            self.convs.append(self._convolution(width, **options))
            if residual:
                self.skips.append(Linear(width, hidden))
            if norm == "layer":
                self.norms.append(torch.nn.LayerNorm(hidden))
            elif norm == "batch":
                # Running statistics would be updated in place, which vmap does not allow.
                self.norms.append(torch.nn.BatchNorm1d(hidden, track_running_stats=False))
            self.acts.append(self.make_activation(hidden))
        self.head = Linear(hidden, self.out_channels)
        if self.backbone == "appnp":
            self.propagation = APPNP(**options)

    def _convolution(self, in_channels: int, **options: Any) -> torch.nn.Module:
        width = self.hidden_channels
        if self.backbone != "gat":
            return convolution(self.backbone, in_channels, width, **options)
        heads = options["heads"]
        if width % heads != 0:
            raise ValueError(f"hidden_channels must be a multiple of heads ({heads}), got {width}.")
        return GATConv(in_channels, width // heads, heads)

    def _enter(self, x: Features, apply: Apply) -> Features:
        if self.first is None:
            return x
        return F.dropout(apply(self.first, x), p=self.dropout, training=self.training)

    def _last(self) -> torch.nn.Module:
        return self.head


def convolution(
    backbone: str, in_channels: int, out_channels: int, **options: Any
) -> torch.nn.Module:
    """A layer of any backbone but :obj:`"gat"` and :obj:`"sgc"`."""
    if backbone == "arma":  # without act=None, PyG's layer applies a ReLU of its own
        if options["num_layers"] != 1:
            raise ValueError(f"num_layers must be 1, got {options['num_layers']!r}.")
        skip_dropout = options.pop("skip_dropout")
        return ARMAConv(in_channels, out_channels, act=None, dropout=skip_dropout, **options)
    if backbone == "appnp":  # propagates at the end
        return Linear(in_channels, out_channels)
    if backbone == "gin":  # with an MLP of two layers, whose inner ReLU is not the activation
        first = Linear(in_channels, out_channels)
        last = Linear(out_channels, out_channels)
        return GINConv(torch.nn.Sequential(first, torch.nn.ReLU(), last))
    kinds = {"cheb": ChebConv, "gcn": GCNConv, "sage": SAGEConv}
    if options.pop("add_self_loops", False):
        return SelfLoopSAGEConv(in_channels, out_channels)
    return kinds[backbone](in_channels, out_channels, **options)
