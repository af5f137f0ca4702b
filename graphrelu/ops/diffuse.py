r"""The diffusion, in two operations. `project` takes from the features what the two blocks see of
it: the node logits and the mean of each graph. `diffuse` is personalised PageRank of the logits,
over a sorted matrix; its gradient is a diffusion again, over the transposed matrix. The features
themselves are never diffused, and `diffuse` saves nothing of them."""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu import functional
from graphrelu.functional import nodes_per_graph, polynomial, without_autocast
from graphrelu.ops import (
    INTERPRETS,
    differentiated,
    map_by_loop,
    replicated,
    stacked,
    uses_triton,
)
from graphrelu.ops.native import LOOPS

_INPUTS = "Tensor x, Tensor weight, Tensor mass, Tensor? batch"
torch.library.define("graphrelu::project", f"({_INPUTS}, SymInt batch_size) -> (Tensor, Tensor)")
torch.library.define(
    "graphrelu::project_backward",
    f"({_INPUTS}, Tensor grad_logits, Tensor grad_mean) -> (Tensor, Tensor)",
)


@torch.library.impl("graphrelu::project", "default")
def _project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    if (x.is_cuda or INTERPRETS) and weight.size(-2) == 1 and uses_triton(x):
        from graphrelu.ops.triton import project as kernels

        return kernels.forward(x, weight, mass, batch, batch_size)
    return functional.project(x, weight, mass, batch, batch_size)


@torch.library.impl("graphrelu::project_backward", "default")
def _project_backward(
    x: Tensor,
    weight: Tensor,
    mass: Tensor,
    batch: Tensor | None,
    grad_logits: Tensor,
    grad_mean: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and the weight. On one graph that of x is one product of rank H + 1
    instead of two large terms and their sum."""
    if (x.is_cuda or INTERPRETS) and weight.size(-2) == 1 and uses_triton(x):
        from graphrelu.ops.triton import project as kernels

        return kernels.backward(x, weight, mass, batch, grad_logits, grad_mean)
    with without_autocast(x):
        grad_weight = grad_logits.mT @ x.to(weight.dtype)
        mass = mass.unsqueeze(-1)
        if batch is None:
            mean = grad_mean / max(1, x.size(-2))
            left = torch.cat([grad_logits, mass.expand(*x.shape[:-1], 1)], dim=-1)
            grad_x = left @ torch.cat([weight, mean], dim=-2)
        else:
            nodes = nodes_per_graph(batch, grad_mean.size(-2)).clamp(min=1)
            mean = grad_mean / nodes.unsqueeze(-1)
            graphs = batch.expand(x.shape[:-1])
            if x.dim() > 2:
                graphs, _ = functional.joined(graphs, grad_mean.size(-2))
            of_node = mean.flatten(0, -2).index_select(0, graphs).view(x.shape)
            grad_x = (grad_logits @ weight).addcmul_(mass, of_node)
    if grad_x.dtype != x.dtype or not x.is_contiguous():
        grad_x = torch.empty_like(x).copy_(grad_x)
    return grad_x, grad_weight


def _project_shapes(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor]:
    logits = weight.new_empty(*x.shape[:-1], weight.size(-2))
    return logits, weight.new_empty(*x.shape[:-2], batch_size, x.size(-1))


def _project_backward_shapes(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), weight.new_empty(weight.shape)


torch.library.register_fake("graphrelu::project", _project_shapes)
torch.library.register_fake("graphrelu::project_backward", _project_backward_shapes)
_project_operator = torch.ops.graphrelu.project.default
_project_backward_operator = torch.ops.graphrelu.project_backward.default
map_by_loop(_project_backward_operator)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None, batch_size: int
    ) -> tuple[Tensor, Tensor]:
        return _project_operator(x, weight, mass, batch, batch_size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[:4])
        ctx.batch_size = inputs[4]

    @staticmethod
    def backward(ctx: Any, grad_logits: Tensor, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mass, batch = ctx.saved_tensors
        needs_x, _, needs_mass, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled() or needs_mass:  # of learned edge weights
            equations = partial(functional.project, batch=batch, batch_size=ctx.batch_size)
            grads = differentiated(equations, (x, weight, mass), (grad_logits, grad_mean))
            return *grads, None, None
        if not needs_x:
            return None, grad_logits.mT @ x.to(weight.dtype), None, None, None
        return (
            *_project_backward_operator(x, weight, mass, batch, grad_logits, grad_mean),
            None,
            None,
            None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        all_args, dims, own_dims = list(args), in_dims[:4], (2, 2, 1, 1)
        # A mass or batch that all replicas share stays as it is.
        places = [
            i
            for i, (arg, dim) in enumerate(zip(args[:4], dims, strict=True))
            if i < 2 or not (arg is None or (dim is None and arg.dim() == 1))
        ]
        mapped = ([part[i] for i in places] for part in (dims, args, own_dims))
        tensors, sizes = stacked(info.batch_size, *mapped)
        for i, tensor in zip(places, tensors, strict=True):
            all_args[i] = tensor
        outs = _Project.apply(*all_args)
        return tuple(out.unflatten(0, sizes) for out in outs), (0, 0)


def project(
    x: Tensor, weight: Tensor, mass: Tensor, batch: Tensor | None = None, batch_size: int = 1
) -> tuple[Tensor, Tensor]:
    """:func:`graphrelu.functional.project` in one pass, and its gradient in another."""
    return _Project.apply(x, weight, mass, batch, batch_size)


# Vectors by a sparse matrix, on a CPU: torch needs MKL on Linux for it.
_MULTIPLIES_VECTORS = torch.backends.mkl.is_available() and sys.platform == "linux"
_MAX_INT32 = torch.iinfo(torch.int32).max
# torch warns once per process that these are in beta: not users of an activation.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], check_invariants=False)


class CSR(NamedTuple):
    """A sparse matrix in compressed rows."""

    rowptr: Tensor
    col: Tensor
    value: Tensor


def normalized_csr(
    source: Tensor, target: Tensor, weight: Tensor, num_nodes: int
) -> tuple[CSR, CSR] | None:
    """The normalised adjacency matrix, whose rows are targets, and its transpose, both sorted, by
    compiled loops; none where they do not serve."""
    largest = max(source.numel(), num_nodes)
    if not source.is_cpu or weight.dtype not in LOOPS or largest > _MAX_INT32:
        return None

    def empty() -> CSR:
        return CSR(
            torch.empty(num_nodes + 1, dtype=torch.int32),
            torch.empty(source.numel(), dtype=torch.int32),
            torch.empty_like(weight),
        )

    matrix, transposed, edges = empty(), empty(), (source, target, weight)
    arguments = *(part.contiguous() for part in edges), None, source.numel(), num_nodes
    is_symmetric = LOOPS[weight.dtype]("prepare", *arguments, *matrix, *transposed)
    return matrix, matrix if is_symmetric else transposed


def index_dtype(*sizes: int) -> torch.dtype:
    """The type that counts so far. MKL takes 32-bit indices: others would be converted in every
    product; and a product is bound by the memory that it reads, half of which are indices."""
    return torch.int32 if max(sizes) <= _MAX_INT32 else torch.int64


def block_diagonal(rowptr: Tensor, col: Tensor, num_cols: int) -> tuple[Tensor, Tensor]:
    """One matrix in compressed rows, with `R` of the same size along its diagonal: those of
    `rowptr [R, rows + 1]` and `col [R, nonzeros]`."""
    replicas, nonzeros = col.shape
    sizes = (replicas * (rowptr.size(1) - 1), replicas * num_cols, replicas * nonzeros)
    block = torch.arange(replicas, dtype=index_dtype(*sizes), device=col.device).view(-1, 1)
    starts = (rowptr[:, :-1] + nonzeros * block).flatten()
    end = starts.new_full((1,), replicas * nonzeros)
    return torch.cat([starts, end]), (col + num_cols * block).flatten()


torch.library.define(
    "graphrelu::diffuse",
    "(Tensor x, Tensor rowptr, Tensor col, Tensor value, float alpha, SymInt steps, str kind) "
    "-> Tensor",
)


@torch.library.impl("graphrelu::diffuse", "default")
def _diffuse(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, kind: str
) -> Tensor:
    if value.numel() == 0 or x.numel() == 0:  # the sparse libraries refuse empty operands
        return polynomial(x, None, _without_edges, alpha, steps, kind).contiguous()
    x = x.contiguous()
    if (x.is_cuda or INTERPRETS) and x.dtype == torch.float and uses_triton(x):
        from graphrelu.ops.triton import diffuse as kernels

        return kernels.forward(x, CSR(rowptr, col, value), alpha, steps, kind)
    return by_library(x, CSR(rowptr, col, value), alpha, steps, kind)


def csr_tensor(matrix: CSR, num_cols: int) -> Tensor:
    """The matrix as torch's sparse tensor."""
    size = (matrix.rowptr.size(0) - 1, num_cols)
    return torch.sparse_csr_tensor(*matrix, size, check_invariants=False)


def by_library(x: Tensor, matrix: CSR, alpha: float, steps: int, kind: str) -> Tensor:
    """:func:`~graphrelu.functional.polynomial` with the update in the product, by the sparse
    library that torch has for the device."""
    csr, shape = csr_tensor(matrix, x.size(0)), x.shape
    add_product: Callable[..., Tensor] = torch.addmm
    if x.is_cpu and x.size(1) == 1 and _MULTIPLIES_VECTORS:  # faster than one column
        x, add_product = x.view(-1), torch.addmv
    with without_autocast(x):
        return polynomial(x, csr, add_product, alpha, steps, kind).view(shape)


def _without_edges(
    previous: Tensor, matrix: None, current: Tensor, *, beta: float, alpha: float
) -> Tensor:
    return beta * previous if beta else torch.zeros_like(previous)


def _diffuse_shapes(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


torch.library.register_fake("graphrelu::diffuse", _diffuse_shapes)
_diffuse_operator = torch.ops.graphrelu.diffuse.default
map_by_loop(_diffuse_operator)


class _Diffuse(torch.autograd.Function):
    """Of a symmetric matrix there is no transposed one: a compiler refuses a tensor twice."""

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
        kind: str,
    ) -> Tensor:
        return _diffuse_operator(x, rowptr, col, value, alpha, steps, kind)

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
            grad = _diffuse_operator(grad, *matrices[:3], *ctx.settings)
        return grad, *([None] * 9)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, *args: Any) -> tuple[Tensor, int]:
        if all(dim is None for dim in in_dims[1:7]):
            x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
            return _Diffuse.apply(x.flatten(1), *args).view(x.shape), 1
        # Each replica has a graph of its own: all of them are one graph, block by block.
        size = info.batch_size
        x = replicated(x, in_dims[0], size)
        matrices: list[Tensor | None] = []
        for first in (0, 3):
            if args[first] is None:
                matrices += [None] * 3
                continue
            rowptr, col, value = (
                replicated(args[i], in_dims[i + 1], size) for i in range(first, first + 3)
            )
            matrices += [*block_diagonal(rowptr, col, x.size(1)), value.flatten()]
        return _Diffuse.apply(x.flatten(0, 1), *matrices, *args[6:]).view(x.shape), 0


def diffuse(x: Tensor, matrix: CSR, transposed: CSR, alpha: float, steps: int, kind: str) -> Tensor:
    """The fast twin of :func:`graphrelu.functional.pagerank`, by power iteration or Chebyshev.

    Args:
        x: `[N, F]`, every column of which is diffused.
        matrix: The normalised adjacency; rows are targets.
        transposed: Its transpose, or the same object where it is symmetric.
        alpha: The teleport probability.
        steps: The number of products.
        kind: `power` or `chebyshev`.
    """
    other = (None, None, None) if transposed.col is matrix.col else transposed
    return _Diffuse.apply(x, *matrix, *other, alpha, steps, kind)
