"""How many runs fit into memory at once; a batch that does not fit is halved."""

from __future__ import annotations

import torch

from graphrelu.lab.data.folds import BATCH_SIZE, NUM_FOLDS
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine.fold_train import build_graph_model
from graphrelu.lab.engine.train import build
from graphrelu.lab.record.config import GIN_SPLITS, Config
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.results import Batch

# More runs at once than this bring nothing: two cores, or a GPU, are busy by then.
MOST_SEEDS = {"cpu": 10, "cuda": 100}
CPU_BUDGET = 2**31  # bytes for the activations of a batch
CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory"  # torch has no type for it


def fitting_seeds(config: Config, graph: Graph | GraphSet, device: torch.device) -> int:
    """How many runs of a cell fit into memory at once, by a generous estimate."""
    if isinstance(graph, GraphSet):
        return _fitting_folds(config, graph, device)
    numbers = _of_deep_layers(config, graph) if config.is_deep else _of_two_layers(config, graph)
    numbers += 8 * sum(p.numel() for p in build(config, graph, 0).parameters())
    return max(1, min(MOST_SEEDS[device.type], _budget(config, device) // numbers))


def _of_two_layers(config: Config, graph: Graph) -> int:
    """How many numbers the paper's network keeps of a graph."""
    options = dict(config.backbone_options)
    heads = int(options.get("heads") or 1) if config.backbone == "gat" else 1
    width = max(config.hidden, graph.num_classes) * heads * _stacks(config)
    numbers = 30 * graph.num_nodes * width
    if config.backbone == "gat":  # attention lives on the edges
        numbers += 12 * (graph.num_edges + graph.num_nodes) * width
    return numbers + _of_coefficients(config, graph, width)


def _of_deep_layers(config: Config, graph: Graph) -> int:
    """How many numbers a deep network keeps of a graph."""
    options = dict(config.backbone_options)
    layers = int(options["layers"] or 1)
    width = max(config.hidden, graph.num_classes) * _stacks(config)
    numbers = 12 * layers * graph.num_nodes * width
    if config.backbone == "gat":  # the attention of each layer, and once the messages
        edges = graph.num_edges + graph.num_nodes
        numbers += 12 * layers * edges * int(options["heads"] or 1) + 2 * edges * width
    return numbers + layers * _of_coefficients(config, graph, width)


def _stacks(config: Config) -> int:
    options = dict(config.backbone_options)
    return int(options.get("num_stacks") or 1) if config.backbone == "arma" else 1


def _of_coefficients(config: Config, graph: Graph, width: int) -> int:
    """2K for each node and channel where GReLU's hyperfunction is not decomposed."""
    if config.activation != "undecomposed":
        return 0
    segments = int(dict(config.activation_options).get("K") or 2)
    return 12 * graph.num_nodes * 2 * segments * width


def runs_at_once(
    config: Config, graph: Graph | GraphSet, device: torch.device, at_most: int | None
) -> int:
    """The size of a cell's batches: as many as fit, and as the user wants at most."""
    size = fitting_seeds(config, graph, device)
    size = min(size, at_most or size)
    unit = smallest(config)
    return max(unit, size - size % unit)


def _fitting_folds(config: Config, graphs: GraphSet, device: torch.device) -> int:
    """Whole fold assignments: the GIN paper's protocol chooses one epoch for each."""
    model = build_graph_model(config, graphs, 0)
    # The nodes of a mini-batch of large graphs.
    share = min(1.0, 2 * BATCH_SIZE / graphs.num_graphs)
    numbers = int(15 * share * graphs.num_nodes) * config.hidden * len(model.convs)
    numbers += 8 * sum(p.numel() for p in model.parameters())
    fitting = min(MOST_SEEDS[device.type], _budget(config, device) // numbers)
    return max(1, fitting // NUM_FOLDS) * NUM_FOLDS


def _budget(config: Config, device: torch.device) -> int:
    """How many numbers the activations of a batch may be."""
    available = CPU_BUDGET
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0] // 2
    return available // (8 if config.dtype == "float64" else 4)


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
    """The two halves of a batch; a half without missing runs is left out."""
    config, seeds, missing = batch
    unit = smallest(config)
    if len(seeds) <= unit:
        runs = "one run" if unit == 1 else f"{unit} runs, which belong together,"
        raise MachineError(f"There is too little memory for {runs} of {config.title}.")
    middle = max(1, len(seeds) // (2 * unit)) * unit
    parts = [
        Batch(config, part, tuple(seed for seed in part if seed in missing))
        for part in (seeds[:middle], seeds[middle:])
    ]
    return [part for part in parts if part.missing]
