"""Networks for sets of graphs, from PyG's convolutions: those of publications, and general ones.

Only the layers' activations are compared. Encoders, heads and virtual nodes keep their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Identity, LayerNorm, Linear, Module, ModuleList
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv, MessagePassing, SAGEConv
from torch_geometric.utils import (
    degree,
    get_self_loop_attr,
    scatter,
    to_edge_index,
    to_torch_coo_tensor,
)

from graphrelu.checks import check_count
from graphrelu.graph import DiffusionSettings, PreparedGraph
from graphrelu.grelu import GReLU
from graphrelu.lab.data.graph import Features
from graphrelu.lab.errors import check_name
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.models.propagation import Pattern, SparseMatrix, gcn

Conv = Literal["gcn", "gine", "gin", "gat", "sage", "bond"]
Norm = Literal["batch", "layer"]
Pooling = Literal["mean", "sum", "max"]
WALKED_AT_ONCE = 1_000  # graphs; a walk's matrix grows with the square of their nodes
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class GraphBatch(NamedTuple):
    """A mini-batch of `B` undirected graphs, one after another. Where its shapes are those of every
    batch, the last graph is padding, and takes no part in any statistics."""

    nodes: Tensor  # [N], the kind of each node: its row in the table of features
    edge_index: Tensor  # [2, E], sorted by the first row
    edges: Tensor  # [E], the kind of each edge
    batch: Tensor  # [N], the graph of each node
    size: int  # B
    rowptr: Tensor  # [N + 1], where the edges of each node begin
    walks: Tensor | None = None  # [N, R], return probabilities of random walks
    diffusion: PreparedGraph | None = None  # of GReLU
    node_share: Tensor | None = None  # [N], one over their number, and zero for padding
    graph_share: Tensor | None = None  # [B], likewise


@dataclass(frozen=True)
class Network:
    """The architecture; the activation and its options are apart.

    ``conv`` is one of PyG's, or ``"bond"``: the sum over neighbours of
    :math:`\\max(\\mathbf{W} \\mathbf{x}_j + \\mathbf{e}_{ij}, 0)`. GIN and GINE have an MLP of two
    layers; ``inside`` says that the compared activation is the one between GINE's, and that there
    is no other. Otherwise it comes after the convolution and its norm. ``feed_forward`` adds an MLP
    of twice the width to every layer, with a residual and batch normalisation before and after.
    Without ``encoder`` the first convolution takes the features as they are. ``walks`` is the
    number of steps of the random-walk encoding, which takes ``walk_width`` of the hidden channels.
    The ``plain`` activation is that of the head; ``halving`` heads halve their width from layer to
    layer and have no dropout. With ``pooled_dropout`` only the head has dropout.
    """

    conv: Conv
    layers: int = 4
    hidden: int = 64
    norm: Norm | None = "batch"
    residual: bool = True
    dropout: float = 0.0
    head_layers: int = 2
    pooling: Pooling = "mean"
    walks: int = 0
    walk_width: int = 28
    virtual_node: bool = False
    inside: bool = False
    feed_forward: bool = False
    halving: bool = False
    plain: Literal["relu", "gelu"] = "relu"
    heads: int = 4  # of attention
    encoder: bool = True
    pooled_dropout: bool = False

    def __post_init__(self) -> None:
        check_name("pooling", self.pooling, get_args(Pooling))
        for name in ("layers", "head_layers"):
            check_count(name, getattr(self, name))
        if self.walks < 0:
            raise ValueError(f"walks must be zero or more, got {self.walks}.")
        if self.walks and self.hidden <= self.walk_width:
            raise ValueError(f"hidden must be above {self.walk_width}, the width of random walks.")
        if self.conv == "gat" and self.hidden % self.heads != 0:
            raise ValueError(
                f"hidden must be a multiple of heads ({self.heads}), got {self.hidden}."
            )


class GraphNetwork(Module):
    r"""Encoders, layers, pooling and a head: from a mini-batch to a row of outputs for each graph.

    What the layers have in common starts alike for a seed, whatever the activation.

    Args:
        network (Network): The architecture.
        nodes (Features): The nodes' features.
        edges (Features): The edges' features.
        outputs (int): The number of targets.
        activation (str): The name of the layers' activation.
        **options (optional): Its arguments.
    """

    def __init__(
        self,
        network: Network,
        nodes: Features,
        edges: Features,
        outputs: int,
        activation: str,
        **options: Any,
    ) -> None:
        super().__init__()
        self.network = network
        hidden, width = network.hidden, network.hidden
        self.walk_norm = self.walk_lin = None
        if network.walks:
            width -= network.walk_width
            self.walk_norm = BatchNorm(network.walks)
            self.walk_lin = Linear(network.walks, network.walk_width)
        self.node_encoder = Encoder(nodes, width if network.encoder else None)
        takes_edges = network.conv in ("gine", "bond", "gat")
        self.edge_encoder = Encoder(edges, hidden) if takes_edges else None
        widths = [hidden if network.encoder else self.node_encoder.width]
        widths += [hidden] * (network.layers - 1)
        self.layers = ModuleList(Layer(network, width) for width in widths)
        self.head = Head(network, outputs)
        self.virtual_node = VirtualNode(network) if network.virtual_node else None
        # Last, as some activations draw their start.
        for layer in self.layers:
            layer.act = ACTIVATIONS[activation](hidden, **options)

    @property
    def diffusion(self) -> DiffusionSettings | None:
        """That of GReLU, without self-loops; none where other activations prepare their own."""
        act = self.layers[0].act
        if not isinstance(act, GReLU) or not act.topology:
            return None
        return DiffusionSettings(act.alpha, act.steps, act.diffusion)

    def forward(self, graphs: GraphBatch) -> Tensor:
        x = self.node_encoder(graphs.nodes)
        if self.walk_norm is not None and self.walk_lin is not None:
            walks = self.walk_lin(self.walk_norm(graphs.walks, graphs.node_share))
            x = torch.cat([x, walks], dim=1)
        edge_attr = None if self.edge_encoder is None else self.edge_encoder(graphs.edges)
        messages = messages_along(self.network.conv, graphs, edge_attr)
        state = None
        for i, layer in enumerate(self.layers):
            if self.virtual_node is not None:
                x, state = self.virtual_node(i, x, state, graphs)
            x = layer(x, messages, graphs)
        return self.head(scatter(x, graphs.batch, 0, graphs.size, self.network.pooling))


# What a convolution takes besides the features: edges, perhaps with their features, or a matrix.
Messages: TypeAlias = tuple[Tensor, ...] | SparseMatrix


def messages_along(conv: Conv, graphs: GraphBatch, attr: Tensor | None) -> Messages:
    """GCN and GAT see self-loops; PyG's own way of adding them waits for the GPU in each layer."""
    if conv == "gcn":
        return normalized_matrix(graphs.edge_index, graphs.rowptr)
    if attr is None:
        return (graphs.edge_index,)
    if conv != "gat":
        return graphs.edge_index, attr
    nodes = graphs.nodes.numel()
    loop = torch.arange(nodes, device=graphs.nodes.device)
    looped = torch.cat([graphs.edge_index, loop.expand(2, -1)], dim=1)
    return looped, F.pad(attr, (0, 0, 0, nodes))


def normalized_matrix(edge_index: Tensor, rowptr: Tensor) -> SparseMatrix:
    """GCN's symmetric matrix in compressed rows, of an undirected graph whose edges are sorted; a
    row ends with the loop."""
    (row, col), nodes = edge_index, rowptr.numel() - 1
    node = torch.arange(nodes, device=row.device)
    scale = (rowptr.diff() + 1).float().rsqrt()
    place = torch.arange(row.numel(), device=row.device) + row  # a loop more for each row before
    loop = rowptr[1:].long() + node
    columns = rowptr.new_empty(row.numel() + nodes)
    columns[place], columns[loop] = col.to(rowptr.dtype), node.to(rowptr.dtype)
    value = scale.new_empty(row.numel() + nodes)
    value[place], value[loop] = scale[row] * scale[col], scale.square()
    starts = rowptr + torch.arange(nodes + 1, dtype=rowptr.dtype, device=row.device)
    return SparseMatrix.symmetric(Pattern(starts, columns, nodes), value)


class BatchNorm(BatchNorm1d):
    """Torch's, over those rows that are not padding."""

    running_mean: Tensor
    running_var: Tensor
    momentum: float

    def forward(self, x: Tensor, share: Tensor | None = None) -> Tensor:
        if share is None or not self.training:
            return super().forward(x)
        mean = share @ x
        centred = x - mean
        variance = share @ centred.square()
        with torch.no_grad():
            count = 1 / share.max()
            unbiased = variance * (count / (count - 1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        return torch.addcmul(self.bias, centred, (variance + self.eps).rsqrt() * self.weight)


class Encoder(Module):
    """A linear layer for real features; for categories the sum of an embedding each.

    Both are a product of rows of a table with a matrix: where there are categories, the rows are
    ones and zeros. Without a width, the rows are the output.
    """

    table: Tensor

    def __init__(self, features: Features, width: int | None) -> None:
        super().__init__()
        table, sizes = features.table.float(), features.sizes
        if sizes:
            columns = zip(features.table.long().t(), sizes, strict=True)
            table = torch.cat([F.one_hot(column, size) for column, size in columns], dim=1).float()
        self.register_buffer("table", table, persistent=False)
        self.width = table.size(1) if width is None else width
        self.weight = self.bias = None
        if width is None:
            return
        self.weight = torch.nn.Parameter(torch.empty(table.size(1), width))
        self.bias = None if sizes else torch.nn.Parameter(torch.zeros(width))
        for part in self.weight.data.split(sizes or table.size(1)):
            torch.nn.init.xavier_uniform_(part)

    def forward(self, kind: Tensor) -> Tensor:
        rows = self.table.index_select(0, kind)
        if self.weight is None:
            return rows
        return rows @ self.weight if self.bias is None else rows @ self.weight + self.bias


class BondConv(MessagePassing):  # type: ignore[misc]
    """The sum over neighbours of ReLU(W x + the bond), without normalisation."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="add")
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))
        torch.nn.init.xavier_uniform_(self.lin.weight)  # as in PyG's GCNConv

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x), edge_attr=edge_attr) + self.bias

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return (x_j + edge_attr).relu()


class Layer(Module):
    """A convolution, a norm, the compared activation and dropout."""

    act: Module

    def __init__(self, network: Network, in_channels: int) -> None:
        super().__init__()
        hidden = network.hidden
        self.network = network
        self.dropout = Dropout(0.0 if network.pooled_dropout else network.dropout)
        self.mlp: ModuleList | None = None
        self.inner_norm = BatchNorm(hidden) if network.conv == "gin" else None
        self.conv: Module
        if network.conv == "gcn":
            self.conv = GCNConv(in_channels, hidden)
        elif network.conv in ("gin", "gine"):
            self.conv = (GINConv if network.conv == "gin" else GINEConv)(Identity())
            self.mlp = ModuleList([Linear(in_channels, hidden), Linear(hidden, hidden)])
        elif network.conv == "gat":
            width = hidden // network.heads
            edges = {"add_self_loops": False, "edge_dim": hidden}
            self.conv = GATConv(in_channels, width, network.heads, **edges)
        elif network.conv == "sage":
            self.conv = SAGEConv(in_channels, hidden)
        else:
            self.conv = BondConv(in_channels, hidden)
        norms = {None: Identity, "batch": BatchNorm, "layer": LayerNorm}
        self.norm = norms[network.norm](hidden)
        self.feed_forward = FeedForward(network) if network.feed_forward else None

    def forward(self, x: Tensor, messages: Messages, graphs: GraphBatch) -> Tensor:
        def activate(out: Tensor) -> Tensor:
            graph = graphs.edge_index if graphs.diffusion is None else graphs.diffusion
            return self.act(out, graph, batch=graphs.batch, batch_size=graphs.size)

        if isinstance(messages, SparseMatrix):
            out = gcn(self.conv, x, messages)
        else:
            out = self.conv(x, *messages)
        if self.mlp is not None:
            first, last = self.mlp
            out = first(out)
            if self.inner_norm is not None:
                out = self.inner_norm(out, graphs.node_share)
            out = last(self.dropout(activate(out)) if self.network.inside else out.relu())
        share = (graphs.node_share,) if isinstance(self.norm, BatchNorm) else ()
        out = self.norm(out, *share)
        out = self.dropout(out if self.network.inside else activate(out))
        if self.network.residual:
            out = out + x
        return out if self.feed_forward is None else self.feed_forward(out, graphs.node_share)


class FeedForward(Module):
    """Two linear layers of every node, with batch normalisation before them and after the skip."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        hidden = network.hidden
        self.before, self.after = BatchNorm(hidden), BatchNorm(hidden)
        self.first, self.last = Linear(hidden, 2 * hidden), Linear(2 * hidden, hidden)
        self.dropout = Dropout(network.dropout)

    def forward(self, x: Tensor, share: Tensor | None) -> Tensor:
        x = self.before(x, share)
        inner = self.dropout(self.first(x).relu())
        return self.after(x + self.dropout(self.last(inner)), share)


class Head(Module):
    """The layers after the pooling."""

    def __init__(self, network: Network, outputs: int) -> None:
        super().__init__()
        steps = range(network.head_layers)
        widths = [network.hidden // (2**i if network.halving else 1) for i in steps]
        ends = zip(widths, [*widths[1:], outputs], strict=True)
        self.lins = ModuleList(Linear(width, end) for width, end in ends)
        self.dropout = Dropout(0.0 if network.halving else network.dropout)
        self.act = PLAIN[network.plain]

    def forward(self, x: Tensor) -> Tensor:
        *inner, last = self.lins
        for lin in inner:
            x = self.act(lin(self.dropout(x)))
        return last(self.dropout(x))


class VirtualNode(Module):
    """A node that is joined to all others of its graph, as in the Open Graph Benchmark's baselines:
    its state is added to every node before a layer, and changed by an MLP of their sum between
    layers."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        hidden = network.hidden
        self.start = torch.nn.Parameter(torch.zeros(1, hidden))
        self.dropout = Dropout(network.dropout)
        steps = range(network.layers - 1)
        self.first = ModuleList(Linear(hidden, 2 * hidden) for _ in steps)
        self.first_norm = ModuleList(BatchNorm(2 * hidden) for _ in steps)
        self.last = ModuleList(Linear(2 * hidden, hidden) for _ in steps)
        self.last_norm = ModuleList(BatchNorm(hidden) for _ in steps)

    def forward(
        self, layer: int, x: Tensor, state: Tensor | None, graphs: GraphBatch
    ) -> tuple[Tensor, Tensor]:
        """The features with the virtual node's state, and this state."""
        if state is None:
            state = self.start.expand(graphs.size, -1)
        else:
            i, share = layer - 1, graphs.graph_share
            change = scatter(x, graphs.batch, 0, graphs.size, "sum") + state
            change = self.first_norm[i](self.first[i](change), share).relu()
            change = self.last_norm[i](self.last[i](change), share).relu()
            state = state + self.dropout(change)
        return x + state.index_select(0, graphs.batch), state


def count_parameters(model: Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def random_walks(edge_index: Tensor, node_count: Tensor, steps: int) -> Tensor:
    """For each node the probability that a random walk is back after 1, ..., `steps` steps, as of
    PyG's :class:`~torch_geometric.transforms.AddRandomWalkPE`, but of many graphs at once.

    Args:
        edge_index (torch.Tensor): The edges of all graphs, which count nodes over all of them.
        node_count (torch.Tensor): The nodes of each graph, on the CPU.
        steps (int): The number of columns.
    """
    parts, first = [], 0
    for size in (int(part.sum()) for part in node_count.split(WALKED_AT_ONCE)):
        own = edge_index[:, (edge_index[0] >= first) & (edge_index[0] < first + size)] - first
        with torch.sparse.check_sparse_tensor_invariants(False):  # torch warns if nobody chose
            step = to_torch_coo_tensor(own, 1 / degree(own[0], size)[own[0]], size)
        power, back = step, []
        for _ in range(steps):
            back.append(get_self_loop_attr(*to_edge_index(power), num_nodes=size))
            power = power @ step
        parts.append(torch.stack(back, dim=1))
        first += size
    return torch.cat(parts)
