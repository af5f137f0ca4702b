"""The graph as GReLU needs it: read, normalised, prepared and remembered.

A prepared graph is the operator S of :mod:`graphrelu.functional`, ready to be applied.
"""

import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from graphrelu.functional import Edges, exact_operator, normalized_adjacency, pagerank
from graphrelu.ops import dispatch
from graphrelu.ops.cpu import (
    CSR,
    can_be_read,
    index_dtype,
    is_read_for_free,
    order_by,
    sorted_entries,
)

# A dense inverse beyond this size no longer fits common memory (3.2 GB in float64).
MAX_EXACT_NODES = 20_000

# torch announces once per process that CSR support is in beta; it is the only layout with a
# fused teleport update, so the announcement is spent here instead of in the user's output.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0])


class DiffusionSettings(NamedTuple):
    """What, besides the graph, determines the operator S."""

    alpha: float
    steps: int
    diffusion: str
    add_self_loops: bool = False


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
        alpha, steps, diffusion, _ = self.settings
        if self.operator is not None:
            return self.operator @ z
        if self.matrices is not None:
            return dispatch.diffuse(z, *self.matrices, alpha, steps, diffusion)
        return self.diffuse_by_reference(z)

    def diffuse_by_reference(self, z: Tensor) -> Tensor:
        """The same by the equations of :mod:`graphrelu.functional`."""
        alpha, steps, diffusion, _ = self.settings
        if self.operator is not None:
            return self.operator @ z
        edges = self.edges
        if self.matrices is not None:
            rowptr, col, value = self.matrices[0]
            targets = torch.arange(z.size(0), device=z.device)
            target = targets.repeat_interleave(rowptr.diff(), output_size=col.numel())
            edges = Edges(col.long(), target, value, z.size(0))
        assert edges is not None
        return pagerank(z, edges, alpha, steps, diffusion)


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
    """The checks that look at the numbers; they cost a pass over the edges."""
    if edges.source.numel() == 0:
        return
    ends = edges.source, edges.target
    low, high = min(int(end.min()) for end in ends), max(int(end.max()) for end in ends)
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


def check_prepared(
    graph: PreparedGraph, settings: DiffusionSettings, x: Tensor, dtype: torch.dtype
) -> None:
    """A prepared graph fits the module and the features that it is used with."""
    if graph.settings != settings:
        raise ValueError(
            f"edge_index must be prepared with the module's {settings}, got {graph.settings}."
        )
    found = graph.mass.size(-1), graph.mass.dtype, graph.mass.device
    expected = x.size(-2), dtype, x.device
    if found != expected:
        raise ValueError(
            f"edge_index must be prepared for {expected[0]} nodes, {expected[1]} and {expected[2]} "
            f"to fit x, got {found[0]} nodes, {found[1]} and {found[2]}."
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


def to_csr(edges: Edges) -> tuple[CSR, CSR]:
    """The matrix, whose rows are targets and columns sources, and its transpose. Both are sorted by
    row, then by column; duplicates stay and add up."""
    *parts, num_nodes = edges
    dtype = index_dtype(edges.source.size(0), num_nodes)
    starts = torch.arange(num_nodes + 1, device=edges.source.device)

    def compressed(row: Tensor, col: Tensor, value: Tensor) -> CSR:
        rowptr = torch.searchsorted(row, starts, out_int32=dtype == torch.int32)
        return CSR(rowptr, col.to(dtype), value)

    # Not `part[order]`, which takes twice the time.
    order = sorted_entries(edges.target, edges.source, num_nodes, num_nodes)
    source, target, weight = parts = [part.index_select(0, order) for part in parts]
    matrix = compressed(target, source, weight)
    order = order_by(source, num_nodes)  # the targets of a source are in order already
    return matrix, compressed(*(part.index_select(0, order) for part in parts))


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
    if validate and can_be_read(edges.source, edges.weight):
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

    matrix, transposed = to_csr(edges)
    if is_read_for_free(*matrix) and all(map(torch.equal, matrix, transposed)):
        transposed = matrix  # an undirected graph is kept once
    mass = dispatch.diffuse(ones, transposed, matrix, alpha, steps, diffusion).view(-1)
    return PreparedGraph(settings, mass, (matrix, transposed))


class Snapshot:
    """Tensors as they were when they were read, without keeping them alive.

    What changes a tensor in torch changes its version. Writes through `.data` or through memory
    that NumPy shares do not, so that on a CPU the content is compared with a copy, which takes a
    hundredth of a step. On a GPU this would wait for the device.
    """

    def __init__(self, parts: Sequence[Tensor], forget: Callable[[Any], Any] | None = None) -> None:
        self.refs = [weakref.ref(part, forget) for part in parts]
        self.versions = [_versions(part) for part in parts]
        held = (held for part in parts for held in _held(part))
        self.copies = [t.clone() if t.device.type == "cpu" else None for t in held]

    def matches(self, parts: Sequence[Tensor]) -> bool:
        return (
            len(parts) == len(self.refs)
            and all(ref() is part for ref, part in zip(self.refs, parts, strict=True))
            and self.versions == [_versions(part) for part in parts]
            and all(
                copy is None or torch.equal(copy, tensor)
                for copy, tensor in zip(
                    self.copies, (t for part in parts for t in _held(part)), strict=True
                )
            )
        )


def can_be_watched(part: Any) -> bool:
    """Whether a :class:`Snapshot` can tell that the tensor changed."""
    if not isinstance(part, Tensor) or part.requires_grad or part.is_inference():
        return False
    held = _held(part)
    return len(held) > 0 and can_be_read(*held)


def _held(part: Tensor) -> tuple[Tensor, ...]:
    """The plain tensors that hold the content."""
    if isinstance(part, EdgeIndex):
        return (part.as_tensor(),)
    if part.layout == torch.strided:
        return (part,)
    if part.layout == torch.sparse_coo:  # indices() asks for a coalesced one
        return part._indices(), part._values()
    if part.layout == torch.sparse_csr:
        return part.crow_indices(), part.col_indices(), part.values()
    if part.layout == torch.sparse_csc:
        return part.ccol_indices(), part.row_indices(), part.values()
    return ()


def _versions(part: Tensor) -> list[int]:
    numbers = (number for t in _held(part) for number in (t._version, t.data_ptr()))
    return [part._version, *numbers]


# Several layers of a model, and the epochs of full-batch training, call with the same graph:
# it is prepared once. A few entries suffice for that, and each one goes when its graph goes.
_MEMORY_SIZE = 8
_memory: OrderedDict[tuple[Any, ...], tuple[Snapshot, PreparedGraph]] = OrderedDict()
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
    if torch.compiler.is_compiling():
        return _prepared_at_run_time(edge_index, edge_weight, *arguments)
    if not parts or not all(map(can_be_watched, parts)):
        return prepare(edge_index, edge_weight, *arguments, batch, validate)

    key = (*map(id, parts), *arguments, validate)
    with _lock:
        if key in _memory and _memory[key][0].matches(parts):
            _memory.move_to_end(key)
            return _memory[key][1]
    # What is remembered must serve training too, whatever mode the first call was in.
    with torch.inference_mode(False), torch.no_grad():
        graph = prepare(edge_index, edge_weight, *arguments, batch, validate)
        snapshot = Snapshot(parts, lambda _: _forget(key))
    with _lock:
        _memory[key] = (snapshot, graph)
        while len(_memory) > _MEMORY_SIZE:
            _memory.popitem(last=False)
    return graph


def _prepared_at_run_time(
    edge_index: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    settings: DiffusionSettings,
) -> PreparedGraph:
    """For a compiled model: the graph is looked up when the model runs, as without a compiler."""
    is_plain = type(edge_index) is Tensor and edge_index.layout == torch.strided
    is_learned = edge_weight is not None and edge_weight.requires_grad
    if not is_plain or is_learned or settings.diffusion == "exact":
        return prepare(edge_index, edge_weight, num_nodes, dtype, settings, None, False)
    _check_edge_index(edge_index)
    like = torch.empty(0, dtype=dtype, device=edge_index.device)
    *rows, mass = _remembered_matrices(edge_index, edge_weight, like, num_nodes, *settings)
    return PreparedGraph(settings, mass, (CSR(*rows[:3]), CSR(*rows[3:])))


# A CUDA graph that holds the lookup would replay the first graph's matrices for every other graph.
# Older versions of torch have no tag to forbid it, and raise an error of their own.
_LOOKUP: dict[str, Any] = {}
if hasattr(torch.Tag, "cudagraph_unsafe"):
    _LOOKUP = {"tags": [torch.Tag.cudagraph_unsafe]}


# Written out, as torch 2.6 does not read `list[Tensor]` in an annotation.
_SCHEMA = (
    "(Tensor edge_index, Tensor? edge_weight, Tensor like, SymInt num_nodes, float alpha, "
    "SymInt steps, str diffusion, bool add_self_loops) -> Tensor[]"
)


@torch.library.custom_op("graphrelu::prepared", mutates_args=(), schema=_SCHEMA, **_LOOKUP)
def _remembered_matrices(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    like: Tensor,
    num_nodes: int,
    alpha: float,
    steps: int,
    diffusion: str,
    add_self_loops: bool,
) -> list[Tensor]:
    """The matrix, its transpose and the mass; copies, as a compiled model may write to them."""
    settings = DiffusionSettings(alpha, steps, diffusion, add_self_loops)
    graph = prepared(edge_index, edge_weight, num_nodes, like.dtype, settings, None, False)
    assert graph.matrices is not None
    return [tensor.clone() for tensor in (*graph.matrices[0], *graph.matrices[1], graph.mass)]


@_remembered_matrices.register_fake
def _(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    like: Tensor,
    num_nodes: int,
    alpha: float,
    steps: int,
    diffusion: str,
    add_self_loops: bool,
) -> list[Tensor]:
    entries = edge_index.size(1) + (num_nodes if add_self_loops else 0)
    dtype = index_dtype(entries, num_nodes)
    rowptr = edge_index.new_empty(num_nodes + 1, dtype=dtype)
    row = rowptr, edge_index.new_empty(entries, dtype=dtype), like.new_empty(entries)
    return [torch.empty_like(t) for t in (*row, *row)] + [like.new_empty(num_nodes)]


def _tensors(edge_index: Any) -> tuple[Any, ...]:
    """What a graph is recognised by: `torch_sparse`'s matrices keep their parts."""
    return edge_index.coo() if isinstance(edge_index, SparseTensor) else (edge_index,)


def _forget(key: tuple[Any, ...]) -> None:
    with _lock:
        _memory.pop(key, None)
