r"""Products with sparse matrices, differentiable and fast under :func:`torch.func.vmap`.

The gradient of :math:`\mathbf{M} \mathbf{x}` is :math:`\mathbf{M}^{\top}` applied to the incoming
gradient; its gradient with respect to the values is a product sampled at the nonzeros, so that no
message of an edge is ever stored. All replicas of a vmap share one product: of wider columns where
they share the matrix, with a block-diagonal matrix where each has values of its own.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# From this number of columns on, torch's own CPU kernel is faster than the one of MKL, by a fifth
# at 640 columns; below it is slower, by more than half at 16 (measured on two cores).
_WIDE = 192

# Block-diagonal patterns that are kept: the two layers of GAT have different numbers of heads.
_REMEMBERED = 4

_MAX_INT32 = torch.iinfo(torch.int32).max
_MAX_INT64 = torch.iinfo(torch.int64).max


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
        if replicas in self._blocks:
            return self._blocks[replicas]
        # What is remembered must be a plain tensor, whatever transform or mode asked for it.
        with torch._C._DisableFuncTorch(), torch.inference_mode(False), torch.no_grad():
            rowptr, col = (part.expand(replicas, -1) for part in (self.rowptr, self.col))
            rowptr, col = block_diagonal(rowptr, col, self.num_cols)
        while len(self._blocks) >= _REMEMBERED:
            self._blocks.pop(next(iter(self._blocks)))
        self._blocks[replicas] = Pattern(rowptr, col, replicas * self.num_cols)
        return self._blocks[replicas]


def block_diagonal(rowptr: Tensor, col: Tensor, num_cols: int) -> tuple[Tensor, Tensor]:
    """One matrix in compressed rows, with `R` of the same size along its diagonal: those of
    `rowptr [R, rows + 1]` and `col [R, nonzeros]`."""
    replicas, nonzeros = col.shape
    sizes = (replicas * (rowptr.size(1) - 1), replicas * num_cols, replicas * nonzeros)
    block = torch.arange(replicas, dtype=index_dtype(*sizes), device=col.device).view(-1, 1)
    starts = (rowptr[:, :-1] + nonzeros * block).flatten()
    end = starts.new_full((1,), replicas * nonzeros)
    return torch.cat([starts, end]), (col + num_cols * block).flatten()


def index_dtype(*sizes: int) -> torch.dtype:
    """The type that counts so far. MKL takes 32-bit indices: others would be converted in every
    product; and a product is bound by the memory that it reads, half of which are indices."""
    return torch.int32 if max(sizes) <= _MAX_INT32 else torch.int64


def sorted_entries(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Tensor:
    """The order of a matrix's entries by row, then by column; that of duplicates stays."""
    # A compiler that does not know the sizes yet would have to ask.
    if torch.compiler.is_compiling() or num_rows * num_cols <= _MAX_INT64:
        return torch.argsort(row * num_cols + col, stable=True)
    by_col = torch.argsort(col, stable=True)
    return by_col[torch.argsort(row[by_col], stable=True)]


@torch.library.custom_op("graphrelu::sparse_product", mutates_args=())
def _product(rowptr: Tensor, col: Tensor, value: Tensor, x: Tensor) -> Tensor:
    num_rows = rowptr.numel() - 1
    if value.numel() == 0 or x.numel() == 0:
        return x.new_zeros(num_rows, x.size(1))  # the sparse libraries refuse empty operands
    x = x.contiguous()
    matrix = torch.sparse_csr_tensor(
        rowptr, col, value, (num_rows, x.size(0)), check_invariants=False
    )
    with torch.autocast(x.device.type, enabled=False):
        if x.is_cpu and x.size(1) >= _WIDE:
            return torch.sparse.mm(matrix, x, "sum")
        out = x.new_empty(num_rows, x.size(1))
        return out.addmm_(matrix, x, beta=0)  # `mm` would fill, and `addmm` copy, another tensor


@_product.register_fake
def _(rowptr: Tensor, col: Tensor, value: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(rowptr.numel() - 1, x.size(1))


@torch.library.custom_op("graphrelu::sampled_product", mutates_args=())
def _sampled_product(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The inner product of row i of `left` and row j of `right`, at each nonzero (i, j)."""
    value = left.new_zeros(col.numel())
    if value.numel() == 0 or left.size(1) == 0:
        return value
    shape = (left.size(0), right.size(0))
    matrix = torch.sparse_csr_tensor(rowptr, col, value, shape, check_invariants=False)
    with torch.autocast(left.device.type, enabled=False):
        right = right.contiguous().t()
        return torch.sparse.sampled_addmm(matrix, left.contiguous(), right, beta=0).values()


@_sampled_product.register_fake
def _(rowptr: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(col.numel())


class _SparseProduct(torch.autograd.Function):
    """The patterns travel as plain objects, and the vmap rule is written out: for each tensor
    among the arguments, and for a generated rule, torch.func takes longer than a small product.
    """

    @staticmethod
    def forward(
        x: Tensor, value: Tensor, value_t: Tensor, pattern: Pattern, pattern_t: Pattern
    ) -> Tensor:
        return _product(pattern.rowptr, pattern.col, value, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, value, value_t, *ctx.patterns = inputs
        # Where the values are constant, the matrix alone is kept and not the features.
        ctx.save_for_backward(x if value.requires_grad else None, value, value_t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, value, value_t), (pattern, pattern_t) = ctx.saved_tensors, ctx.patterns
        grad_x = _SparseProduct.apply(grad, value_t, value, pattern_t, pattern)
        grad_value = None if x is None else _SampledProduct.apply(grad, x, pattern)
        return grad_x, grad_value, None, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        value: Tensor,
        value_t: Tensor,
        pattern: Pattern,
        pattern_t: Pattern,
    ) -> tuple[Tensor, int]:
        replicas = info.batch_size
        if in_dims[1] is None and in_dims[2] is None:
            x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
            out = _SparseProduct.apply(x.flatten(1), value, value_t, pattern, pattern_t)
            return out.view(pattern.num_rows, *x.shape[1:]), 1
        patterns = pattern.block_diagonal(replicas), pattern_t.block_diagonal(replicas)
        x, value, value_t = (
            _merged(tensor, dim, replicas)
            for tensor, dim in zip((x, value, value_t), in_dims, strict=False)
        )
        out = _SparseProduct.apply(x, value, value_t, *patterns)
        return out.view(replicas, pattern.num_rows, x.size(1)), 0


class _SampledProduct(torch.autograd.Function):
    """Has no derivative of its own."""

    @staticmethod
    def forward(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
        return _sampled_product(pattern.rowptr, pattern.col, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError(
            "Second derivatives with respect to a matrix's values are not implemented."
        )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], left: Tensor, right: Tensor, pattern: Pattern
    ) -> tuple[Tensor, int]:
        replicas = info.batch_size
        left, right = _merged(left, in_dims[0], replicas), _merged(right, in_dims[1], replicas)
        out = _SampledProduct.apply(left, right, pattern.block_diagonal(replicas))
        return out.view(replicas, pattern.col.numel()), 0


def _merged(tensor: Tensor, dim: int | None, replicas: int) -> Tensor:
    """The rows of all replicas, below each other."""
    return replicated(tensor, dim, replicas).flatten(0, 1)


def replicated(tensor: Tensor, dim: int | None, replicas: int) -> Tensor:
    """The argument of a vmap rule with its replicas in front."""
    return tensor.expand(replicas, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def sparse_product(
    x: Tensor, value: Tensor, value_t: Tensor, pattern: Pattern, pattern_t: Pattern
) -> Tensor:
    """The matrix of `pattern` and `value` times `x`; the others are the transposed matrix."""
    out: Tensor = _SparseProduct.apply(x, value, value_t, pattern, pattern_t)
    return out
