r"""PyG's convolutions on a graph that is prepared once, as a few sparse products.

PyG gathers a message for every edge; many models at once (:func:`torch.func.vmap`) would hold as
many messages. Here each convolution applies its weights first and then multiplies the projected
columns with the graph's normalised matrix: linearity permits it, sparse features stay sparse, and
only hidden columns are propagated. Each function equals the convolution's own forward.

The sparse matrices are of constant pattern: normalised graphs, and sparse node features. Products
are differentiable, and fast under vmap. The gradient of :math:`\mathbf{M} \mathbf{x}` is
:math:`\mathbf{M}^{\top}` applied to the incoming gradient; the gradient of the values is a product
sampled at the nonzeros, so that no message of an edge is stored. All replicas of a vmap share one
product: of wider columns where they share the matrix, with a block-diagonal matrix where each has
values of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Linear
from torch_geometric.data import Data
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
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import add_self_loops, remove_self_loops, scatter

from graphrelu.ops import replicated
from graphrelu.ops.diffuse import CSR, csr_tensor, diffuse, index_dtype

# Features with a smaller share of nonzeros are kept sparse: both sorted matrices then take less
# memory, and their products less time, than a dense matrix.
SPARSE_DENSITY = 0.1

# The gradients of stacked weights are products that sum over all nodes, and one product for each
# model leaves most of a GPU idle. With up to this many products, each over at least this many
# nodes, ten models of 64 channels and 10,000 nodes take 45 us instead of 350 (H200).
_PRODUCTS = 64
_LEAST_NODES = 1024

# Block-diagonal patterns that are kept: the two layers of GAT have different numbers of heads.
_REMEMBERED = 4


@dataclass(eq=False)
class Pattern:
    """The places of a matrix's nonzeros, in compressed rows."""

    rowptr: Tensor
    col: Tensor
    num_cols: int
    _blocks: dict[int, "Pattern"] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_sorted(cls, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> "Pattern":
        count = torch.bincount(row, minlength=num_rows)
        rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        dtype = index_dtype(num_rows, num_cols, col.numel())
        return cls(rowptr.to(dtype), col.to(dtype), num_cols)

    @property
    def num_rows(self) -> int:
        return self.rowptr.numel() - 1

    def block_diagonal(self, replicas: int) -> "Pattern":
        """As many copies along the diagonal; the last few numbers asked for are remembered."""
        if replicas not in self._blocks:
            if len(self._blocks) == _REMEMBERED:
                self._blocks.pop(next(iter(self._blocks)))
            num_cols, nonzeros = replicas * self.num_cols, replicas * self.col.numel()
            dtype = index_dtype(replicas * self.num_rows, num_cols, nonzeros)
            block = torch.arange(replicas, dtype=dtype, device=self.col.device).view(-1, 1)
            starts = (self.rowptr[:-1] + self.col.numel() * block).flatten()
            rowptr = torch.cat([starts, starts.new_full((1,), nonzeros)])
            col = (self.col + self.num_cols * block).flatten()
            self._blocks[replicas] = Pattern(rowptr, col, num_cols)
        return self._blocks[replicas]


def _product(pattern: Pattern, value: Tensor, x: Tensor) -> Tensor:
    if value.numel() == 0 or x.numel() == 0:
        return x.new_zeros(pattern.num_rows, x.size(1))  # the libraries refuse empty operands
    matrix = csr_tensor(CSR(pattern.rowptr, pattern.col, value), x.size(0))
    out = x.new_empty(pattern.num_rows, x.size(1))
    # `mm` would fill, and `addmm` copy, another tensor.
    return out.addmm_(matrix, x.contiguous(), beta=0)


def _sampled_product(pattern: Pattern, left: Tensor, right: Tensor) -> Tensor:
    """The inner product of row i of `left` and row j of `right`, at each nonzero (i, j)."""
    value = left.new_zeros(pattern.col.numel())
    if value.numel() == 0 or left.size(1) == 0:
        return value
    matrix = csr_tensor(CSR(pattern.rowptr, pattern.col, value), right.size(0))
    right = right.contiguous().t()
    return torch.sparse.sampled_addmm(matrix, left.contiguous(), right, beta=0).values()


class _SparseProduct(torch.autograd.Function):
    """The patterns travel as plain objects, and the vmap rule is written out: for each tensor
    among the arguments, and for a generated rule, torch.func takes longer than a small product.
    """

    @staticmethod
    def forward(
        x: Tensor, value: Tensor, value_t: Tensor, pattern: Pattern, pattern_t: Pattern
    ) -> Tensor:
        return _product(pattern, value, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, value, value_t, *ctx.patterns = inputs
        # Where the values are constant, their transpose alone is kept and not the features.
        ctx.save_for_backward(x if value.requires_grad else None, value_t)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, value_t), (pattern, pattern_t) = ctx.saved_tensors, ctx.patterns
        grad_value = None if x is None else _sampled_product(pattern, grad, x)
        return _product(pattern_t, value_t, grad), grad_value, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        x, value, value_t, *patterns = inputs
        replicas, num_rows = info.batch_size, patterns[0].num_rows
        if in_dims[1] is None and in_dims[2] is None:
            x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
            out = _SparseProduct.apply(x.flatten(1), value, value_t, *patterns)
            return out.view(num_rows, *x.shape[1:]), 1
        merged = (
            replicated(tensor, dim, replicas).flatten(0, 1)
            for tensor, dim in zip(inputs[:3], in_dims, strict=False)
        )
        blocks = (pattern.block_diagonal(replicas) for pattern in patterns)
        out = _SparseProduct.apply(*merged, *blocks)
        return out.view(replicas, num_rows, out.size(1)), 0


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix in compressed rows, and its transpose, whose values are `value[order]`."""

    pattern: Pattern
    value: Tensor
    pattern_t: Pattern
    value_t: Tensor
    order: Tensor

    @classmethod
    def from_coordinates(
        cls, row: Tensor, col: Tensor, value: Tensor, num_rows: int, num_cols: int
    ) -> "SparseMatrix":
        """One entry for each row, column and value; duplicates stay and add up."""
        by_row = torch.argsort(row * num_cols + col, stable=True)
        row, col, value = row[by_row], col[by_row], value[by_row]
        order = torch.argsort(col, stable=True)
        return cls(
            Pattern.from_sorted(row, col, num_rows, num_cols),
            value,
            Pattern.from_sorted(col[order], row[order], num_cols, num_rows),
            value[order],
            order,
        )

    @classmethod
    def symmetric(cls, pattern: Pattern, value: Tensor) -> "SparseMatrix":
        """A matrix that is its own transpose, whose values stay as they are."""
        return cls(pattern, value, pattern, value, torch.empty(0))

    @classmethod
    def from_tensor(cls, matrix: Tensor) -> "SparseMatrix":
        """The nonzeros of a dense tensor, or the entries of a sparse one."""
        matrix = matrix.to_sparse_coo().coalesce()
        row, col = matrix.indices()
        return cls.from_coordinates(row, col, matrix.values(), matrix.size(0), matrix.size(1))

    @property
    def csr(self) -> tuple[CSR, CSR]:
        """The matrix and its transpose as plain tensors."""
        matrix = CSR(self.pattern.rowptr, self.pattern.col, self.value)
        return matrix, CSR(self.pattern_t.rowptr, self.pattern_t.col, self.value_t)

    def with_value(self, value: Tensor) -> "SparseMatrix":
        """The same nonzeros with other values, in the order of `self.value`."""
        return replace(self, value=value, value_t=value.index_select(0, self.order))


Features: TypeAlias = Tensor | SparseMatrix


def matmul(matrix: SparseMatrix, x: Tensor) -> Tensor:
    """The product with a dense `x` `[num_cols, F]`, differentiable in `x` and `matrix.value`."""
    patterns = matrix.pattern, matrix.pattern_t
    out: Tensor = _SparseProduct.apply(x, matrix.value, matrix.value_t, *patterns)
    return out


class StackedLinear(torch.autograd.Function):
    """`x @ weight.T`; below a vmap the gradient of the weights is summed in parts."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        parts = 1 if x.dim() != 3 else min(_PRODUCTS // x.size(0), x.size(1) // _LEAST_NODES)
        if parts < 2:
            return grad_x, grad.mT @ x
        width = x.size(1) // parts
        most = parts * width
        grads, xs = (t[:, :most].reshape(-1, width, t.size(2)) for t in (grad, x))
        total = (grads.mT @ xs).unflatten(0, (-1, parts)).sum(dim=1)
        return grad_x, total + grad[:, most:].mT @ x[:, most:]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, weight: Tensor
    ) -> tuple[Tensor, int]:
        weight = replicated(weight, in_dims[1], info.batch_size)
        if in_dims[0] is None:  # one product serves all
            out = F.linear(x, weight.flatten(0, 1))
            return out.unflatten(1, weight.shape[:2]), 1
        return StackedLinear.apply(x.movedim(in_dims[0], 0), weight), 0


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """:func:`torch.nn.functional.linear` of dense or sparse features."""
    if isinstance(x, Tensor) and not x.is_cuda:
        return F.linear(x, weight, bias)
    out = StackedLinear.apply(x, weight) if isinstance(x, Tensor) else matmul(x, weight.t())
    return out if bias is None else out + bias


def dropout(x: Features, p: float, training: bool) -> Features:
    """Dropout of dense or sparse features: a zero needs no mask."""
    if isinstance(x, Tensor):
        return F.dropout(x, p=p, training=training)
    value = F.dropout(x.value, p=p, training=training)
    return x if value is x.value else x.with_value(value)


def as_features(x: Tensor) -> Features:
    """Constant node features in the form that is cheaper: sparse, or dense as they are."""
    is_dense = x.layout == torch.strided
    if is_dense and int(torch.count_nonzero(x)) >= SPARSE_DENSITY * x.numel():
        return x
    return SparseMatrix.from_tensor(x)


def row_normalized(x: Tensor) -> Tensor:
    """Features divided by their row's sum where it exceeds 1, as PyG's `NormalizeFeatures` does,
    which shifts the smallest one to zero first; dense or sparse CSR in, the same out."""
    if x.layout == torch.strided:
        normalized: Tensor = NormalizeFeatures()(Data(x=x)).x
        return normalized
    value = x.values()
    if bool((value < 0).any()):
        raise ValueError("x must not be negative where it is sparse: a shift would fill its zeros.")
    row = torch.repeat_interleave(x.crow_indices().diff())
    total = value.new_zeros(x.size(0)).index_add(0, row, value).clamp(min=1.0)
    return csr_tensor(CSR(x.crow_indices(), x.col_indices(), value / total[row]), x.size(1))


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
