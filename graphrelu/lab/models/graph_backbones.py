"""The graph networks for sets of graphs, from PyG's convolutions: the paper's, the GIN paper's, and
deep ones."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import GINConv, SimpleConv
from torch_geometric.utils import scatter

from graphrelu.graph import DiffusionSettings, as_edges, check_values
from graphrelu.grelu import GReLU
from graphrelu.lab.models.backbones import Apply, MaskedBatchNorm, Network, convolution
from graphrelu.lab.models.graph_batches import GraphBatch, GraphCollection, prepared_graph
from graphrelu.lab.models.propagation import convolve, prepare_graph
from graphrelu.lab.models.sparse import SparseMatrix, largest, matmul

# How each backbone makes one vector of a graph's nodes; in the GIN paper's networks, of a node and
# its neighbours.
POOLING = {"gcn": "mean", "sage": "max", "gin": "sum"}


class GINLayer(torch.nn.Module):
    """The MLP of a GIN convolution: two layers, with batch normalisation and a ReLU of its own
    between them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = Linear(in_channels, out_channels)
        self.norm = MaskedBatchNorm(out_channels)
        self.last = Linear(out_channels, out_channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for module in (self.first, self.norm, self.last):
            module.reset_parameters()

    def forward(self, x: Tensor, is_node: Tensor | None = None) -> Tensor:
        out: Tensor = self.last(F.relu(self.norm(self.first(x), is_node)))
        return out


class GraphGNN(Network):
    r"""A stack of graph convolutions, each with an activation; pooling, dropout and a linear layer
    turn the nodes of each graph into its class scores.

    .. code-block:: python

        model = GraphGNN("gin", 7, 32, 2, layers=3, activation="grelu")
        out = model(x, edge_index, batch, batch_size)

        graphs = model.collect(x, edge_index, node_ptr)  # where the graphs never change:
        mini_batch = graphs.gather(order, capacity)  # one of each model that trains
        out = torch.func.vmap(...)  # of model(mini_batch, batch_size=...), the same numbers

    Each convolution has an activation of its own. The arguments that are not listed are those of
    :class:`~graphrelu.lab.models.backbones.GNN`.

    Args:
        backbone (str): :obj:`"gcn"` with mean pooling, :obj:`"sage"` (mean over neighbours) with
            max pooling, or :obj:`"gin"` with sum pooling. GIN's convolutions hold an MLP of two
            layers, whose inner ReLU is not the compared activation, and are followed by batch
            normalisation.
        layers (int, optional): Number of convolutions. (default: :obj:`3`)
        dropout (float, optional): Dropout probability of the pooled vectors.
            (default: :obj:`0.5`)
    """

    backbones: ClassVar = {name: {} for name in POOLING}
    settings: ClassVar = {"layers": 3}

    def build(self, layers: int) -> None:  # type: ignore[override]
        self._build_layers(layers, MaskedBatchNorm if self.backbone == "gin" else None)
        self.head: torch.nn.Module = Linear(self.hidden_channels, self.out_channels)

    def _build_layers(self, layers: int, norm: type[torch.nn.Module] | None) -> None:
        for width in self._widths(layers):
            self.convs.append(self._convolution(width))
            if norm is not None:
                self.norms.append(norm(self.hidden_channels))
            self.acts.append(self.make_activation(self.hidden_channels))

    def _widths(self, layers: int) -> list[int]:
        """The sizes of what the layers see."""
        return [self.in_channels] + (layers - 1) * [self.hidden_channels]

    def _convolution(self, in_channels: int) -> torch.nn.Module:
        if self.backbone == "gin":
            return GINConv(GINLayer(in_channels, self.hidden_channels))
        return convolution(self.backbone, in_channels, self.hidden_channels)

    def forward(
        self,
        x: Tensor | GraphBatch,
        edge_index: Any = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Forward pass; returns a row of scores for each graph.

        Args:
            x (torch.Tensor or GraphBatch): The node features; or a mini-batch gathered from
                :meth:`collect`, and `batch_size`, its number of graphs with the padding's.
            edge_index (torch.Tensor): The edge indices, or a sparse transposed adjacency.
            batch (torch.Tensor, optional): The graph of each node, sorted; one graph unless
                given. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs. Automatically calculated if not
                given. (default: :obj:`None`)
        """
        if isinstance(x, GraphBatch):
            if batch_size is None:
                raise ValueError("batch_size must be given for a gathered mini-batch.")
            apply: Apply = partial(self._gathered, inputs=x)
            graph = prepared_graph(self.diffusion, x)
            features, batch, is_node = [x.x], x.batch, x.is_node
        else:
            if batch is None:
                batch, batch_size = x.new_zeros(x.size(0), dtype=torch.long), 1
            elif batch_size is None:
                batch_size = int(batch.max()) + 1 if batch.numel() > 0 else 0
            apply = partial(self._pyg, edge_index=edge_index)
            graph, features, is_node = edge_index, [x], None
        seen = (graph, None, batch, batch_size)
        for layer in range(len(self.convs)):
            features.append(self._layer(layer, features[-1], seen, apply, is_node))
        return self._readout(features, batch, batch_size)

    def _gathered(self, conv: torch.nn.Module, x: Tensor, inputs: GraphBatch) -> Tensor:
        if isinstance(conv, GINConv) and isinstance(conv.nn, GINLayer):
            return conv.nn(x + matmul(inputs.graph, x), inputs.is_node)
        return convolve(conv, x, inputs.graph)

    def _pyg(self, conv: torch.nn.Module, x: Tensor, edge_index: Any) -> Tensor:
        return conv(x) if isinstance(conv, Linear) else conv(x, edge_index)

    def _readout(self, features: Sequence[Tensor], batch: Tensor, batch_size: int) -> Tensor:
        """The scores of the graphs, from the input and the output of every layer."""
        x = pool(features[-1], batch, batch_size, POOLING[self.backbone])
        out: Tensor = self.head(F.dropout(x, p=self.dropout, training=self.training))
        return out

    @property
    def diffusion(self) -> DiffusionSettings | None:
        """The diffusion of the activations; ``None`` if the activations do not use the graph."""
        act = self.acts[0]
        if not isinstance(act, GReLU) or not act.topology:
            return getattr(act, "propagation", None)
        return DiffusionSettings(act.alpha, act.steps, act.diffusion)

    @torch.no_grad()
    def collect(self, x: Tensor, edge_index: Tensor, node_ptr: Tensor) -> GraphCollection:
        r"""Graphs, as constants, to gather mini-batches from, for every model of the same backbone
        and activation.

        Args:
            x (torch.Tensor): The features of all nodes, graph by graph.
            edge_index (torch.Tensor): The edge indices.
            node_ptr (torch.Tensor): The first node of each graph, and the number of all nodes.
        """
        edges = as_edges(edge_index, None, x.size(0), x.dtype)
        check_values(edges, "power", torch.repeat_interleave(node_ptr.diff()))
        conv = self.convs[0] if self.propagation is None else self.propagation
        matrix = prepare_graph(conv, edges)
        assert isinstance(matrix, SparseMatrix)
        return GraphCollection.from_graphs(x, edge_index, node_ptr, matrix, self.diffusion)


class GINPaperGNN(GraphGNN):
    r"""The networks of `"How Powerful are Graph Neural Networks?"
    <https://arxiv.org/abs/1810.00826>`_, GIN-0 and its rivals, as their authors' code has them.

    A layer takes the sum (:obj:`"gin"`), the mean (:obj:`"gcn"`) or the maximum (:obj:`"sage"`) of
    a node and its neighbours; then come an MLP of two layers in :obj:`"gin"` and a linear layer in
    the others, batch normalisation and the activation. The input and the output of every layer are
    summed over each graph; each sum has a linear layer of its own, and dropout after it, and their
    scores are added.

    The arguments are those of :class:`GraphGNN`, with 4 convolutions unless :obj:`layers` says
    otherwise: the GIN paper counts the input as one more layer.
    """

    settings: ClassVar = {"layers": 4}
    head: torch.nn.ModuleList
    propagation: SimpleConv

    def build(self, layers: int) -> None:  # type: ignore[override]
        self._build_layers(layers, MaskedBatchNorm)
        widths = self._widths(layers + 1)
        self.head = torch.nn.ModuleList(Linear(width, self.out_channels) for width in widths)
        self.propagation = SimpleConv(POOLING[self.backbone], combine_root="self_loop")

    def _convolution(self, in_channels: int) -> torch.nn.Module:
        kind = GINLayer if self.backbone == "gin" else Linear
        return kind(in_channels, self.hidden_channels)

    def _gathered(self, conv: torch.nn.Module, x: Tensor, inputs: GraphBatch) -> Tensor:
        x = convolve(self.propagation, x, inputs.graph)
        return conv(x, inputs.is_node) if isinstance(conv, GINLayer) else conv(x)

    def _pyg(self, conv: torch.nn.Module, x: Tensor, edge_index: Any) -> Tensor:
        return conv(self.propagation(x, edge_index))

    def _readout(self, features: Sequence[Tensor], batch: Tensor, batch_size: int) -> Tensor:
        scores = [
            F.dropout(head(pool(x, batch, batch_size, "sum")), self.dropout, self.training)
            for head, x in zip(self.head, features, strict=True)
        ]
        return torch.stack(scores).sum(dim=0)


class DeepGraphGNN(GraphGNN):
    r"""The layers of :class:`~graphrelu.lab.models.backbones.DeepGNN`; pooling and a linear head
    turn the nodes of each graph into its outputs. The calls are those of :class:`GraphGNN`, and
    the arguments that are not listed those of :class:`~graphrelu.lab.models.backbones.DeepGNN`.

    Args:
        backbone (str): :obj:`"gcn"`, :obj:`"sage"` or :obj:`"gin"`.
        norm (str, optional): :obj:`"layer"`, :obj:`"batch"` with running statistics, or none.
            (default: :obj:`None`)
    """

    settings: ClassVar = {"layers": 4, "norm": None, "residual": False}

    def build(  # type: ignore[override]
        self, layers: int, norm: str | None, residual: bool
    ) -> None:
        norms = {None: None, "layer": torch.nn.LayerNorm, "batch": MaskedBatchNorm}
        self._build_layers(layers, norms[norm])
        self.head = Linear(self.hidden_channels, self.out_channels)
        if residual:
            skips = (Linear(width, self.hidden_channels) for width in self._widths(layers))
            self.skips.extend(skips)

    def _convolution(self, in_channels: int) -> torch.nn.Module:
        return convolution(self.backbone, in_channels, self.hidden_channels)

    def _layer(self, *arguments: Any) -> Tensor:
        return F.dropout(super()._layer(*arguments), self.dropout, self.training)

    def _readout(self, features: Sequence[Tensor], batch: Tensor, batch_size: int) -> Tensor:
        return self.head(pool(features[-1], batch, batch_size, POOLING[self.backbone]))


def pool(x: Tensor, batch: Tensor, batch_size: int, how: str) -> Tensor:
    """The mean, maximum or sum of the nodes of each graph; zero for a graph without nodes."""
    if how == "max":
        return largest(x, batch, batch_size)
    return scatter(x, batch, dim=0, dim_size=batch_size, reduce=how)
