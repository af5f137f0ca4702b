"""Sets of graphs: all folds of a configuration trained at once, each in its own order.

Every run has its own mini-batches, initialisation and dropout stream, all from its own seed: what
comes out depends on configuration and seed alone, not on the runs beside it, but that the GIN
paper's protocol chooses one epoch for the ten folds of an assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.folds import (
    BATCH_SIZE,
    GIN_BATCH_SIZE,
    GIN_STEPS,
    NUM_FOLDS,
    fold_split,
    steps_per_epoch,
    training_order,
)
from graphrelu.lab.data.splits import Split
from graphrelu.lab.engine.train import Nodes, SeedBatch, seeded
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.models.graph_backbones import DeepGraphGNN, GINPaperGNN, GraphGNN
from graphrelu.lab.models.graph_batches import GraphBatch, GraphCollection
from graphrelu.lab.record.config import GIN_SPLITS, Config
from graphrelu.lab.signals import held

HALVE_EVERY = 50  # epochs, of the learning rate


def build_graph_model(config: Config, graphs: GraphSet, seed: int) -> GraphGNN:
    """The model of a graph cell: the paper's, the GIN paper's, or a deep one."""
    if config.split == "gin_paper":
        return seeded(GINPaperGNN, config, graphs, seed)
    return seeded(DeepGraphGNN if config.is_deep else GraphGNN, config, graphs, seed)


def collect(config: Config, graphs: GraphSet, device: torch.device) -> GraphCollection:
    """The graphs to gather mini-batches from, for all runs of the configuration."""
    x = graphs.x.to(getattr(torch, config.dtype)) * config.feature_scale
    model = build_graph_model(config, graphs, 0)
    return model.collect(x, graphs.edge_index, graphs.node_ptr).to(device)


class FoldBatch(SeedBatch):
    """The folds of one configuration that are trained together."""

    graph: GraphSet
    inputs: GraphCollection

    def __init__(
        self,
        config: Config,
        graphs: GraphSet,
        collection: GraphCollection,
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        super().__init__(config, graphs, collection, seeds, device)
        padding = graphs.num_graphs
        self.steps = steps_per_epoch(graphs.strata, config.split)
        arguments = (config.epochs, self.steps, padding, BATCH_SIZE)
        if config.split == "gin_paper":  # each step draws from all training graphs
            self.steps = GIN_STEPS
            arguments = (config.epochs * GIN_STEPS, 1, padding, GIN_BATCH_SIZE)
        orders = [
            training_order(split, seed, *arguments)
            for split, seed in zip(self.splits, self.seeds, strict=True)
        ]
        self.order = torch.stack(orders, dim=2).flatten(0, 1).to(device)  # [steps, R, size]
        self.capacity = collection.capacity(self.order)
        # The last is no graph, but an empty place.
        self.labels = torch.cat([graphs.y, graphs.y.new_zeros(1)]).to(device)
        self.gathered = self.gather(self.val)
        self.minibatch = torch.zeros((), dtype=torch.long, device=device)
        self.train_loss = torch.zeros(len(seeds), dtype=torch.double, device=device)
        self.same_assignment = _same_assignment(config, self.seeds).to(device)

    def model(self, seed: int) -> GraphGNN:  # type: ignore[override]
        return build_graph_model(self.config, self.graph, seed)

    def split(self, seed: int) -> Split:
        return fold_split(self.graph.strata, seed, self.config.split)

    def learning_rate(self) -> Tensor:
        # A tensor, as a captured step would keep a number for ever; of the type that Adam takes.
        dtype = torch.float32 if self.device.type == "cuda" else torch.float64
        halvings = torch.arange(self.config.epochs) // HALVE_EVERY
        self.rates = (self.config.lr * 0.5 ** halvings.double()).to(self.device, dtype)
        self.lr = self.rates[0].clone()
        return self.lr

    def gather(self, part: Nodes) -> list[tuple[GraphBatch, int]]:
        """The graphs of a part in batches of a mini-batch's size at most, and these sizes."""
        pieces = part.index.split(BATCH_SIZE, dim=1)
        return [
            (self.inputs.gather(piece, self.inputs.capacity(piece)), piece.size(1))
            for piece in pieces
        ]

    def logits(  # type: ignore[override]
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

    def descend(self) -> None:  # type: ignore[override]
        """One optimiser step of every run on its next mini-batch."""
        self.lr.copy_(self.rates.index_select(0, self.step.view(1)).squeeze(0))
        order = self.order.index_select(0, self.minibatch.view(1)).squeeze(0)
        batch = self.inputs.gather(order, self.capacity)
        logits = self.logits(self.state, batch, order.size(1), training=True)
        weight = (order < self.graph.num_graphs).to(logits.dtype)
        weight = weight / weight.sum(dim=1, keepdim=True)
        part = replace(self.train, index=order, weight=weight, label=self.labels[order])
        loss = part.loss(logits)
        self.update(loss)
        self.train_loss += loss.detach() / self.steps
        self.minibatch += 1

    @torch.no_grad()
    def look(self) -> None:
        """The end of an epoch: the books that choosing one, and the record, need."""
        logits = self._evaluate(self.state, self.gathered)
        value = val_loss = self.val.loss(logits)
        if self.config.split in GIN_SPLITS:
            # Shares of whole counts: without rounding, equal means would not tie.
            value = -(self.same_assignment @ self.val.accuracy(logits)).round(decimals=9)
        self.keep_the_best(value)
        self.note(self.train_loss, val_loss, logits)
        self.train_loss.zero_()
        self.step += 1

    def restart(self) -> None:
        super().restart()
        self.minibatch.zero_()
        self.train_loss.zero_()

    def _evaluate(
        self, state: dict[str, Tensor], batches: Sequence[tuple[GraphBatch, int]]
    ) -> Tensor:
        outs = [self.logits(state, batch, size, training=False) for batch, size in batches]
        return torch.cat(outs, dim=1)

    def outputs(self) -> dict[str, Tensor]:
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: self._evaluate(self.best, self.gather(part)) for name, part in parts.items()}


def _same_assignment(config: Config, seeds: Sequence[int]) -> Tensor:
    """A matrix that takes the mean over the runs of the same fold assignment."""
    sizes = Counter(seed // NUM_FOLDS for seed in seeds)
    if config.split in GIN_SPLITS and set(sizes.values()) != {NUM_FOLDS}:
        raise ValueError(
            f"The GIN paper's protocol chooses an epoch for all {NUM_FOLDS} folds of an "
            f"assignment, so runs must be a multiple of {NUM_FOLDS}."
        )
    assignment = torch.tensor([seed // NUM_FOLDS for seed in seeds])
    same = (assignment.view(-1, 1) == assignment).double()
    return same / same.sum(dim=1, keepdim=True)


train_folds = FoldBatch.trained
