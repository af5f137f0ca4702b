"""From whatever PyG accepts as a graph to a diffusion that is ready to run."""

import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from graphrelu.diffusion import (
    CSR,
    Edges,
    exact_operator,
    inverse_root,
    normalized_adjacency,
    pagerank,
    pagerank_csr,
    to_csr,
)
from graphrelu.ops.dispatch import backend
from graphrelu.ops.eager import is_transformed

if TYPE_CHECKING:
    from graphrelu.ops.triton.sliced import Sliced

# A dense inverse beyond this size no longer fits common memory (3.2 GB in float64).
MAX_EXACT_NODES = 20_000


class DiffusionSettings(NamedTuple):
    """What, besides the graph, determines the operator S."""

    alpha: float
    steps: int
    diffusion: str
    add_self_loops: bool


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
    slices: "tuple[Sliced, Sliced] | None" = None  # of large matrices, on a GPU

    def diffuse(self, z: Tensor) -> Tensor:
        """Applies S to every column of `z`."""
        alpha, steps, diffusion, _ = self.settings
        if self.slices is not None and z.size(1) == 1 and not is_transformed():
            from graphrelu.ops.triton.sliced import pagerank_sliced

            return pagerank_sliced(z, *self.slices, alpha, steps, diffusion)
        if self.matrices is not None:
            return pagerank_csr(z, *self.matrices, alpha, steps, diffusion)
        if self.operator is not None:
            return self.operator @ z
        assert self.edges is not None
        return pagerank(z, self.edges, alpha, steps, diffusion)


def as_edges(
    edge_index: Any, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype
) -> Edges:
    """Reads `edge_index` by PyG's conventions: a sparse matrix is `adj_t`, rows are targets."""
    if isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index):
        if edge_weight is not None:
            raise ValueError(
                "edge_weight must be None when edge_index is a sparse adjacency: "
                "its values are the weights."
            )
        sizes = tuple(
            edge_index.sizes() if isinstance(edge_index, SparseTensor) else edge_index.shape
        )
        if sizes != (num_nodes, num_nodes):
            raise ValueError(
                f"edge_index as a sparse adjacency must be of shape [{num_nodes}, {num_nodes}] "
                f"to fit x, got {list(sizes)}."
            )
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.sparse_coo:
            # PyG's function calls the user's matrix coalesced, in place, whether it is or not.
            coalesced = edge_index.coalesce()
            (target, source), edge_weight = coalesced.indices(), coalesced.values()
        else:
            (target, source), edge_weight = to_edge_index(edge_index)
    else:
        if isinstance(edge_index, EdgeIndex):
            edge_index = edge_index.as_tensor()
        _check_edge_index(edge_index)
        source, target = edge_index[0], edge_index[1]
    if edge_weight is None:
        weight = torch.ones(source.size(0), dtype=dtype, device=source.device)
    elif not isinstance(edge_weight, Tensor):
        raise TypeError(f"edge_weight must be a tensor, got {type(edge_weight).__name__}.")
    elif edge_weight.shape != source.shape:
        raise ValueError(
            f"edge_weight must be of shape [{source.size(0)}], one value per edge, "
            f"got {list(edge_weight.shape)}."
        )
    else:
        weight = edge_weight.to(dtype)
    return Edges(source.long(), target.long(), weight, num_nodes)


def _check_edge_index(edge_index: Any) -> None:
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            "edge_index must be a [2, num_edges] tensor, an EdgeIndex or a sparse adjacency, "
            f"got {type(edge_index).__name__}."
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"edge_index must hold int64 indices, got {edge_index.dtype}.")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(
            f"edge_index must be of shape [2, num_edges], got {list(edge_index.shape)}."
        )


def check_values(edges: Edges, diffusion: str, batch: Tensor | None) -> None:
    """The checks that must look at the numbers; they cost a pass over the edges."""
    if edges.source.numel() == 0:
        return
    index = torch.stack([edges.source, edges.target])
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= edges.num_nodes:
        raise ValueError(
            f"edge_index must hold indices between 0 and {edges.num_nodes - 1}, the rows of x, "
            f"got {low if low < 0 else high}."
        )
    if batch is not None and not torch.equal(batch[edges.source], batch[edges.target]):
        raise ValueError("batch must keep both ends of each edge in the same graph.")
    valid = (edges.weight >= 0) & edges.weight.isfinite()
    if not bool(valid.all()):
        raise ValueError(
            "edge_weight must be finite and non-negative: the symmetric normalisation has no "
            f"meaning for {float(edges.weight[~valid][0]):g}."
        )
    if diffusion == "chebyshev" and not _is_symmetric(edges):
        raise ValueError(
            "edge_index must be undirected for diffusion='chebyshev'; "
            "use diffusion='power' on a directed graph."
        )


def _is_symmetric(edges: Edges) -> bool:
    forward, backward = (
        torch.sparse_coo_tensor(
            torch.stack([a, b]), edges.weight.detach(), (edges.num_nodes,) * 2
        ).coalesce()
        for a, b in ((edges.source, edges.target), (edges.target, edges.source))
    )
    return torch.equal(forward.indices(), backward.indices()) and torch.allclose(
        forward.values(),
        backward.values(),
        atol=0.0,  # weights have no scale of their own
    )


def prepare(
    edge_index: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    settings: DiffusionSettings,
    batch: Tensor | None,
    validate: bool,
) -> PreparedGraph:
    """Builds the operator; :func:`prepared` remembers it."""
    alpha, steps, diffusion, add_self_loops = settings
    edges = as_edges(edge_index, edge_weight, num_nodes, dtype)
    if validate:
        check_values(edges, diffusion, batch)
    edges = normalized_adjacency(edges, add_self_loops)

    if diffusion == "exact":
        if num_nodes > MAX_EXACT_NODES:
            raise ValueError(
                f"diffusion='exact' inverts a dense matrix and takes at most {MAX_EXACT_NODES:,} "
                f"nodes, got {num_nodes:,}; use 'power' or 'chebyshev'."
            )
        operator = exact_operator(edges, alpha)
        return PreparedGraph(settings, operator.sum(dim=0), operator=operator)

    ones = edges.weight.new_ones(num_nodes, 1)
    if edges.weight.requires_grad:
        mass = pagerank(ones, edges.transposed(), alpha, steps, diffusion)
        return PreparedGraph(settings, mass.view(-1), edges=edges)

    matrix, transposed = to_csr(edges), to_csr(edges.transposed())
    is_large = _is_large(matrix)
    looks_free = not torch.compiler.is_compiling() and matrix.col.device.type == "cpu"
    if (looks_free or is_large) and all(map(torch.equal, matrix, transposed)):
        transposed = matrix  # an undirected graph is kept once
    mass = pagerank_csr(ones, transposed, matrix, alpha, steps, diffusion).view(-1)
    slices = _slice(matrix, transposed) if is_large else None
    return PreparedGraph(settings, mass, matrices=(matrix, transposed), slices=slices)


def _is_large(matrix: CSR) -> bool:
    """Whether the GPU's own layout pays; it takes a look at the matrix, which a capture forbids."""
    if torch.compiler.is_compiling() or backend(matrix.value) != "triton":
        return False
    if matrix.col.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    from graphrelu.ops.triton import sliced

    return matrix.col.dtype == torch.int32 and matrix.col.numel() >= sliced.FROM_ENTRIES


def _slice(matrix: CSR, transposed: CSR) -> "tuple[Sliced, Sliced]":
    from graphrelu.ops.triton.sliced import slice_matrix

    degree = _degree_of_unweighted(matrix)
    first = slice_matrix(matrix, degree)
    return first, first if transposed is matrix else slice_matrix(transposed, degree)


def _degree_of_unweighted(matrix: CSR) -> Tensor | None:
    """The degrees, if all values of the normalised matrix follow from them."""
    count = matrix.rowptr.diff()
    scale = inverse_root(count.double())
    of_target = torch.repeat_interleave(scale, count, output_size=matrix.col.numel())
    of_source = scale[matrix.col]
    # A source without a degree sends nothing, whatever its own edges are.
    value = (of_source * of_target).to(matrix.value.dtype)
    follows = (of_source > 0) & (matrix.value == value)
    return count.to(matrix.value.dtype) if bool(follows.all()) else None


# Several layers of a model, and the epochs of full-batch training, call with the same graph:
# it is recognised by the identity and version of its tensors and prepared once. A few entries
# suffice for that, and each one goes when its graph goes.
_MEMORY_SIZE = 8
_memory: OrderedDict[tuple[Any, ...], tuple[list[Any], PreparedGraph]] = OrderedDict()
_lock = threading.RLock()


def prepared(
    edge_index: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    settings: DiffusionSettings,
    batch: Tensor | None,
    validate: bool,
) -> PreparedGraph:
    """:func:`prepare`, once per graph; `batch` is only there to be checked against it."""
    batch = batch if validate else None
    parts = [part for part in (*_tensors(edge_index), edge_weight, batch) if part is not None]
    arguments = (num_nodes, dtype, settings)
    if torch.compiler.is_compiling() or not all(map(_can_be_remembered, parts)):
        return prepare(edge_index, edge_weight, *arguments, batch, validate)

    key = (*map(_fingerprint, parts), *arguments, validate)
    with _lock:
        if key in _memory and all(
            ref() is part for ref, part in zip(_memory[key][0], parts, strict=True)
        ):
            _memory.move_to_end(key)
            return _memory[key][1]
    # What is remembered must serve training too, whatever mode the first call was in.
    with torch.inference_mode(False), torch.no_grad():
        graph = prepare(edge_index, edge_weight, *arguments, batch, validate)
    with _lock:
        _memory[key] = ([weakref.ref(part, lambda _: _forget(key)) for part in parts], graph)
        while len(_memory) > _MEMORY_SIZE:
            _memory.popitem(last=False)
    return graph


def _tensors(edge_index: Any) -> tuple[Any, ...]:
    """What a graph is recognised by: `torch_sparse`'s matrices keep their parts."""
    return edge_index.coo() if isinstance(edge_index, SparseTensor) else (edge_index,)


def _forget(key: tuple[Any, ...]) -> None:
    with _lock:
        _memory.pop(key, None)


def _can_be_remembered(part: Any) -> bool:
    if not isinstance(part, Tensor):
        return False
    return not (
        part.requires_grad
        or part.is_inference()
        or torch._C._functorch.is_functorch_wrapped_tensor(part)
    )


def _fingerprint(part: Tensor) -> tuple[int, ...]:
    storage = part
    if part.layout != torch.strided and is_torch_sparse_tensor(part):
        # values() of a COO matrix asks for a coalesced one
        storage = part._values() if part.layout == torch.sparse_coo else part.values()
    return id(part), storage._version, storage.data_ptr()
