"""Training of all seeds of a cell at once.

Every run has its own split, initialisation and dropout stream, all from its own seed: what comes
out depends on configuration and seed alone, not on the runs beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.stacked import StackedRuns, seeded
from graphrelu.lab.models.backbones import GNN, DeepGNN
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.models.propagation import PreparedInputs
from graphrelu.lab.record.config import Config
from graphrelu.lab.signals import held


def build(config: Config, graph: Graph, seed: int) -> GNN:
    """The model of a node cell: the paper's, or a deep one where the layers are named."""
    return seeded(DeepGNN if config.is_deep else GNN, config, graph, seed)


class SeedBatch(StackedRuns):
    """The runs of one configuration that are trained together."""

    graph: Graph
    inputs: PreparedInputs

    def model(self, seed: int) -> GNN:
        return build(self.config, self.graph, seed)

    def split(self, seed: int) -> Split:
        return make_split(self.graph, seed, self.config.split)

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
        loss = self.train.loss(self.train.chosen(self.logits(self.state, training=True)))
        self.update(loss)
        return loss.detach()

    def epoch(self) -> None:
        """One step of every run, and the books that early stopping and the record need."""
        loss = self.descend()
        with torch.no_grad():
            logits = self.val.chosen(self.logits(self.state, training=False))
            val_loss = self.val.loss(logits)
            self.keep_the_best(self._value(logits, val_loss))
            self.note(loss, val_loss, logits)
            self._stop(val_loss)
            self.step += 1

    def _value(self, logits: Tensor, val_loss: Tensor) -> Tensor:
        """The value that is lowest in the best epoch; a diverged run does not improve."""
        if self.config.select == "loss":
            return val_loss
        score = self.val.score(logits, self.config.metric)
        return torch.where(val_loss.isfinite(), -score, torch.nan)

    def _stop(self, val_loss: Tensor) -> None:
        """By loss: after half of the epochs, once the loss exceeds the mean of the last `patience`
        losses. By score: after `patience` epochs without progress."""
        patience = self.config.patience
        if patience == 0:
            return
        if self.config.select == "score":
            self.active &= self.step + 1 - self._last_progress() < patience
            return
        past = self.step - patience + torch.arange(patience, device=self.device)
        mean = self.curves["val_loss"].index_select(0, past.clamp(min=0)).mean(dim=0)
        late = self.step + 1 > self.config.epochs // 2
        self.active &= ~late | (val_loss <= mean)  # false for NaN, which never ends

    def _last_progress(self) -> Tensor:
        """The epoch of the best score, or of the lowest loss if that is later and counts."""
        if self.config.progress == "score":
            return self.best_epoch
        losses = self.curves["val_loss"]
        epochs = torch.arange(len(losses), device=self.device).unsqueeze(1)
        known = (epochs <= self.step) & losses.isfinite()
        lowest = torch.where(known, losses, torch.inf).argmin(dim=0)
        return torch.maximum(self.best_epoch, lowest + 1)

    def outputs(self) -> dict[str, Tensor]:
        logits = self.logits(self.best, training=False)
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part.chosen(logits) for name, part in parts.items()}


train = SeedBatch.trained
