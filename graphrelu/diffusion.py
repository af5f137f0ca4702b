r"""Personalised PageRank diffusion: the operator through which GReLU sees the graph.

.. math::
    \mathbf{S} = \alpha \left( \mathbf{I} - (1 - \alpha)
    \mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2} \right)^{-1}

The first half of this file states it in plain torch (the reference); the second half is the same
polynomial over a prepared CSR matrix, whose backward pass is the transposed operator.
"""

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from graphrelu.ops.dispatch import backend
from graphrelu.ops.eager import with_eager_twin
from graphrelu.ops.products import block_diagonal, index_dtype, replicated, sorted_entries

DIFFUSIONS = ("power", "chebyshev", "exact")

# torch announces once per process that CSR support is in beta; it is the only layout with a
# fused teleport update, so the announcement is spent here instead of in the user's output.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0])


class Edges(NamedTuple):
    """A weighted edge list; messages flow from ``source`` to ``target``."""

    source: Tensor
    target: Tensor
    weight: Tensor
    num_nodes: int

    def transposed(self) -> "Edges":
        return Edges(self.target, self.source, self.weight, self.num_nodes)


def normalized_adjacency(edges: Edges, add_self_loops: bool = False) -> Edges:
    r""":math:`\mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}`, with PyG's (incoming) degree.

    A node of degree zero keeps an empty row. Every shape is known beforehand, so that the
    function compiles.
    """
    source, target, weight, num_nodes = edges
    if add_self_loops:
        # As PyG's `add_remaining_self_loops`: a node that has a loop gets no other.
        loops = scatter((source == target).long(), source, dim=0, dim_size=num_nodes, reduce="sum")
        nodes = torch.arange(num_nodes, device=source.device)
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        weight = torch.cat([weight, (loops == 0).to(weight.dtype)])

    # In float64: in float32 a sum of ones ends at 2^24, and small weights have no inverse.
    wide = weight.double()
    scale = inverse_root(scatter(wide, target, dim=0, dim_size=num_nodes, reduce="sum"))
    # The product of the two scales commutes: a symmetric graph stays symmetric to the last bit.
    normalized = (wide * (scale[source] * scale[target])).to(weight.dtype)
    return Edges(source, target, normalized, num_nodes)


def inverse_root(degree: Tensor) -> Tensor:
    r""":math:`\mathbf{D}^{-1/2}`, zero where the degree is."""
    isolated = degree == 0
    return degree.masked_fill(isolated, 1.0).rsqrt().masked_fill(isolated, 0.0)


def propagate(x: Tensor, edges: Edges) -> Tensor:
    """One product with the adjacency matrix: every target sums its weighted sources."""
    message = edges.weight.view(-1, 1) * x[edges.source]
    return scatter(message, edges.target, dim=0, dim_size=edges.num_nodes, reduce="sum")


def power_iteration(x: Tensor, edges: Edges, alpha: float, steps: int) -> Tensor:
    """`steps` iterations of personalised PageRank, as PyG's :class:`APPNP` defines them."""
    out = x
    for _ in range(steps):
        out = (1 - alpha) * propagate(out, edges) + alpha * x
    return out


def chebyshev_coefficients(alpha: float, steps: int) -> list[float]:
    r"""The best uniform approximation of :math:`\alpha / (1 - (1 - \alpha) \lambda)` on [-1, 1].

    The Chebyshev series of this function is geometric; dividing the last kept coefficient by
    :math:`1 - \rho^2` turns the truncated series into the minimax polynomial (Chebyshev, 1859).
    """
    if alpha == 1.0:
        return [1.0]
    c = 1.0 - alpha
    root = math.sqrt(1.0 - c * c)
    rho = (1.0 - root) / c
    coefficients = [alpha / root] + [2.0 * alpha / root * rho**k for k in range(1, steps + 1)]
    coefficients[-1] /= 1.0 - rho * rho
    return coefficients


def chebyshev(x: Tensor, edges: Edges, alpha: float, steps: int) -> Tensor:
    """The degree-`steps` Chebyshev approximation; needs a symmetric adjacency matrix."""
    coefficients = chebyshev_coefficients(alpha, steps)
    out = coefficients[0] * x
    previous, current = x, x
    for k, coefficient in enumerate(coefficients[1:], start=1):
        product = propagate(current, edges)
        previous, current = current, product if k == 1 else 2.0 * product - previous
        out = out + coefficient * current
    return out


def exact_operator(edges: Edges, alpha: float) -> Tensor:
    """The printed inverse as a dense matrix."""
    dense = edges.weight.new_zeros(edges.num_nodes, edges.num_nodes)
    dense = dense.index_put((edges.target, edges.source), edges.weight, accumulate=True)
    identity = torch.eye(edges.num_nodes, dtype=dense.dtype, device=dense.device)
    return alpha * torch.linalg.inv(identity - (1 - alpha) * dense)


def pagerank(x: Tensor, edges: Edges, alpha: float, steps: int, diffusion: str) -> Tensor:
    """Diffuses every column of `x` over normalised `edges`: the reference."""
    if diffusion == "exact":
        return exact_operator(edges, alpha) @ x
    if diffusion == "chebyshev":
        return chebyshev(x, edges, alpha, steps)
    return power_iteration(x, edges, alpha, steps)


class CSR(NamedTuple):
    """A square sparse matrix in compressed rows."""

    rowptr: Tensor
    col: Tensor
    value: Tensor


def to_csr(edges: Edges) -> CSR:
    """Rows are targets, columns sources, sorted in both; duplicates stay and add up."""
    order = sorted_entries(edges.target, edges.source, edges.num_nodes, edges.num_nodes)
    count = torch.ones_like(edges.target)
    count = scatter(count, edges.target, dim=0, dim_size=edges.num_nodes, reduce="sum")
    rowptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    dtype = index_dtype(order.size(0), edges.num_nodes)
    return CSR(rowptr.to(dtype), edges.source[order].to(dtype), edges.weight[order])


@torch.library.custom_op("graphrelu::pagerank", mutates_args=())
def _pagerank_csr(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, diffusion: str
) -> Tensor:
    """`power_iteration` and `chebyshev` with the updates fused into the sparse product."""
    with torch.autocast(x.device.type, enabled=False):
        return polynomial(x, rowptr, col, value, alpha, steps, diffusion)


def polynomial(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, diffusion: str
) -> Tensor:
    """The same outside of the dispatcher."""
    matrix = CSR(rowptr, col, value)
    if diffusion == "power":
        out = x
        for _ in range(steps):
            teleport = x.clone() if alpha else torch.empty_like(x)
            out = _add_product(teleport, matrix, out, beta=alpha, alpha=1 - alpha)
        return out

    coefficients = chebyshev_coefficients(alpha, steps)
    out = coefficients[0] * x
    previous, current = x.clone(), x
    for k, coefficient in enumerate(coefficients[1:], start=1):
        if k == 1:
            following = _add_product(torch.empty_like(x), matrix, current, beta=0.0, alpha=1.0)
        else:  # in the memory of the term that is no longer needed
            following = _add_product(previous, matrix, current, beta=-1.0, alpha=2.0)
            previous = current
        current = following
        out.add_(current, alpha=coefficient)
    return out


def _add_product(out: Tensor, matrix: CSR, x: Tensor, beta: float, alpha: float) -> Tensor:
    """`beta * out + alpha * matrix @ x`, in place."""
    if matrix.value.numel() == 0 or x.numel() == 0:
        return out.mul_(beta) if beta else out.zero_()  # the sparse libraries refuse empty operands
    if backend(x) == "triton" and x.dtype == torch.float and out.is_contiguous():
        from graphrelu.ops.triton.csr import add_product

        return add_product(out, *matrix, x, beta, alpha)
    size = (x.size(0), x.size(0))
    csr = torch.sparse_csr_tensor(*matrix, size, check_invariants=False)
    return out.addmm_(csr, x, beta=beta, alpha=alpha)


@_pagerank_csr.register_fake
def _(
    x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, alpha: float, steps: int, diffusion: str
) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_pagerank_csr.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    if in_dims[1] is in_dims[2] is in_dims[3] is None:
        x, *rest = args
        x = x.movedim(in_dims[0], 1)  # [N, R, F]: one product serves all R
        return _pagerank_csr(x.flatten(1), *rest).view(x.shape), 1
    # Each replica has a graph of its own: all of them are one graph, block by block.
    x, rowptr, col, value = (
        replicated(arg, dim, info.batch_size)
        for arg, dim in zip(args[:4], in_dims[:4], strict=True)
    )
    matrix = (*block_diagonal(rowptr, col, x.size(1)), value.flatten())
    return _pagerank_csr(x.flatten(0, 1), *matrix, *args[4:]).view(x.shape), 0


class _PageRank(torch.autograd.Function):
    """The gradient of :math:`S x` is :math:`S^T` applied to the incoming gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        rowptr: Tensor,
        col: Tensor,
        value: Tensor,
        rowptr_t: Tensor,
        col_t: Tensor,
        value_t: Tensor,
        alpha: float,
        steps: int,
        diffusion: str,
    ) -> Tensor:
        return _pagerank_csr(x, rowptr, col, value, alpha, steps, diffusion)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:7])  # the graph, not the features
        ctx.settings = inputs[7:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # asked for once, as non-reentrant checkpoints require
        matrix, transposed = saved[:3], saved[3:]
        grad = _pagerank_function(grad.contiguous(), *transposed, *matrix, *ctx.settings)
        return grad, *([None] * 9)


def _pagerank_eager(x: Tensor, rowptr: Tensor, col: Tensor, value: Tensor, *rest: Any) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return polynomial(x, rowptr, col, value, *rest[3:])


_pagerank_function = with_eager_twin(_PageRank, _pagerank_eager)


def pagerank_csr(
    x: Tensor, matrix: CSR, transposed: CSR, alpha: float, steps: int, diffusion: str
) -> Tensor:
    """The fast twin of :func:`pagerank`, for power iteration and Chebyshev."""
    out: Tensor = _pagerank_function(x, *matrix, *transposed, alpha, steps, diffusion)
    return out
