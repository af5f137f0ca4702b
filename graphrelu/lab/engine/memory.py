"""How many runs fit into memory at once; a batch that does not fit is halved."""

from __future__ import annotations

import torch

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.folds import BATCH_SIZE, NUM_FOLDS
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.fold_train import build_graph_model
from graphrelu.lab.engine.train import build
from graphrelu.lab.models.backbones import Network
from graphrelu.lab.record.config import GIN_SPLITS, Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.results import Batch

# More runs at once than this bring nothing: two cores, or a GPU, are busy by then.
MOST_SEEDS = {"cpu": 10, "cuda": 100}
CPU_BUDGET = 2**31  # bytes for the activations of a batch
CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory"  # torch has no type for it


def runs_at_once(
    config: Config,
    graph: Graph | GraphSet,
    device: torch.device,
    at_most: int | None,
    share: int = 1,
) -> int:
    """The size of a cell's batches: as many as fit where ``share`` batches are trained at once, and
    as the user wants at most."""
    size = fitting_seeds(config, graph, device, share)
    size = min(size, at_most or size)
    unit = smallest(config)
    return max(unit, size - size % unit)


def fitting_seeds(
    config: Config, graph: Graph | GraphSet, device: torch.device, share: int = 1
) -> int:
    """How many runs of a cell fit into memory at once, by a generous estimate."""
    available = CPU_BUDGET // share
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0] // (2 * share)
    if isinstance(graph, GraphSet):
        unit = NUM_FOLDS  # whole fold assignments
        model: Network = build_graph_model(config, graph, 0)
        part = min(1.0, 2 * BATCH_SIZE / graph.num_graphs)  # a mini-batch of large graphs
        numbers = int(15 * part * graph.num_nodes) * config.hidden * len(model.convs)
    else:
        unit, model = 1, build(config, graph, 0)
        numbers = _kept(config, graph)
    numbers += 8 * sum(p.numel() for p in model.parameters())
    fitting = available // (8 if config.dtype == "float64" else 4) // numbers
    return max(1, min(MOST_SEEDS[device.type], fitting) // unit) * unit


def _kept(config: Config, graph: Graph) -> int:
    """How many numbers the layers of a run keep of a graph."""
    options = dict(config.backbone_options)
    heads, stacks = (int(options.get(name) or 1) for name in ("heads", "num_stacks"))
    nodes, edges = graph.num_nodes, graph.num_edges + graph.num_nodes
    width = max(config.hidden, graph.num_classes) * stacks
    if config.is_deep:
        layers = int(options["layers"] or 1)
        numbers = 12 * layers * nodes * width
        # The attention of each layer, and once the messages.
        attention = 12 * layers * edges * heads + 2 * edges * width
    else:
        layers, width = 1, width * heads
        numbers = 30 * nodes * width
        attention = 12 * edges * width
    if config.backbone == "gat":
        numbers += attention
    if config.activation == "undecomposed":  # 2K coefficients for each node and channel
        segments = int(dict(config.activation_options).get("K") or 2)
        numbers += 12 * layers * nodes * 2 * segments * width
    return numbers


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether there was too little memory, on a GPU or not.

    While a CUDA graph is captured, another error may follow from it and hide it.
    """
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or CPU_MESSAGE in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def smallest(config: Config) -> int:
    """How many runs must be trained at once: the GIN paper's protocol chooses one epoch for all
    folds of an assignment."""
    return NUM_FOLDS if config.split in GIN_SPLITS else 1


def halves(batch: Batch) -> list[Batch]:
    """The two halves of a batch."""
    config, seeds = batch
    unit = smallest(config)
    if len(seeds) <= unit:
        runs = "one run" if unit == 1 else f"{unit} runs, which belong together,"
        raise MachineError(f"There is too little memory for {runs} of {config.title}.")
    middle = max(1, len(seeds) // (2 * unit)) * unit
    return [Batch(config, seeds[:middle]), Batch(config, seeds[middle:])]
