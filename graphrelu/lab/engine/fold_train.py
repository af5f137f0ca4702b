"""Graph classification: all folds of a configuration trained at once, each in its own order.

Every run has its own mini-batches, initialisation and dropout stream, all from its own seed: what
comes out depends on configuration and seed alone, not on the runs beside it, but that the GIN
paper's protocol chooses one epoch for the ten folds of an assignment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from graphrelu.lab.data.folds import (
    BATCH_SIZE,
    NUM_FOLDS,
    fold_split,
    steps_per_epoch,
    training_order,
)
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine.scores import SCORES
from graphrelu.lab.engine.signals import held
from graphrelu.lab.engine.stacked import StackedRuns, cross_entropy, seeded
from graphrelu.lab.engine.train import CURVE_POINTS, Nodes
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.models.graph_backbones import GraphGNN
from graphrelu.lab.models.graph_batches import Capacity, GraphBatch, GraphCollection
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result, thin

HALVE_EVERY = 50  # epochs, of the learning rate
CURVES = ("train_loss", "val_loss", "val_accuracy")


def build_graph_model(config: Config, graphs: GraphSet, seed: int) -> GraphGNN:
    """The model of a graph cell."""
    of_backbone: dict[str, Any] = dict(config.backbone_options)

    def make(activation: str, options: dict[str, Any]) -> GraphGNN:
        return GraphGNN(
            config.backbone,
            graphs.num_features,
            config.hidden,
            graphs.num_classes,
            activation=activation,
            dropout=config.dropout,
            activation_options=options,
            **of_backbone,
        )

    return seeded(make, config, seed)


def collect(config: Config, graphs: GraphSet, device: torch.device) -> GraphCollection:
    """The graphs to gather mini-batches from; they serve every run of the configuration."""
    x = graphs.x.to(getattr(torch, config.dtype)) * config.feature_scale
    model = build_graph_model(config, graphs, 0)
    return model.collect(x, graphs.edge_index, graphs.node_ptr).to(device)


@dataclass(frozen=True, eq=False)
class Graphs:
    """One part of the folds of all runs, in pieces of a mini-batch's size at most."""

    nodes: Nodes
    pieces: list[tuple[Tensor, Capacity]]

    @classmethod
    def stack(
        cls, parts: Sequence[Tensor], y: Tensor, collection: GraphCollection, device: torch.device
    ) -> Graphs:
        nodes = Nodes.stack(parts, y, device)
        pieces = nodes.index.split(BATCH_SIZE, dim=1)
        return cls(nodes, [(piece, collection.capacity(piece)) for piece in pieces])


class FoldBatch(StackedRuns):
    """The folds of one configuration that are trained together."""

    def __init__(
        self,
        config: Config,
        graphs: GraphSet,
        collection: GraphCollection,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        # A tensor, as a captured step would keep a number for ever; of the type that Adam takes.
        dtype = torch.float32 if device.type == "cuda" else torch.float64
        halvings = torch.arange(config.epochs) // HALVE_EVERY
        self.rates = (config.lr * 0.5 ** halvings.double()).to(device, dtype)
        self.lr = self.rates[0].clone()
        models = [build_graph_model(config, graphs, seed) for seed in seeds]
        super().__init__(config, seeds, models, device, CURVES, self.lr)
        self.graphs, self.collection = graphs, collection
        self.splits = [fold_split(graphs.y, seed, config.split) for seed in seeds]
        self.train, self.val, self.test = (
            Graphs.stack(
                [getattr(split, part) for split in self.splits], graphs.y, collection, device
            )
            for part in ("train", "val", "test")
        )
        self.steps = steps_per_epoch(graphs.y, config.split)
        arguments = (config.epochs, self.steps, graphs.num_graphs)
        orders = [
            training_order(split, seed, *arguments)
            for split, seed in zip(self.splits, self.seeds, strict=True)
        ]
        self.order = torch.stack(orders, dim=2).flatten(0, 1).to(device)  # [steps, R, 128]
        self.capacity = collection.capacity(self.order)
        # The last is no graph, but an empty place.
        self.labels = torch.cat([graphs.y, graphs.y.new_zeros(1)]).to(device)
        self.gathered = [collection.gather(*piece) for piece in self.val.pieces]
        self.minibatch = torch.zeros((), dtype=torch.long, device=device)
        self.train_loss = torch.zeros(len(seeds), dtype=torch.double, device=device)
        self.same_assignment = _same_assignment(config, self.seeds).to(device)

    def logits(
        self, state: dict[str, Tensor], batch: GraphBatch, size: int, training: bool
    ) -> Tensor:
        """The outputs of all runs, `[R, size, classes]`, each on its own mini-batch."""
        self.skeleton.train(training)

        def forward(state: dict[str, Tensor], seed: Tensor, batch: GraphBatch) -> Tensor:
            with SeededDropout(seed, self.minibatch):
                out: Tensor = functional_call(
                    self.skeleton, state, (batch,), {"batch_size": size + 1}
                )
                return out[:size]

        with held():
            return vmap(forward)(state, self.seed_tensor, batch)

    def parts(self) -> list[tuple[Callable[[], None], int]]:
        return [(self.descend, self.steps), (self.look, 1)]

    def epoch(self) -> None:
        """All mini-batches of every run, and a look at the validation graphs."""
        for part, times in self.parts():
            for _ in range(times):
                part()

    def descend(self) -> None:
        """One optimiser step of every run on its next mini-batch."""
        self.lr.copy_(self.rates.index_select(0, self.step.view(1)).squeeze(0))
        order = self.order.index_select(0, self.minibatch.view(1)).squeeze(0)
        batch = self.collection.gather(order, self.capacity)
        logits = self.logits(self.state, batch, BATCH_SIZE, training=True)
        weight = (order < self.graphs.num_graphs).to(logits.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True)
        loss = cross_entropy(logits, self.labels[order], weight)
        self.update(loss)
        self.train_loss += loss.detach() / self.steps
        self.minibatch += 1

    @torch.no_grad()
    def look(self) -> None:
        """The end of an epoch: the books that choosing one, and the record, need."""
        logits = self._evaluate(self.state, self.gathered, self.val)
        nodes = self.val.nodes
        val_loss = cross_entropy(logits, nodes.label, nodes.weight)
        accuracy = (nodes.weight * (logits.argmax(dim=2) == nodes.label)).sum(dim=1)
        by_loss = self.config.split == "folds"
        self.keep_the_best(val_loss if by_loss else -(self.same_assignment @ accuracy))
        self.note(train_loss=self.train_loss, val_loss=val_loss, val_accuracy=accuracy)
        self.train_loss.zero_()
        self.step += 1

    def restart(self) -> None:
        super().restart()
        self.minibatch.zero_()
        self.train_loss.zero_()

    def _evaluate(
        self, state: dict[str, Tensor], batches: Sequence[GraphBatch], part: Graphs
    ) -> Tensor:
        outs = [
            self.logits(state, batch, piece.size(1), training=False)
            for batch, (piece, _) in zip(batches, part.pieces, strict=True)
        ]
        return torch.cat(outs, dim=1)

    @torch.no_grad()
    def results(self, seconds: float) -> list[Result]:
        """One result per run, from the state of its best epoch."""
        common = self.provenance(seconds)
        losses, scores = {}, {}
        for name in ("train", "val", "test"):
            part: Graphs = getattr(self, name)
            batches = [self.collection.gather(*piece) for piece in part.pieces]
            out = self._evaluate(self.best, batches, part)
            label, weight = part.nodes.label, part.nodes.weight
            losses[name] = cross_entropy(out, label, weight).cpu()
            scores[name] = SCORES[self.config.metric](out, label, weight > 0).cpu()
        results = []
        for row, (seed, split) in enumerate(zip(self.seeds, self.splits, strict=True)):
            curves = {name: curve[:, row].tolist() for name, curve in self.curves.items()}
            points = dict.fromkeys(curves, CURVE_POINTS)
            if self.config.split == "gin_folds":  # the protocol is a statement on this curve
                points["val_accuracy"] = self.config.epochs
            results.append(
                Result(
                    config=self.config,
                    seed=seed,
                    score=float(scores["test"][row]),
                    val_score=float(scores["val"][row]),
                    best_epoch=int(self.best_epoch[row]),
                    epochs_run=self.config.epochs,
                    train_loss=float(losses["train"][row]),
                    val_loss=float(losses["val"][row]),
                    test_loss=float(losses["test"][row]),
                    curves={name: thin(curve, points[name]) for name, curve in curves.items()},
                    note=split.note,
                    **common,
                )
            )
        return results


def _same_assignment(config: Config, seeds: Sequence[int]) -> Tensor:
    """Which runs share a fold assignment, as a matrix that takes means over them."""
    sizes = Counter(seed // NUM_FOLDS for seed in seeds)
    if config.split == "gin_folds" and set(sizes.values()) != {NUM_FOLDS}:
        raise ValueError(
            f"The GIN paper's protocol chooses an epoch for all {NUM_FOLDS} folds of an "
            f"assignment, so runs must be a multiple of {NUM_FOLDS}."
        )
    assignment = torch.tensor([seed // NUM_FOLDS for seed in seeds])
    same = (assignment.view(-1, 1) == assignment).double()
    return same / same.sum(dim=1, keepdim=True)


def train_folds(
    config: Config,
    graphs: GraphSet,
    collection: GraphCollection,
    seeds: Sequence[int],
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> tuple[FoldBatch, list[Result]]:
    """Trains the folds of a cell at once; returns the trained batch and its results."""
    started = time.perf_counter()
    batch = FoldBatch(config, graphs, collection, seeds, device)
    batch.run(progress)
    results = batch.results(seconds=time.perf_counter() - started)
    return batch, results
