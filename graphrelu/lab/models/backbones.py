"""The graph networks for nodes, from PyG's convolutions: the paper's, and deep ones."""

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
from torch_geometric.utils import add_remaining_self_loops

from graphrelu.checks import check_count
from graphrelu.lab.errors import check_name
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.propagation import (
    PreparedInputs,
    as_features,
    convolve,
    dropout,
    prepare_graph,
)

# The options of each backbone, and what they are unless told otherwise. ARMA has one layer always,
# and its dropout is that of the skip; GAT's output heads are those of the last layer.
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
    "sage": {"add_self_loops": False},  # with which a node is one of its neighbours
    "gat": {"heads": 8},
    "gin": {},
    "cheb": BACKBONES["cheb"],
    "arma": BACKBONES["arma"],
    "appnp": BACKBONES["appnp"],
}
NORMS = ("layer", "batch")


class GNN(torch.nn.Module):
    r"""Two layers of a graph convolution, with an activation and dropout between them.

    .. code-block:: python

        model = GNN("gcn", 1433, 16, 7, activation="grelu")
        inputs = model.prepare(x, edge_index)  # the same for all models of this backbone
        out = model(inputs)

    It computes what PyG's convolutions do, from sparse products alone, and is made for
    :func:`torch.func.vmap` over the parameters of many models. A subclass lists its backbones and
    their options, the settings of all of its backbones, and makes its layers in :meth:`build`.

    Args:
        backbone (str): :obj:`"cheb"`, :obj:`"gcn"`, :obj:`"sage"` (mean), :obj:`"gat"`,
            :obj:`"arma"`, :obj:`"appnp"` or :obj:`"sgc"` (linear, without a hidden layer).
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of the hidden layer, for :obj:`"gat"` of each head.
        out_channels (int): Size of each output sample.
        activation (str, optional): A name of
            :obj:`~graphrelu.lab.models.activations.ACTIVATIONS`; :obj:`"sgc"` has none.
            (default: :obj:`"relu"`)
        dropout (float, optional): Dropout probability after the activation; in :obj:`"gat"` and
            :obj:`"appnp"` also of the input, in :obj:`"gat"` also of the attention.
            (default: :obj:`0.5`)
        activation_options (dict, optional): Further arguments of the activation.
            (default: :obj:`None`)
        **backbone_options (optional): Options in the place of those in :obj:`BACKBONES`, mostly
            arguments of PyG's convolution.
    """

    backbones: ClassVar = BACKBONES
    settings: ClassVar[dict[str, Any]] = {}
    with_input_dropout: ClassVar[tuple[str, ...]] = ("gat", "appnp")

    def __init__(
        self,
        backbone: str,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        activation: str = "relu",
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
        self.convs = torch.nn.ModuleList()
        self.skips = torch.nn.ModuleList()
        self.norms = torch.nn.ModuleList()
        self.acts = torch.nn.ModuleList()
        self.first: Linear | None = None
        self.head: Linear | None = None
        self.propagation: torch.nn.Module | None = None
        self.build(**self.backbone_options)

    def build(self, **options: Any) -> None:
        """Makes the layers. The order of the random draws is part of what a seed stands for."""
        first, hidden, out = self.in_channels, self.hidden_channels, self.out_channels
        layers = [(first, hidden, options), (hidden, out, options)]
        if self.backbone == "sgc":
            layers = [(first, out, options)]
        elif self.backbone == "gat":
            heads, last = options["heads"], options["output_heads"]
            attention = {"heads": heads, "dropout": self.dropout}
            layers = [(first, hidden, attention)]
            layers += [(heads * hidden, out, attention | {"heads": last, "concat": False})]
        for width, end, own in layers:
            if len(self.convs) > 0:
                self.acts.append(self.make_activation(width))
            self.convs.append(convolution(self.backbone, width, end, **own))
        if self.backbone == "appnp":
            self.propagation = APPNP(**options)

    def make_activation(self, channels: int) -> torch.nn.Module:
        """A fresh activation for a layer."""
        check_name("activation", self.activation, ACTIVATIONS)
        return ACTIVATIONS[self.activation](channels, **self.activation_options)

    @torch.no_grad()
    def prepare(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> PreparedInputs:
        r"""Features and graph, as constants, in the form that is fastest for this backbone.

        The result serves every model of the same backbone and options.

        Args:
            x (torch.Tensor): The node features, dense or sparse CSR; they are kept sparse where
                fewer than a tenth of them are not zero.
            edge_index (torch.Tensor): The edge indices.
            edge_weight (torch.Tensor, optional): The edge weights. :obj:`"sage"`,
                :obj:`"gat"` and :obj:`"gin"` leave them to the activation.
                (default: :obj:`None`)
        """
        weight = edge_weight
        if weight is None:
            weight = torch.ones(edge_index.size(1), device=x.device)
        index, nodes = edge_index, x.size(0)
        if self.backbone_options.get("add_self_loops", False):
            index, weight = add_remaining_self_loops(index, weight, num_nodes=nodes)
        conv = self.propagation or self.convs[0]
        graph = prepare_graph(conv, index, weight.to(x.dtype), nodes)
        return PreparedInputs(as_features(x), graph, edge_index, edge_weight)

    def forward(self, inputs: PreparedInputs) -> Tensor:
        """The outputs of all nodes, from :meth:`prepare`'s features and graph."""
        edges = inputs.edge_index, inputs.edge_weight
        x = inputs.x
        if self.first is not None:
            x = F.dropout(convolve(self.first, x, inputs), self.dropout, self.training)
        elif self.backbone in self.with_input_dropout:
            x = dropout(x, self.dropout, self.training)
        for layer, act in enumerate(self.acts):
            out = convolve(self.convs[layer], x, inputs)
            if len(self.skips) > 0:
                out = out + convolve(self.skips[layer], x, inputs)
            if len(self.norms) > 0:
                out = self.norms[layer](out)
            x = F.dropout(act(out, *edges), self.dropout, self.training)
        out = convolve(self.convs[-1] if self.head is None else self.head, x, inputs)
        return out if self.propagation is None else convolve(self.propagation, out, inputs)


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
        **backbone_options (optional): Options in the place of those in :obj:`DEEP_BACKBONES`.
    """

    backbones = DEEP_BACKBONES
    with_input_dropout = ()
    settings: ClassVar = {"layers": 4, "norm": None, "residual": False, "linear_first": False}

    def build(  # type: ignore[override]
        self, layers: int, norm: str | None, residual: bool, linear_first: bool, **options: Any
    ) -> None:
        check_count("layers", layers)
        if norm is not None:
            check_name("norm", norm, NORMS)
        width, hidden = self.in_channels, self.hidden_channels
        heads = options.get("heads", 1)
        if hidden % heads != 0:
            raise ValueError(
                f"hidden_channels must be a multiple of heads ({heads}), got {hidden}."
            )
        if linear_first:
            self.first = Linear(width, hidden)
        for layer in range(layers):
            width = hidden if linear_first or layer > 0 else width
            self.convs.append(convolution(self.backbone, width, hidden // heads, **options))
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


def convolution(
    backbone: str, in_channels: int, out_channels: int, **options: Any
) -> torch.nn.Module:
    """A layer of any backbone."""
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
    kinds = {"cheb": ChebConv, "gcn": GCNConv, "sage": SAGEConv, "gat": GATConv, "sgc": SGConv}
    options.pop("add_self_loops", None)  # in the graph
    return kinds[backbone](in_channels, out_channels, **options)
