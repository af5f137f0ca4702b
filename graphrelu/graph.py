"""The graph as GReLU needs it: read, checked, normalised, sorted and remembered."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from graphrelu.functional import Edges, exact_operator, normalized_adjacency, pagerank
from graphrelu.ops import has_values, run_loop, uses_loops, values_on_cpu
from graphrelu.ops.diffuse import CSR, diffuse_operator, index_dtype
from graphrelu.ops.diffuse import DiffusionSettings as DiffusionSettings
from graphrelu.ops.diffuse import PreparedGraph as PreparedGraph

# A larger dense inverse would not fit into common memory (3.2 GB in float64).
MAX_EXACT_NODES = 20_000

# How many graphs are remembered, and settings of each. All layers of a model, and all epochs of
# full-batch training, use the same graph: a few suffice.
MAX_GRAPHS, MAX_SETTINGS = 8, 8


def check_features(x: Any, edge_index: Any, edge_weight: Tensor | None, channels: int) -> None:
    """The type, shape and device of the arguments; no values."""
    of_types = Mapping, HeteroData
    if isinstance(x, (tuple, *of_types)) or isinstance(edge_index, of_types):
        raise TypeError(
            "x and edge_index must belong to one node type: HeteroGReLU takes several, also "
            "between layers made by to_hetero."
        )
    if not isinstance(x, Tensor):
        way = ": pass data.x and data.edge_index" if isinstance(x, Data) else ""
        raise TypeError(f"x must be a tensor, got {type(x).__name__}{way}.")
    if not x.is_floating_point():
        raise TypeError(f"x must be of a floating type, got {x.dtype}.")
    if x.dim() != 2:
        raise ValueError(f"x must be of shape [num_nodes, {channels}], got {list(x.shape)}.")
    if x.size(1) != channels:
        raise ValueError(f"x must have {channels} channels, got {x.size(1)}.")
    if isinstance(edge_weight, Tensor) and not edge_weight.is_floating_point():
        raise TypeError(
            f"edge_weight must be of a floating type, got {edge_weight.dtype}: pass a batch vector "
            "by name, batch=batch."
        )
    _check_device("edge_index", edge_index, x)
    _check_device("edge_weight", edge_weight, x)


def _check_device(name: str, tensor: Any, x: Tensor) -> None:
    if isinstance(tensor, Tensor) and tensor.device != x.device:
        raise ValueError(f"{name} must be on {x.device}, where x is, got {tensor.device}.")


def check_batch(
    x: Tensor, batch: Tensor | None, batch_size: int | None
) -> tuple[Tensor | None, int]:
    """Returns the batch vector and the number of graphs; none and 1 for a single graph."""
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch must be given for a batch_size of {batch_size}.")
        return None, 1
    if not isinstance(batch, Tensor) or batch.dtype not in (torch.int64, torch.int32):
        kind = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"batch must be a tensor of int64 graph ids, got {kind}.")
    if batch.shape != (x.size(0),):
        raise ValueError(
            f"batch must be of shape [{x.size(0)}], one graph id per node, got {list(batch.shape)}."
        )
    _check_device("batch", batch, x)
    if batch_size is None:
        batch_size = int(batch[-1]) + 1 if batch.numel() > 0 else 0
    if batch.numel() > 0 and values_on_cpu(batch):
        if bool((batch[1:] < batch[:-1]).any()):
            raise ValueError("batch must be sorted in ascending order.")
        first, last = int(batch[0]), int(batch[-1])
        if first < 0:
            raise ValueError(f"batch must not hold negative graph ids, got {first}.")
        if last >= batch_size:
            raise ValueError(
                f"batch must hold graph ids below batch_size={batch_size}, got {last}."
            )
    return batch.long(), batch_size


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
        sizes = [edge_index.size(0), edge_index.size(1)]
        if sizes != [num_nodes, num_nodes]:
            raise ValueError(
                f"edge_index as a sparse adjacency must be of shape [{num_nodes}, {num_nodes}] "
                f"to fit x, got {sizes}."
            )
        if isinstance(edge_index, Tensor) and edge_index.layout == torch.sparse_coo:
            coalesced = edge_index.coalesce()  # PyG would write to the user's matrix
            (target, source), edge_weight = coalesced.indices(), coalesced.values()
        else:
            (target, source), edge_weight = to_edge_index(edge_index)
    else:
        if isinstance(edge_index, EdgeIndex):
            edge_index = edge_index.as_tensor()
        check_edge_index(edge_index)
        source, target = edge_index[0], edge_index[1]
    if edge_weight is None:
        edge_weight = torch.ones(source.size(0), dtype=dtype, device=source.device)
    if not isinstance(edge_weight, Tensor):
        raise TypeError(f"edge_weight must be a tensor, got {type(edge_weight).__name__}.")
    if edge_weight.shape != source.shape:
        shape = f"[{source.size(0)}], one value per edge, got {list(edge_weight.shape)}"
        raise ValueError(f"edge_weight must be of shape {shape}.")
    return Edges(source.long(), target.long(), edge_weight.to(dtype), num_nodes)


def check_edge_index(edge_index: Any, name: str = "edge_index") -> None:
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"{name} must be a [2, num_edges] tensor, an EdgeIndex or a sparse adjacency, "
            f"got {type(edge_index).__name__}."
        )
    if edge_index.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must hold int64 indices, got {edge_index.dtype}.")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"{name} must be of shape [2, num_edges], got {list(edge_index.shape)}.")


def check_values(edges: Edges, batch: Tensor | None) -> None:
    """The checks that read values, on a CPU: a GPU would be waited for."""
    tensors = edges[:3] if batch is None else (*edges[:3], batch)
    if edges.source.numel() == 0 or not values_on_cpu(*tensors):
        return
    arrays = edges.source, edges.target, batch, edges.weight
    # In a sixth of the time of the calls below, on a batch of molecules; those say what is wrong.
    if uses_loops(edges.weight) and run_loop("check", arrays, len(edges.source), edges.num_nodes):
        return
    lows, highs = zip(edges.source.aminmax(), edges.target.aminmax(), strict=True)
    low, high = int(min(lows)), int(max(highs))
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


def check_prepared(
    graph: PreparedGraph, settings: DiffusionSettings, x: Tensor, dtype: torch.dtype
) -> None:
    """A prepared graph fits the module and the features that it is used with."""
    for name, found, expected in (
        ("settings", graph.settings, settings),
        ("num_nodes", graph.mass.size(-1), x.size(-2)),
        ("dtype", graph.mass.dtype, dtype),
        ("device", graph.mass.device, x.device),
    ):
        if found != expected:
            raise ValueError(f"edge_index must be prepared for {name}={expected}, got {found}.")


def to_csr(edges: Edges) -> tuple[CSR, CSR]:
    """The normalised matrix, whose rows are targets and columns sources, and its transpose. Both
    are sorted by row, then by column; duplicates stay and add up. An undirected graph is kept
    once."""
    dtype = index_dtype(edges.source.size(0), edges.num_nodes)
    if dtype == torch.int32 and uses_loops(edges.weight) and has_values(*edges[:3]):
        return _to_csr_in_loops(*edges)
    source, target, weight, num_nodes = normalized_adjacency(edges)
    # Both directions in one sort: on a GPU, launches are what a fresh graph costs.
    row, col = torch.stack([target, source]), torch.stack([source, target])
    keys, order = torch.add(col, row, alpha=num_nodes).sort(dim=1, stable=True)
    starts = num_nodes * torch.arange(num_nodes + 1, device=keys.device).repeat(2, 1)
    rowptr = torch.searchsorted(keys, starts, out_int32=dtype == torch.int32)
    cols = keys.remainder(max(num_nodes, 1)).to(dtype)
    matrix, transposed = map(CSR, rowptr, cols, weight[order])
    if values_on_cpu(*matrix) and all(map(torch.equal, matrix, transposed)):
        transposed = matrix
    return matrix, transposed


def _to_csr_in_loops(
    source: Tensor, target: Tensor, weight: Tensor, num_nodes: int
) -> tuple[CSR, CSR]:
    rowptr = source.new_empty(num_nodes + 1, dtype=torch.int32)
    matrix = CSR(rowptr, torch.empty_like(source, dtype=torch.int32), torch.empty_like(weight))
    transposed = CSR(*map(torch.empty_like, matrix))
    arrays = source, target, weight, *matrix, *transposed
    found = run_loop("prepare", arrays, len(source), num_nodes)
    if found < 0:
        raise ValueError(
            f"edge_index must hold indices between 0 and {num_nodes - 1}, the rows of x."
        )
    return matrix, transposed if found == 0 else matrix


def _normalized(edges: Edges) -> tuple[CSR, CSR] | Edges:
    """What all settings of a graph share."""
    return normalized_adjacency(edges) if edges.weight.requires_grad else to_csr(edges)


def _operator(graph: tuple[CSR, CSR] | Edges, settings: DiffusionSettings) -> PreparedGraph:
    """Of a sorted matrix and its transpose, or of edges whose weights are learned."""
    alpha, steps, diffusion = settings
    if diffusion == "exact":
        edges = graph if isinstance(graph, Edges) else graph[0].as_edges()
        if edges.num_nodes > MAX_EXACT_NODES:
            raise ValueError(
                f"diffusion='exact' inverts a dense matrix and takes at most {MAX_EXACT_NODES:,} "
                f"nodes, got {edges.num_nodes:,}; use 'power'."
            )
        operator = exact_operator(edges, alpha)
        return PreparedGraph(settings, operator.sum(dim=0), operator=operator)
    if isinstance(graph, Edges):
        ones = graph.weight.new_ones(graph.num_nodes, 1)
        mass = pagerank(ones, graph.transposed(), alpha, steps)
        return PreparedGraph(settings, mass.view(-1), edges=graph)
    _, transposed = graph
    ones = transposed.value.new_ones(transposed.rowptr.numel() - 1, 1)
    mass = diffuse_operator(ones, *transposed, alpha, steps)
    return PreparedGraph(settings, mass.view(-1), graph)


def without_edges(num_nodes: int, dtype: torch.dtype, device: torch.device) -> PreparedGraph:
    """S is the identity: nodes know nothing of each other."""
    # Not by the `new_...` of features: below a vmap, that is a mass for each replica.
    mass = torch.ones(num_nodes, dtype=dtype, device=device)
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int32, device=device)
    col = torch.empty(0, dtype=torch.int32, device=device)
    matrix = CSR(rowptr, col, torch.empty(0, dtype=dtype, device=device))
    return PreparedGraph(DiffusionSettings(alpha=1.0, steps=1), mass, (matrix, matrix))


# The memory.


class _Known(NamedTuple):
    """A graph that is remembered, and the state of its tensors when it was read.

    Changing a tensor through torch changes its version. Writes through `.data` or through memory
    shared with NumPy do not, so on a CPU the content is compared with a copy, which takes a
    hundredth of a step. On a GPU that would mean waiting for the device.
    """

    alive: list[weakref.ref[Tensor]]  # which forget the graph when a tensor goes
    versions: list[int]
    copies: list[Tensor]
    matrices: tuple[CSR, CSR] | Edges
    operators: dict[DiffusionSettings, PreparedGraph]

    def is_still(self, versions: list[int], contents: list[Tensor]) -> bool:
        return versions == self.versions and all(map(torch.equal, self.copies, contents))


# The parts of a sparse tensor; `indices()` asks for a coalesced one.
_PARTS: dict[torch.layout, tuple[Callable[[Tensor], Tensor], ...]] = {
    torch.sparse_coo: (Tensor._indices, Tensor._values),
    torch.sparse_csr: (Tensor.crow_indices, Tensor.col_indices, Tensor.values),
    torch.sparse_csc: (Tensor.ccol_indices, Tensor.row_indices, Tensor.values),
}


def _watched(tensors: Sequence[Any]) -> tuple[list[int], list[Tensor]] | None:
    """The versions and addresses of the tensors that hold the graph, and their contents; none if a
    change could go unnoticed."""
    versions: list[int] = []
    contents: list[Tensor] = []
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.requires_grad or tensor.is_inference():
            return None
        versions.append(tensor._version)
        if isinstance(tensor, EdgeIndex):
            tensor = tensor.as_tensor()
        for part in _PARTS.get(tensor.layout, (Tensor.detach,)):
            contents.append(part(tensor))
    if not contents or not has_values(*contents):
        return None
    for content in contents:
        versions += content._version, content.data_ptr()
    return versions, contents


_cache: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
_lock = threading.RLock()


def clear_cache() -> None:
    r"""Forgets all graphs that were prepared.

    A few are remembered, sorted and normalised, for modules and compiled models that see them
    again; each as long as its :obj:`edge_index` lives. They take about three times the memory of
    the :obj:`edge_index`, and with :obj:`diffusion="exact"` a dense matrix each.
    """
    with _lock:
        _cache.clear()


def _forget(key: tuple[Any, ...]) -> None:
    with _lock:
        _cache.pop(key, None)


def remembered(
    tensors: Sequence[Any],
    key: tuple[Any, ...],
    settings: DiffusionSettings,
    read: Callable[[], Edges],
) -> PreparedGraph:
    """The operator of the graph that `read` makes of `tensors`, which are recognised when they come
    again, and of `key`, the rest that matters. Several settings share a matrix."""
    watched = None if torch.compiler.is_compiling() else _watched(tensors)
    if watched is None:
        return _operator(_normalized(read()), settings)
    versions, contents = watched
    key = (*map(id, tensors), *key)
    with _lock:
        known = _cache.get(key)
        if known is not None and not known.is_still(versions, contents):
            known = None
        if known is not None and settings in known.operators:
            _cache.move_to_end(key)
            return known.operators[settings]
    # A remembered graph must serve training, too, whatever mode the first call was in.
    with torch.inference_mode(False), torch.no_grad():
        if known is None:
            alive = [weakref.ref(tensor, lambda _: _forget(key)) for tensor in tensors]
            copies = list(map(torch.clone, contents)) if contents[0].is_cpu else []
            known = _Known(alive, versions, copies, _normalized(read()), {})
        graph = _operator(known.matrices, settings)
    with _lock:
        if len(known.operators) >= MAX_SETTINGS:
            known.operators.clear()
        known.operators[settings] = graph
        _cache[key] = known
        _cache.move_to_end(key)
        while len(_cache) > MAX_GRAPHS:
            _cache.popitem(last=False)
    return graph


def prepare(
    edge_index: Any,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype,
    settings: DiffusionSettings,
    batch: Tensor | None = None,
) -> PreparedGraph:
    """The operator of a graph, built once and remembered; `batch` is only checked against it."""
    if torch.compiler.is_compiling():
        is_plain = type(edge_index) is Tensor and edge_index.layout == torch.strided
        is_learned = edge_weight is not None and edge_weight.requires_grad
        if is_plain and not is_learned and settings.diffusion != "exact":
            # Looked up when the compiled model runs.
            check_edge_index(edge_index)
            like = torch.empty(0, dtype=dtype, device=edge_index.device)
            rest = settings.alpha, settings.steps
            *rows, mass = _prepare_at_run_time(edge_index, edge_weight, like, num_nodes, *rest)
            return PreparedGraph(settings, mass, (CSR(*rows[:3]), CSR(*rows[3:])))

    def read() -> Edges:
        edges = as_edges(edge_index, edge_weight, num_nodes, dtype)
        check_values(edges, batch)
        return edges

    # `torch_sparse`'s matrices keep their parts.
    tensors = list(edge_index.coo() if isinstance(edge_index, SparseTensor) else (edge_index,))
    for tensor in (edge_weight, batch):
        if tensor is not None:
            tensors.append(tensor)
    return remembered(tensors, (num_nodes, dtype), settings, read)


# Written out, as torch 2.6 does not read `list[Tensor]` in an annotation.
_SCHEMA = (
    "(Tensor edge_index, Tensor? edge_weight, Tensor like, SymInt num_nodes, float alpha, "
    "SymInt steps) -> Tensor[]"
)
# A CUDA graph that holds the lookup would replay the first graph's matrices for every other graph.
# Older versions of torch have no tag to forbid it, and raise an error of their own.
_LOOKUP: dict[str, Any] = {}
if hasattr(torch.Tag, "cudagraph_unsafe"):
    _LOOKUP = {"tags": [torch.Tag.cudagraph_unsafe]}


@torch.library.custom_op("graphrelu::prepared", mutates_args=(), schema=_SCHEMA, **_LOOKUP)
def _prepare_at_run_time(
    edge_index: Tensor, edge_weight: Tensor | None, like: Tensor, num_nodes: int, *settings: Any
) -> list[Tensor]:
    """The matrix, its transpose and the mass; copies, as a compiled model may write to them."""
    graph = prepare(edge_index, edge_weight, num_nodes, like.dtype, DiffusionSettings(*settings))
    assert graph.matrices is not None
    return [tensor.clone() for tensor in (*graph.matrices[0], *graph.matrices[1], graph.mass)]


@_prepare_at_run_time.register_fake
def _(edge_index: Tensor, _weight: Any, like: Tensor, num_nodes: int, *_: Any) -> list[Tensor]:
    entries = edge_index.size(1)
    dtype = index_dtype(entries, num_nodes)
    rowptr = edge_index.new_empty(num_nodes + 1, dtype=dtype)
    row = rowptr, edge_index.new_empty(entries, dtype=dtype), like.new_empty(entries)
    return [torch.empty_like(t) for t in (*row, *row)] + [like.new_empty(num_nodes)]
