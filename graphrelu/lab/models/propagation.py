r"""PyG's convolutions on a graph that is prepared once, as a few sparse products.

PyG gathers a message for every edge; many models at once (:func:`torch.func.vmap`) would hold as
many messages. Here each convolution applies its weights first and then multiplies the projected
columns with the graph's normalised matrix: linearity permits it, sparse features stay sparse, and
only hidden columns are propagated. Each function equals the convolution's own forward.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
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
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter

from graphrelu.lab.models.sparse import Features, SparseMatrix, dropout, linear, matmul
from graphrelu.ops.diffuse import diffuse


class AttentionGraph(NamedTuple):
    """The edges between which GAT attends, self-loops included, in the order of `matrix`."""

    edge_index: Tensor
    matrix: SparseMatrix


class PreparedInputs(NamedTuple):
    """Constant features and a constant graph, ready for a network of
    :mod:`graphrelu.lab.models`."""

    x: Features
    # By which the convolutions propagate; with none they are PyG's own, on the edges.
    graph: SparseMatrix | AttentionGraph | None
    edge_index: Any  # from here on: what the activations are called with
    edge_weight: Tensor | None


def prepare_graph(
    conv: torch.nn.Module, index: Tensor, weight: Tensor, nodes: int
) -> SparseMatrix | AttentionGraph:
    """The matrix by which every target sums its weighted sources, with PyG's normalisation."""
    if isinstance(conv, (SAGEConv, GINConv, GATConv)):  # PyG's know no edge weights
        if isinstance(conv, GATConv):
            index, _ = add_self_loops(remove_self_loops(index)[0], num_nodes=nodes)
        weight = weight.new_ones(index.size(1))
        if conv.aggr == "mean":
            weight = weight / scatter(weight, index[1], 0, nodes, "sum")[index[1]]
    elif isinstance(conv, ChebConv):
        options = {"dtype": weight.dtype}
        index, weight = conv.__norm__(index, nodes, weight, conv.normalization, **options)
    else:
        loops = False if isinstance(conv, ARMAConv) else conv.add_self_loops
        index, weight = gcn_norm(index, weight, nodes, add_self_loops=loops, dtype=weight.dtype)
    stored = weight != 0  # the diagonal of Cheb's scaled Laplacian is zero
    source, target = index[:, stored]
    matrix = SparseMatrix.from_coordinates(target, source, weight[stored], nodes, nodes)
    if not isinstance(conv, GATConv):
        return matrix
    target = torch.repeat_interleave(matrix.pattern.rowptr.diff())
    return AttentionGraph(torch.stack([matrix.pattern.col, target]).long(), matrix)


def _linear(layer: torch.nn.Linear, x: Features, graph: Any) -> Tensor:
    return linear(x, layer.weight, layer.bias)


def gcn(conv: Any, x: Features, graph: SparseMatrix) -> Tensor:
    return matmul(graph, linear(x, conv.lin.weight)) + conv.bias


def _sage(conv: SAGEConv, x: Features, graph: SparseMatrix) -> Tensor:
    root = linear(x, conv.lin_r.weight, conv.lin_l.bias)
    return matmul(graph, linear(x, conv.lin_l.weight)) + root


def _cheb(conv: ChebConv, x: Features, graph: SparseMatrix) -> Tensor:
    r"""Clenshaw's recurrence :math:`b_k = y_k + 2 \hat{L} b_{k+1} - b_{k+2}` for the sum of
    :math:`T_k(\hat{L}) y_k`, which ends with :math:`y_0 + \hat{L} b_1 - b_2`."""
    *terms, current = (linear(x, lin.weight) for lin in conv.lins)
    later: Tensor | None = None
    while terms:
        out = terms.pop() + (2.0 if terms else 1.0) * matmul(graph, current)
        current, later = (out if later is None else out - later), current
    return current + conv.bias


def _arma(conv: ARMAConv, x: Features, graph: SparseMatrix) -> Tensor:
    """One layer without an activation is linear: the mean over the stacks is taken of the weights
    instead of the outputs."""
    skip = dropout(x, conv.dropout, conv.training)
    (root,), (bias,) = conv.root_weight.mean(dim=1), conv.bias.mean(dim=1)
    out = matmul(graph, linear(x, conv.init_weight.mean(dim=0).t()))
    return out + linear(skip, root.t(), bias.view(-1))


def _gat(conv: GATConv, x: Features, graph: AttentionGraph) -> Tensor:
    """PyG's attention, edge by edge; then one sparse product with it for all heads."""
    h = linear(x, conv.lin.weight).view(-1, conv.heads, conv.out_channels)
    scores = ((h * conv.att_src).sum(dim=-1), (h * conv.att_dst).sum(dim=-1))
    alpha = conv.edge_updater(graph.edge_index, alpha=scores, edge_attr=None, size=None)

    def head(alpha: Tensor, h: Tensor) -> Tensor:
        return matmul(graph.matrix.with_value(alpha), h)

    out = torch.func.vmap(head, in_dims=1, out_dims=1)(alpha, h)
    return (out.flatten(1) if conv.concat else out.mean(dim=1)) + conv.bias


def _gin(conv: GINConv, x: Features, graph: SparseMatrix) -> Tensor:
    """The MLP's first weights come before the sum over neighbours."""
    first, *others = conv.nn
    h = linear(x, first.weight)
    out = (1 + conv.eps) * h + matmul(graph, h) + first.bias
    for module in others:
        out = module(out)
    return out


def _appnp(conv: APPNP, x: Tensor, graph: SparseMatrix) -> Tensor:
    return diffuse(x, *graph.csr, conv.alpha, conv.K)


def _sgc(conv: SGConv, x: Features, graph: SparseMatrix) -> Tensor:
    out = linear(x, conv.lin.weight)
    for _ in range(conv.K):
        out = matmul(graph, out)
    return out + conv.lin.bias


_CONVOLUTIONS: dict[type, Callable[[Any, Any, Any], Tensor]] = {
    torch.nn.Linear: _linear,
    ChebConv: _cheb,
    GCNConv: gcn,
    SAGEConv: _sage,
    GATConv: _gat,
    GINConv: _gin,
    ARMAConv: _arma,
    APPNP: _appnp,
    SGConv: _sgc,
}


def convolve(conv: torch.nn.Module, x: Features, inputs: PreparedInputs) -> Tensor:
    """The forward of `conv`, as :class:`~graphrelu.lab.models.backbones.GNN` or
    :class:`~graphrelu.lab.models.backbones.DeepGNN` builds it, on its graph."""
    if inputs.graph is not None:
        return _CONVOLUTIONS[type(conv)](conv, x, inputs.graph)
    edges = [inputs.edge_index, inputs.edge_weight]
    if isinstance(conv, (SAGEConv, GATConv, GINConv)):  # which know no edge weights
        edges = edges[:1]
    out: Tensor = conv(x) if isinstance(conv, Linear) else conv(x, *edges)
    return out
