"""From configurations to results: what is not on record yet is trained, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.lab.config import FOLD_SPLITS, Config
from graphrelu.lab.data import load, load_graphs
from graphrelu.lab.fold_train import build_graph_model, collect, train_folds
from graphrelu.lab.folds import BATCH_SIZE, NUM_FOLDS
from graphrelu.lab.graph import Graph
from graphrelu.lab.graph_set import GraphSet
from graphrelu.lab.keep import inspect, save_models
from graphrelu.lab.results import Batch, Record, Result
from graphrelu.lab.stacked import StackedRuns
from graphrelu.lab.train import SeedBatch, build, train
from graphrelu.propagation import PreparedInputs
from graphrelu.sparse import row_normalized

# More runs at once than this bring nothing: two cores, or a GPU, are busy by then.
MOST_SEEDS = {"cpu": 10, "cuda": 100}
CPU_BUDGET = 2**31  # bytes for the activations of a batch


class Progress(NamedTuple):
    """How far the runs of `config` are, and how many runs of all are finished."""

    config: Config
    seeds: tuple[int, ...]
    epoch: int
    runs_done: int
    runs_total: int
    epochs: int


def choose_device(name: str = "auto") -> torch.device:
    """The device by name; `auto` is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in MOST_SEEDS:
        raise ValueError(f"There is no device {name!r}; known are auto, cpu and cuda.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"There is no device {name!r} here: torch finds no such GPU.")
    return device


def fitting_seeds(config: Config, graph: Graph | GraphSet, device: torch.device) -> int:
    """How many runs of a cell fit into memory at once, by a generous estimate."""
    if isinstance(graph, GraphSet):
        return _fitting_folds(config, graph, device)
    options = dict(config.backbone_options)
    heads = int(options.get("heads") or 1) if config.backbone == "gat" else 1
    stacks = int(options.get("num_stacks") or 1) if config.backbone == "arma" else 1
    width = max(config.hidden, graph.num_classes) * heads * stacks
    numbers = 30 * graph.num_nodes * width
    if config.backbone == "gat":  # attention lives on the edges
        numbers += 12 * (graph.num_edges + graph.num_nodes) * width
    if config.activation == "undecomposed":  # 2K coefficients for each node and channel
        segments = int(dict(config.activation_options).get("K") or 2)
        numbers += 12 * graph.num_nodes * 2 * segments * width
    numbers += 8 * sum(p.numel() for p in build(config, graph, 0).parameters())
    return max(1, min(MOST_SEEDS[device.type], _budget(config, device) // numbers))


def runs_at_once(
    config: Config, graph: Graph | GraphSet, device: torch.device, at_most: int | None
) -> int:
    """The size of a cell's batches: as many as fit, and as the user wants at most."""
    size = fitting_seeds(config, graph, device)
    size = min(size, at_most or size)
    if config.split == "gin_folds":  # which chooses one epoch for all folds of an assignment
        size = max(NUM_FOLDS, size - size % NUM_FOLDS)
    return size


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


def scaled_features(config: Config, graph: Graph) -> Tensor:
    """The graph's features as a cell has them, dense or sparse as they are."""
    x = row_normalized(graph.x) if config.normalize_features else graph.x
    return x * config.feature_scale


def prepare_inputs(config: Config, graph: Graph, device: torch.device) -> PreparedInputs:
    """Features and graph of a cell in the form that its models take, whatever their activation."""
    weight = graph.edge_weight
    return build(config, graph, 0).prepare(
        scaled_features(config, graph).to(device, getattr(torch, config.dtype)),
        graph.edge_index.to(device),
        None if weight is None else weight.to(device),
    )


class PreparedCells:
    """The graph and the prepared inputs of the cell at hand; neighbours in a table share them."""

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
        if config.dataset not in self.graphs:
            read = load_graphs if config.split in FOLD_SPLITS else load
            self.graphs[config.dataset] = read(config.dataset, self.root)
        return self.graphs[config.dataset]

    def train(
        self, config: Config, seeds: Sequence[int], progress: Callable[[int], None]
    ) -> tuple[StackedRuns, list[Result]]:
        """Trains the runs of a cell at once."""
        graph, inputs = self.graph(config), self.inputs_of(config)
        if isinstance(graph, GraphSet):
            return train_folds(config, graph, inputs, seeds, self.device, progress)
        return train(config, graph, inputs, seeds, self.device, progress)

    def inputs_of(self, config: Config) -> Any:
        graph = self.graph(config)
        scale = config.feature_scale
        features = (config.dataset, config.normalize_features, scale, config.dtype)
        key: tuple[Any, ...] = (*features, config.backbone, config.backbone_options)
        if isinstance(graph, GraphSet):  # GReLU's diffusion is prepared, too
            key = (*features, config.backbone, config.activation, config.activation_options)
        if key == self.key:
            return self.inputs
        self.inputs = None  # the old ones go before the new ones come
        if isinstance(graph, GraphSet):
            self.inputs = collect(config, graph, self.device)
        else:
            self.inputs = prepare_inputs(config, graph, self.device)
        self.key = key
        return self.inputs


def run(
    configs: Sequence[Config],
    seeds: Sequence[int],
    record: Record | None,
    *,
    root: str | Path | None = None,
    graphs: Mapping[str, Graph | GraphSet] | None = None,
    device: str = "auto",
    seeds_at_once: int | None = None,
    save: Path | None = None,
    deadline: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Result]:
    """Trains what is missing and returns all results of these configurations and seeds.

    Args:
        configs: The cells, those of one graph and backbone best together.
        seeds: The runs of each cell.
        record: Where finished runs are, and are added; without one all are trained.
        root: The folder of the datasets.
        graphs: Graphs that are loaded already, by the name of their dataset.
        device: `auto`, `cpu` or `cuda`.
        seeds_at_once: The most runs in one batch; by default as many as fit.
        save: A folder for the trained models.
        deadline: A value of `time.monotonic()` after which no batch is begun.
        progress: Called every few epochs.
    """
    where = choose_device(device)
    prepared = PreparedCells(graphs or {}, root, where)
    done: dict[tuple[str, int], Result] = {}
    wanted = {(config.key(), seed) for config in configs for seed in seeds}

    def gather() -> None:
        if record is not None:
            found = {(r.config.key(), r.seed): r for r in record.read()}
            done.update({key: result for key, result in found.items() if key in wanted})

    gather()
    for config in configs:
        if all((config.key(), seed) in done for seed in seeds):
            continue
        if deadline is not None and time.monotonic() > deadline:
            break
        size = runs_at_once(config, prepared.graph(config), where, seeds_at_once)
        for batch in _batches(record, config, seeds, size):
            if deadline is not None and time.monotonic() > deadline:
                break
            if record is not None and not record.claim(*batch):
                continue  # another process was faster

            def report(epoch: int, batch: Batch = batch) -> None:
                if progress is not None:
                    config, names, _ = batch
                    progress(Progress(config, names, epoch, len(done), len(wanted), config.epochs))

            try:
                trained, results = prepared.train(config, batch.seeds, report)
                if save is not None:
                    save_models(trained, save)
                missing = [result for result in results if result.seed in batch.missing]
                if record is not None:
                    if isinstance(trained, SeedBatch) and seeds[0] in batch.missing:
                        inspect(trained, seeds[0], record.path)
                    record.append(missing)
            except BaseException:
                if record is not None:
                    record.release(config, batch.missing)
                raise
            done.update({(config.key(), result.seed): result for result in missing})
            report(config.epochs)
    gather()
    order = [(config.key(), seed) for config in configs for seed in seeds]
    return [done[key] for key in order if key in done]


def _batches(record: Record | None, config: Config, seeds: Sequence[int], size: int) -> list[Batch]:
    if record is not None:
        return record.plan([config], seeds, size)
    chunks = [tuple(seeds[start : start + size]) for start in range(0, len(seeds), size)]
    return [Batch(config, chunk, chunk) for chunk in chunks]
