"""Training of all seeds of a cell at once.

Every run has its own split, initialisation and dropout stream, all from its own seed: what comes
out depends on configuration and seed alone, not on the runs beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine.scores import SCORES
from graphrelu.lab.engine.signals import held
from graphrelu.lab.engine.stacked import StackedRuns, cross_entropy, seeded
from graphrelu.lab.models.backbones import GNN, NodeNetwork
from graphrelu.lab.models.deep_backbones import DeepGNN
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result, thin

CURVE_POINTS = 20


def build(config: Config, graph: Graph, seed: int) -> NodeNetwork:
    """The model of a node cell: the paper's, or a deep one where the layers are named."""
    of_backbone: dict[str, Any] = dict(config.backbone_options)

    def make(activation: str, options: dict[str, Any]) -> NodeNetwork:
        network = DeepGNN if config.is_deep else GNN
        return network(
            config.backbone,
            graph.num_features,
            config.hidden,
            graph.num_classes,
            activation=activation,
            dropout=config.dropout,
            activation_options=options,
            **of_backbone,
        )

    return seeded(make, config, seed)


@dataclass(frozen=True, eq=False)
class Nodes:
    """One part of the splits of all runs: `index [R, n]`, padded with nodes of weight zero."""

    index: Tensor
    weight: Tensor
    label: Tensor

    @classmethod
    def stack(cls, parts: Sequence[Tensor], y: Tensor, device: torch.device) -> Nodes:
        width = max(len(part) for part in parts)
        index = torch.zeros(len(parts), width, dtype=torch.long)
        weight = torch.zeros(len(parts), width, dtype=torch.double)
        for row, part in enumerate(parts):
            index[row, : len(part)] = part
            weight[row, : len(part)] = 1 / len(part)
        return cls(index.to(device), weight.to(device), y[index].to(device))

    def loss(self, logits: Tensor) -> Tensor:
        """The mean cross-entropy of each run, from the logits `[R, N, classes]` of all nodes."""
        return cross_entropy(self._chosen(logits), self.label, self.weight)

    def accuracy(self, logits: Tensor) -> Tensor:
        right = self._chosen(logits).argmax(dim=2) == self.label
        return (self.weight * right).sum(dim=1)

    def score(self, logits: Tensor, metric: str) -> Tensor:
        return SCORES[metric](self._chosen(logits), self.label, self.weight > 0)

    def _chosen(self, logits: Tensor) -> Tensor:
        return logits.take_along_dim(self.index.unsqueeze(2), dim=1)


class SeedBatch(StackedRuns):
    """The runs of one configuration that are trained together."""

    def __init__(
        self, config: Config, graph: Graph, inputs: Any, seeds: Sequence[int], device: torch.device
    ) -> None:
        models = [build(config, graph, seed) for seed in seeds]
        super().__init__(config, seeds, models, device, ("train_loss", "val_loss", "val_accuracy"))
        self.graph, self.inputs = graph, inputs
        self.splits = [make_split(graph, seed, config.split) for seed in seeds]
        self.train, self.val, self.test = (
            Nodes.stack([getattr(split, part) for split in self.splits], graph.y, device)
            for part in ("train", "val", "test")
        )

    def logits(self, state: dict[str, Tensor], training: bool) -> Tensor:
        """The outputs of all runs, `[R, N, classes]`."""
        self.skeleton.train(training)

        def forward(state: dict[str, Tensor], seed: Tensor) -> Tensor:
            with SeededDropout(seed, self.step):
                out: Tensor = functional_call(self.skeleton, state, (self.inputs,))
                return out

        with held():
            return vmap(forward)(state, self.seed_tensor)

    def descend(self) -> Tensor:
        """One optimiser step of every run; returns their training losses `[R]`."""
        loss = self.train.loss(self.logits(self.state, training=True))
        self.update(loss)
        return loss.detach()

    def epoch(self) -> None:
        """One step of every run, and the books that early stopping and the record need."""
        loss = self.descend()
        with torch.no_grad():
            logits = self.logits(self.state, training=False)
            val_loss = self.val.loss(logits)
            self.keep_the_best(self._value(logits, val_loss))
            self.note(train_loss=loss, val_loss=val_loss, val_accuracy=self.val.accuracy(logits))
            self._stop(val_loss)
            self.step += 1

    def _value(self, logits: Tensor, val_loss: Tensor) -> Tensor:
        """What the best epoch has the lowest of; a run that has diverged gets no better."""
        if self.config.select == "loss":
            return val_loss
        score = self.val.score(logits, self.config.metric)
        return torch.where(val_loss.isfinite(), -score, torch.nan)

    def _stop(self, val_loss: Tensor) -> None:
        """By loss: after half of the epochs, where it exceeds its mean over the last `patience`.
        By score: after `patience` epochs without a better one."""
        patience = self.config.patience
        if patience == 0:
            return
        if self.config.select == "score":
            self.active &= self.step + 1 - self.best_epoch < patience
            return
        past = self.step - patience + torch.arange(patience, device=self.device)
        mean = self.curves["val_loss"].index_select(0, past.clamp(min=0)).mean(dim=0)
        late = self.step + 1 > self.config.epochs // 2
        self.active &= ~late | (val_loss <= mean)  # false for NaN, which never ends

    def results(self, seconds: float) -> list[Result]:
        """One result per run, from the parameters of its best epoch."""
        with torch.no_grad():
            logits = self.logits(self.best, training=False)
            losses = {p: getattr(self, p).loss(logits).cpu() for p in ("train", "val", "test")}
            metric = self.config.metric
            scores = {p: getattr(self, p).score(logits, metric).cpu() for p in ("val", "test")}
        if any(bool(score.isnan().any()) for score in scores.values()):
            raise ValueError("The area under the ROC curve needs nodes of two classes.")
        if self.config.select == "loss":
            losses["val"] = self.best_value.cpu()
        common = self.provenance(seconds)
        results = []
        for row, (seed, split) in enumerate(zip(self.seeds, self.splits, strict=True)):
            ran = int(self.epochs_run[row])
            results.append(
                Result(
                    config=self.config,
                    seed=seed,
                    score=float(scores["test"][row]),
                    val_score=float(scores["val"][row]),
                    best_epoch=int(self.best_epoch[row]),
                    epochs_run=ran,
                    train_loss=float(losses["train"][row]),
                    val_loss=float(losses["val"][row]),
                    test_loss=float(losses["test"][row]),
                    curves={
                        name: thin(curve[:ran, row].tolist(), CURVE_POINTS)
                        for name, curve in self.curves.items()
                    },
                    note=split.note,
                    **common,
                )
            )
        return results


def train(
    config: Config,
    graph: Graph,
    inputs: Any,
    seeds: Sequence[int],
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> tuple[SeedBatch, list[Result]]:
    """Trains the runs of a cell at once; returns the trained batch and its results."""
    started = time.perf_counter()
    batch = SeedBatch(config, graph, inputs, seeds, device)
    batch.run(progress)
    results = batch.results(seconds=time.perf_counter() - started)
    return batch, results
