r"""Diffuse: personalised PageRank over a sorted matrix. Its gradient is a diffusion again, over the
transposed matrix; nothing of the features is saved."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.functional import Edges, pagerank
from graphrelu.ops import (
    backend,
    custom_operator,
    launcher,
    one_by_one,
    run_loop,
    uses_loops,
    uses_triton,
    with_signature,
    without_autocast,
)

_MAX_INT32 = torch.iinfo(torch.int32).max
# torch warns once per process that these are in beta, which users of an activation need not know.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], check_invariants=False)


class DiffusionSettings(NamedTuple):
    """What, besides the graph, determines the operator S."""

    alpha: float
    steps: int
    diffusion: str = "power"


class CSR(NamedTuple):
    """A sparse matrix in compressed rows."""

    rowptr: Tensor
    col: Tensor
    value: Tensor

    def as_edges(self) -> Edges:
        num_nodes = self.rowptr.numel() - 1
        targets = torch.arange(num_nodes, device=self.col.device)
        target = targets.repeat_interleave(self.rowptr.diff(), output_size=self.col.numel())
        return Edges(self.col.long(), target, self.value, num_nodes)


def index_dtype(*sizes: int) -> torch.dtype:
    """The smallest type that can count that far. MKL takes 32-bit indices: others would be
    converted in every product, which is bound by the memory that it reads, half of it indices."""
    return torch.int32 if max(sizes) <= _MAX_INT32 else torch.int64


def diffuse_column(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int
) -> Tensor:
    """One column in compiled loops, by indices of 32 bits."""
    out = torch.empty_like(x)
    sizes = x.numel(), steps, torch.get_num_threads()
    run_loop("diffuse", (x, rowptr, col, value, out), *sizes, alpha)
    return out


def _diffuse(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int
) -> Tensor:
    x, matrix = x.contiguous(), CSR(rowptr, col, value)
    if value.numel() == 0 or x.numel() == 0:  # the sparse libraries refuse empty operands
        return alpha * x
    if x.size(1) == 1 and rowptr.dtype == torch.int32 and uses_loops(x):
        return diffuse_column(x, *matrix, alpha, steps)
    if x.dtype == torch.float and uses_triton(x):
        return _on_gpu(x, matrix, alpha, steps)
    with without_autocast(x):  # by torch's sparse library for the device
        return pagerank(x, csr_tensor(matrix, x.size(0)), alpha, steps, torch.addmm)


def csr_tensor(matrix: CSR, num_cols: int) -> Tensor:
    """The matrix as torch's sparse tensor."""
    size = (matrix.rowptr.size(0) - 1, num_cols)
    return torch.sparse_csr_tensor(*matrix, size, check_invariants=False)


_on_gpu = launcher("diffuse", "forward")
diffuse_operator = custom_operator(
    "diffuse",
    "(Tensor x, Tensor rowptr, Tensor col, Tensor value, float alpha, SymInt steps) -> Tensor",
    _diffuse,
    lambda x, *rest: torch.empty_like(x, memory_format=torch.contiguous_format),
)


@with_signature
class _Diffuse(torch.autograd.Function):
    """A symmetric matrix has no transposed one: a compiler refuses the same tensor twice."""

    @staticmethod
    def forward(
        x: Tensor,
        rowptr: Tensor,
        col: Tensor,
        value: Tensor,
        rowptr_t: Tensor | None,
        col_t: Tensor | None,
        value_t: Tensor | None,
        alpha: float,
        steps: int,
    ) -> Tensor:
        return diffuse_operator(x, rowptr, col, value, alpha, steps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:7])  # the graph, not the features
        ctx.settings = inputs[7:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once, as non-reentrant checkpoints require
        matrices = saved if saved[3] is None else (*saved[3:], *saved[:3])
        if torch.is_grad_enabled():
            grad = _Diffuse.apply(grad, *matrices, *ctx.settings)
        else:
            grad = diffuse_operator(grad, *matrices[:3], *ctx.settings)
        return grad, *([None] * 8)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, *args: Any) -> tuple[Any, Any]:
        if all(dim is None for dim in in_dims[1:7]):
            x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
            return _Diffuse.apply(x.flatten(1), *args).view(x.shape), 1
        return one_by_one(_Diffuse.apply, info, in_dims, x, *args)  # each has a graph of its own


def distinct(matrix: CSR, transposed: CSR) -> tuple[Tensor | None, ...]:
    """The tensors of both, the latter's only where it is another matrix."""
    return *matrix, *((None,) * 3 if transposed.col is matrix.col else transposed)


def diffuse(x: Tensor, matrix: CSR, transposed: CSR, alpha: float, steps: int) -> Tensor:
    """The fast twin of :func:`graphrelu.functional.pagerank`.

    Args:
        x: `[N, F]`, every column of which is diffused.
        matrix: The normalised adjacency; rows are targets.
        transposed: Its transpose, or the same object where it is symmetric.
        alpha: The teleport probability.
        steps: The number of products.
    """
    return _Diffuse.apply(x, *distinct(matrix, transposed), alpha, steps)


class PreparedGraph(NamedTuple):
    r"""The operator :math:`\mathbf{S}` of one graph, in one of three forms.

    `mass` is :math:`\mathbf{S}^{\top} \mathbf{1}`: the sum of all diffused features is
    `mass @ x`, so that their mean never needs a diffusion of features.
    """

    settings: DiffusionSettings
    mass: Tensor
    matrices: tuple[CSR, CSR] | None = None  # and its transpose, for the backward pass
    operator: Tensor | None = None  # dense, for diffusion="exact"
    edges: Edges | None = None  # where edge weights are learned: the reference, for autograd

    def diffuse(self, z: Tensor) -> Tensor:
        """Applies S to every column of `z`."""
        if self.operator is not None:
            return self.operator @ z
        alpha, steps, _ = self.settings
        if self.matrices is not None and backend() != "reference":
            return diffuse(z, *self.matrices, alpha, steps)
        edges = self.edges if self.matrices is None else self.matrices[0].as_edges()
        return pagerank(z, edges, alpha, steps)
