"""The runs of a cell: their device, graph and inputs, and how many of them fit into memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.graph_batches import DeviceGraphs
from graphrelu.lab.engine.graph_training import Training, network_of, split_set
from graphrelu.lab.engine.keep import inspect, inspect_set
from graphrelu.lab.engine.train import build, train
from graphrelu.lab.errors import MachineError
from graphrelu.lab.models.propagation import PreparedInputs, row_normalized
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Batch, Result

# More runs at once gain nothing: two cores, or a GPU, are busy by then.
MOST_SEEDS = {"cpu": 10, "cuda": 100}
CPU_BUDGET = 2**31  # bytes for the activations of a batch
CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory"  # torch has no type for it


class Trained(NamedTuple):
    """A batch, or a part of one that did not fit into memory; and a look inside one model of it."""

    batch: Batch
    results: list[Result]
    look: bytes | None


def choose_device(name: str = "auto", has_gpu: bool | None = None) -> torch.device:
    """The device by name; `auto` is the GPU where there is one, by default on this machine."""
    if name not in ("auto", *MOST_SEEDS):
        raise ValueError(f"There is no device {name!r}; choose from auto, cpu and cuda.")
    if has_gpu is None:
        has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ValueError("There is no device 'cuda' here: no GPU is found.")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def features_of(config: Config, graph: Graph) -> Tensor:
    """The graph's features, normalised if the cell asks for it; sparse features stay sparse."""
    return row_normalized(graph.x) if config.normalize_features else graph.x


def prepare_inputs(config: Config, graph: Graph, device: torch.device) -> PreparedInputs:
    """Features and graph in the form that the models of a cell take, for any activation."""
    weight = graph.edge_weight
    return build(config, graph, 0).prepare(
        features_of(config, graph).to(device, getattr(torch, config.dtype)),
        graph.edge_index.to(device),
        None if weight is None else weight.to(device),
    )


def load_dataset(config: Config, root: str | Path | None) -> Graph | GraphSet:
    """The graph, or the set of graphs, of a configuration."""
    if not data.holds_graphs(config.dataset):
        return data.load(config.dataset, root)
    return data.load_graphs(config.dataset, root, split=config.split)  # type: ignore[arg-type]


def split_for(config: Config, graph: Graph | GraphSet, seed: int) -> Split:
    """The training, validation and test nodes, or graphs, of a run."""
    if isinstance(graph, GraphSet):
        return split_set(config, graph, seed)
    return make_split(graph, seed, config.split)


class PreparedCells:
    """The graph and the prepared inputs of the current cell, shared with the next cells."""

    def __init__(
        self,
        graphs: Mapping[str, Graph | GraphSet],
        root: str | Path | None,
        device: torch.device,
    ) -> None:
        self.graphs, self.root, self.device = dict(graphs), root, device
        self.key: tuple[Any, ...] | None = None
        self.inputs: Any = None

    def graph(self, config: Config) -> Graph | GraphSet:
        name = config.dataset
        if name not in self.graphs:
            self.graphs[name] = load_dataset(config, self.root)
        return self.graphs[name]

    def train(
        self, batch: Batch, seed: int | None, report: Callable[[tuple[int, ...], int], None]
    ) -> Iterator[Trained]:
        """Trains the runs of a batch at once or, if memory runs out, half by half; the
        look is inside the model of ``seed``."""
        config, seeds = batch
        try:
            trained = self._train(batch, seed, partial(report, seeds))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(seeds) == 1:
                few = f"There is too little memory for one run of {config.title}."
                raise MachineError(few) from error
        else:
            yield trained
            return
        gc.collect()  # only now, as the error kept everything alive
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        middle = len(seeds) // 2
        for part in (seeds[:middle], seeds[middle:]):
            yield from self.train(Batch(config, part), seed, report)

    def _train(self, batch: Batch, seed: int | None, progress: Callable[[int], None]) -> Trained:
        config, graph, inputs = batch.config, self.graph(batch.config), self.inputs_of(batch.config)
        if isinstance(graph, GraphSet):
            (own,) = batch.seeds
            run = Training(config, graph, inputs, own)
            run.train(progress)
            is_shown = own == seed and config.activation == "grelu"
            return Trained(batch, [run.result()], inspect_set(run) if is_shown else None)
        models, results = train(config, graph, inputs, batch.seeds, self.device, progress)
        look = None
        if seed in batch.seeds and graph.task == "classes":
            look = inspect(models, seed)
        return Trained(batch, results, look)

    def inputs_of(self, config: Config) -> Any:
        graph, network = self.graph(config), (config.backbone, config.backbone_options)
        key = (config.dataset, *network, config.normalize_features, config.dtype)
        if key == self.key:
            return self.inputs
        self.key = self.inputs = None  # free the old ones before the new ones come
        if isinstance(graph, GraphSet):
            self.inputs = DeviceGraphs(graph, self.device, network_of(config).walks)
        else:
            self.inputs = prepare_inputs(config, graph, self.device)
        self.key = key
        return self.inputs


def runs_at_once(
    config: Config, graph: Graph | GraphSet, device: torch.device, share: int = 1
) -> int:
    """The size of a cell's batches: as many as fit, by a generous estimate, where ``share`` batches
    are trained at once. Runs on a set of graphs are not stacked."""
    if isinstance(graph, GraphSet):
        return 1
    available = CPU_BUDGET // share
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0] // (2 * share)
    parameters = sum(p.numel() for p in build(config, graph, 0).parameters())
    size = 8 if config.dtype == "float64" else 4
    fitting = available // size // (_kept(config, graph) + 8 * parameters)
    return max(1, min(MOST_SEEDS[device.type], fitting))


def _kept(config: Config, graph: Graph) -> int:
    """How many numbers the layers of a run keep of a graph."""
    options = dict(config.backbone_options)
    layers, heads, stacks = (
        int(options.get(name) or usual)
        for name, usual in (("layers", 3), ("heads", 1), ("num_stacks", 1))
    )
    nodes, edges = graph.num_nodes, graph.num_edges + graph.num_nodes
    width = max(config.hidden, graph.num_classes) * stacks
    if not config.is_deep:
        width *= heads
    numbers = 12 * layers * nodes * width
    if config.backbone == "gat":  # the attention of each layer, and once the messages
        numbers += edges * (12 * layers * heads + 4 * width)
    if config.activation == "undecomposed":  # four coefficients for each node and channel
        numbers += 12 * layers * nodes * 4 * width
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
