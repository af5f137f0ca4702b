"""The runs of a cell: their device, their graph and their prepared inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrelu.lab.data import load
from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.fold_set import load_fold_set
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.fold_train import collect, train_folds
from graphrelu.lab.engine.memory import MOST_SEEDS, halves, is_out_of_memory
from graphrelu.lab.engine.train import SeedBatch, build, train
from graphrelu.lab.models.propagation import PreparedInputs
from graphrelu.lab.models.sparse import row_normalized
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.results import Batch, Result


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
        if config.dataset not in self.graphs:
            read = load_fold_set if config.split in FOLD_SPLITS else load
            self.graphs[config.dataset] = read(config.dataset, self.root)
        return self.graphs[config.dataset]

    def train(
        self, batch: Batch, report: Callable[[tuple[int, ...], int], None]
    ) -> Iterator[tuple[SeedBatch, list[Result]]]:
        """Trains the runs of a batch at once or, where memory does not suffice, half by half."""
        try:
            trained = self._train(batch.config, batch.seeds, partial(report, batch.seeds))
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
            yield from self.train(part, report)

    def _train(
        self, config: Config, seeds: Sequence[int], progress: Callable[[int], None]
    ) -> tuple[SeedBatch, list[Result]]:
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
            model = (config.split, config.backbone, config.activation, config.activation_options)
            key = (*features, *model)
        if key == self.key:
            return self.inputs
        self.key = self.inputs = None  # the old ones go before the new ones come
        if isinstance(graph, GraphSet):
            self.inputs = collect(config, graph, self.device)
        else:
            self.inputs = prepare_inputs(config, graph, self.device)
        self.key = key
        return self.inputs
