"""The runs of a cell: their device, their graph and their prepared inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.graph_batches import DeviceGraphs
from graphrelu.lab.engine.graph_training import network_of, split_set, train_graphs
from graphrelu.lab.engine.keep import inspect
from graphrelu.lab.engine.memory import MOST_SEEDS, halves, is_out_of_memory
from graphrelu.lab.engine.train import build, train
from graphrelu.lab.models.propagation import PreparedInputs
from graphrelu.lab.models.sparse import row_normalized
from graphrelu.lab.record.config import GIN_SPLITS, Config
from graphrelu.lab.record.results import Batch, Result


class Trained(NamedTuple):
    """A batch, or a part of one that did not fit into memory; and a look inside one model of it."""

    batch: Batch
    results: list[Result]
    look: bytes | None


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


def scaled_features(config: Config, graph: Graph) -> Tensor:
    """The graph's features, normalised and scaled as the cell asks; sparse features stay sparse."""
    x = row_normalized(graph.x) if config.normalize_features else graph.x
    return x * config.feature_scale


def prepare_inputs(config: Config, graph: Graph, device: torch.device) -> PreparedInputs:
    """Features and graph in the form that the models of a cell take, for any activation."""
    weight = graph.edge_weight
    return build(config, graph, 0).prepare(
        scaled_features(config, graph).to(device, getattr(torch, config.dtype)),
        graph.edge_index.to(device),
        None if weight is None else weight.to(device),
    )


def load_dataset(config: Config, root: str | Path | None) -> Graph | GraphSet:
    """The graph, or the set of graphs, of a configuration."""
    if not data.holds_graphs(config.dataset):
        return data.load(config.dataset, root)
    split: Any = "folds" if config.split in GIN_SPLITS else config.split
    return data.load_graphs(config.dataset, root, split=split)


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
        """Trains the runs of a batch at once or, where memory does not suffice, half by half; the
        look is inside the model of ``seed``."""
        try:
            trained = self._train(batch, seed, partial(report, batch.seeds))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            parts = halves(batch)
        else:
            yield trained
            return
        gc.collect()  # only now, as the error held on to what there was
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        for part in parts:
            yield from self.train(part, seed, report)

    def _train(self, batch: Batch, seed: int | None, progress: Callable[[int], None]) -> Trained:
        config, graph, inputs = batch.config, self.graph(batch.config), self.inputs_of(batch.config)
        if isinstance(graph, GraphSet):
            results = train_graphs(config, graph, inputs, batch.seeds, progress)
            return Trained(batch, results, None)
        models, results = train(config, graph, inputs, batch.seeds, self.device, progress)
        look = None
        if seed is not None and seed in batch.seeds and graph.task == "classes":
            look = inspect(models, seed)
        return Trained(batch, results, look)

    def inputs_of(self, config: Config) -> Any:
        graph = self.graph(config)
        if isinstance(graph, GraphSet):
            key: tuple[Any, ...] = (config.dataset, network_of(config).walks)
        else:
            key = (config.dataset, config.normalize_features, config.feature_scale, config.dtype)
            key += (config.backbone, config.backbone_options)
        if key == self.key:
            return self.inputs
        self.key = self.inputs = None  # the old ones go before the new ones come
        if isinstance(graph, GraphSet):
            self.inputs = DeviceGraphs(graph, self.device, network_of(config).walks)
        else:
            self.inputs = prepare_inputs(config, graph, self.device)
        self.key = key
        return self.inputs
