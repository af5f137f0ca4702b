"""Sparse matrices of constant pattern: normalised graphs, and sparse node features."""

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.diffusion import CSR, pagerank_csr
from graphrelu.ops.products import Pattern, sorted_entries, sparse_product

# Features with fewer nonzeros than this share are kept sparse: the memory of both sorted matrices
# and the time of the products are then below those of a dense matrix.
SPARSE_DENSITY = 0.1


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
        by_row = sorted_entries(row, col, num_rows, num_cols)
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
    def from_edges(
        cls, source: Tensor, target: Tensor, weight: Tensor, num_nodes: int
    ) -> "SparseMatrix":
        """The adjacency matrix by which every target sums its weighted sources."""
        return cls.from_coordinates(target, source, weight, num_nodes, num_nodes)

    @classmethod
    def from_csr(cls, matrix: Tensor) -> "SparseMatrix":
        """From a torch tensor of layout :obj:`torch.sparse_csr`."""
        rowptr, col = matrix.crow_indices().long(), matrix.col_indices().long()
        row = torch.repeat_interleave(rowptr.diff())
        return cls.from_coordinates(row, col, matrix.values(), matrix.size(0), matrix.size(1))

    @classmethod
    def from_dense(cls, matrix: Tensor) -> "SparseMatrix":
        """The nonzeros of a dense matrix."""
        row, col = matrix.nonzero(as_tuple=True)
        return cls.from_coordinates(row, col, matrix[row, col], matrix.size(0), matrix.size(1))

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    def size(self, dim: int) -> int:
        return (self.pattern.num_rows, self.pattern.num_cols)[dim]

    def with_value(self, value: Tensor) -> "SparseMatrix":
        """The same nonzeros with other values, in the order of `self.value`."""
        return replace(self, value=value, value_t=value.index_select(0, self.order))


class GatheredMatrix(NamedTuple):
    """A square matrix and its transpose as plain tensors: each model of a vmap may have another."""

    matrix: CSR
    transposed: CSR


Features: TypeAlias = Tensor | SparseMatrix


def matmul(matrix: SparseMatrix | GatheredMatrix, x: Tensor) -> Tensor:
    """The product with a dense `x` `[num_cols, F]`, differentiable in `x` and, unless it was
    gathered, in `matrix.value`."""
    if isinstance(matrix, GatheredMatrix):
        # Power iteration that never teleports.
        return pagerank_csr(x, *matrix, alpha=0.0, steps=1, diffusion="power")
    if x.dim() != 2 or x.size(0) != matrix.size(1):
        raise ValueError(f"x must be of shape [{matrix.size(1)}, *], got {list(x.shape)}.")
    return sparse_product(x, matrix.value, matrix.value_t, matrix.pattern, matrix.pattern_t)


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """:func:`torch.nn.functional.linear` of dense or sparse features."""
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias)
    out = matmul(x, weight.t())
    return out if bias is None else out + bias


def dropout(x: Features, p: float, training: bool) -> Features:
    """Dropout of dense or sparse features: a zero needs no mask."""
    if isinstance(x, Tensor):
        return F.dropout(x, p=p, training=training)
    value = F.dropout(x.value, p=p, training=training)
    return x if value is x.value else x.with_value(value)


def as_features(x: Features) -> Features:
    """Constant node features in the form that is cheaper: sparse, or dense as they are."""
    if isinstance(x, SparseMatrix):
        return x
    if x.layout != torch.strided:
        return SparseMatrix.from_csr(x.to_sparse_csr())
    is_sparse = int(torch.count_nonzero(x)) < SPARSE_DENSITY * x.numel()
    return SparseMatrix.from_dense(x) if is_sparse else x


def row_normalized(x: Tensor) -> Tensor:
    """Features divided by their row's sum where it exceeds 1, as PyG's `NormalizeFeatures` does.

    That transform shifts the smallest feature to zero first; dense or sparse CSR in, the same out.
    """
    if x.layout == torch.strided:
        x = x - x.min() if x.numel() > 0 else x
        return x / x.sum(dim=1, keepdim=True).clamp(min=1.0)
    value = x.values()
    if bool((value < 0).any()):
        raise ValueError("x must not be negative where it is sparse: a shift would fill its zeros.")
    row = torch.repeat_interleave(x.crow_indices().diff())
    total = value.new_zeros(x.size(0)).index_add(0, row, value).clamp(min=1.0)
    return torch.sparse_csr_tensor(
        x.crow_indices(), x.col_indices(), value / total[row], x.shape, check_invariants=False
    )
