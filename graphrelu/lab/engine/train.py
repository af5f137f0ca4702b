"""Training of all seeds of a cell at once.

The parameters of the runs are stacked, one `vmap` serves all forward passes, and Adam works
elementwise; on a GPU a whole epoch is captured once and replayed. Every run has its own split,
initialisation and dropout stream, all from its own seed: what comes out depends on configuration
and seed alone, not on the runs beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from graphrelu.lab.data.graph import Graph, Task
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine.scores import TASKS, calibration_error
from graphrelu.lab.engine.timing import captured, synchronize, undone
from graphrelu.lab.errors import held
from graphrelu.lab.models.backbones import GNN, DeepGNN
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.record.config import Config, Metric
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.record.results import Result, thin

# Epochs between two checks whether all runs have stopped; each check waits for the GPU.
CHECK_EVERY = {"cpu": 1, "cuda": 20}
CURVES = ("train_loss", "val_loss", "val_accuracy")
CURVE_POINTS = 20


def build(config: Config, graph: Graph, seed: int) -> GNN:
    """The model of a node cell, the paper's or a deep one, with the parameters that a seed stands
    for, the same on every device.

    All but the activations' own are those of the model with ReLU: whatever an activation draws for
    itself, the runs of one seed start alike.
    """
    network = DeepGNN if config.is_deep else GNN

    def make(activation: str, options: dict[str, Any]) -> GNN:
        torch.manual_seed(seed)
        sizes = graph.num_features, config.hidden, graph.num_classes
        rest: dict[str, Any] = {"dropout": config.dropout, "activation_options": options}
        rest |= dict(config.backbone_options)
        return network(config.backbone, *sizes, activation=activation, **rest)

    with torch.random.fork_rng(devices=[]):
        model = make(config.activation, dict(config.activation_options))
        with_relu = make("none" if config.activation == "none" else "relu", {})
    model.load_state_dict(with_relu.state_dict(), strict=False)
    return model.to(getattr(torch, config.dtype))


@dataclass(frozen=True, eq=False)
class Nodes:
    """One part of the splits of all runs: `index [R, n]`, padded with weight zero.

    A model predicts values in `units`: their mean and standard deviation, both `[R, 1, 1]`, among
    the training nodes. Losses and scores take the logits `[R, n, classes]` of these nodes alone.
    """

    index: Tensor
    weight: Tensor
    label: Tensor
    task: Task = "classes"
    units: tuple[Tensor, Tensor] | None = None

    @classmethod
    def stack(
        cls, parts: Sequence[Tensor], y: Tensor, device: torch.device, task: Task = "classes"
    ) -> Nodes:
        width = max(len(part) for part in parts)
        index = torch.zeros(len(parts), width, dtype=torch.long)
        weight = torch.zeros(len(parts), width, dtype=torch.double)
        for row, part in enumerate(parts):
            index[row, : len(part)] = part
            weight[row, : len(part)] = 1 / len(part)
        label = y[index].unsqueeze(2) if task == "values" else y[index]
        return cls(index.to(device), weight.to(device), label.to(device), task)

    @property
    def known(self) -> Tensor:
        return (self.weight > 0).unsqueeze(2)

    def own_units(self) -> tuple[Tensor, Tensor] | None:
        """The mean and the standard deviation of these values; one is 1 where all are the same."""
        if self.task != "values":
            return None
        weight = self.weight.unsqueeze(2)
        mean = (weight * self.label).sum(dim=1, keepdim=True)
        std = (weight * (self.label - mean).square()).sum(dim=1, keepdim=True).sqrt()
        return mean, torch.where(std > 0, std, 1.0)

    def chosen(self, logits: Tensor) -> Tensor:
        """The logits of these nodes, from those of all nodes."""
        return logits.take_along_dim(self.index.unsqueeze(2), dim=1)

    def loss(self, logits: Tensor) -> Tensor:
        """The mean loss of each run, `[R]`."""
        label = self.label
        if self.units is not None:
            mean, std = self.units
            label = (label - mean) / std
        losses = TASKS[self.task].loss(logits, label).mean(dim=2)
        return (self.weight.to(logits.dtype) * losses).sum(dim=1)

    def score(self, logits: Tensor, metric: Metric) -> Tensor:
        if self.units is not None:
            mean, std = self.units
            logits = logits * std + mean
        return TASKS[self.task].scores[metric](logits, self.label, self.known)


class SeedBatch:
    """The runs of one configuration that are trained together: their state, and what is
    noted for the choice of an epoch and for the record."""

    def __init__(
        self, config: Config, graph: Graph, inputs: Any, seeds: Sequence[int], device: torch.device
    ) -> None:
        self.config, self.seeds, self.device = config, tuple(seeds), device
        self.graph, self.inputs = graph, inputs
        models = [build(config, graph, seed) for seed in seeds]
        parameters, buffers = stack_module_state(models)
        stacked = {**parameters, **buffers}
        self.state = {name: v.detach().to(device, copy=True) for name, v in stacked.items()}
        self.parameters = {name: self.state[name].requires_grad_() for name in parameters}
        self.best = {name: value.detach().clone() for name, value in self.state.items()}
        self.skeleton = models[0].to("meta")
        self.optimizer = torch.optim.Adam(
            list(self.parameters.values()),
            lr=config.lr,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=device.type == "cuda",
        )
        runs = len(seeds)
        self.seed_tensor = torch.tensor(seeds, device=device)
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self.active = torch.ones(runs, dtype=torch.bool, device=device)
        self.best_value = torch.full((runs,), torch.inf, device=device, dtype=torch.double)
        self.best_epoch = torch.zeros(runs, dtype=torch.long, device=device)
        self.epochs_run = torch.zeros(runs, dtype=torch.long, device=device)
        names = CURVES if graph.task == "classes" else CURVES[:2]
        self.curves = {name: torch.zeros(config.epochs, runs, device=device) for name in names}
        self.splits = [make_split(graph, seed, config.split) for seed in seeds]
        parts = [
            Nodes.stack(
                [getattr(split, part) for split in self.splits], graph.y, device, graph.task
            )
            for part in ("train", "val", "test")
        ]
        units = parts[0].own_units()
        self.train, self.val, self.test = (replace(part, units=units) for part in parts)

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
        """One step of every run, and the notes for early stopping and the record."""
        loss = self.descend()
        with torch.no_grad():
            logits = self.val.chosen(self.logits(self.state, training=False))
            val_loss = self.val.loss(logits)
            values = {"train_loss": loss, "val_loss": val_loss}
            if "val_accuracy" in self.curves:
                values["val_accuracy"] = self.val.score(logits, "accuracy")
            for name, value in values.items():
                self.curves[name].index_copy_(0, self.step.view(1), value.float().unsqueeze(0))
            chooses = val_loss
            if self.config.select == "score":  # a diverged run does not improve
                score = self.val.score(logits, self.config.metric)
                chooses = torch.where(val_loss.isfinite(), -score, torch.nan)
            self._keep_the_best(chooses)
            self._stop(val_loss)
            self.step += 1

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

    def update(self, loss: Tensor) -> None:
        """One optimiser step of every run, from their losses `[R]`."""
        leaves = list(self.parameters.values())
        # A convolution may hold parameters that it does not use (ARMA's with one layer).
        grads = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        for leaf, grad in zip(leaves, grads, strict=True):
            # The fused optimiser does not look at strides.
            leaf.grad = None if grad is None else grad.contiguous()
        self.optimizer.step()

    def _keep_the_best(self, value: Tensor) -> None:
        """The state of the lowest value `[R]`: the only thing that chooses an epoch."""
        self.epochs_run += self.active
        improved = self.active & (value < self.best_value)
        self.best_value.copy_(torch.where(improved, value.double(), self.best_value))
        self.best_epoch.copy_(torch.where(improved, self.step + 1, self.best_epoch))
        for name, best in self.best.items():
            chosen = improved.view(-1, *(1,) * (best.dim() - 1))
            best.copy_(torch.where(chosen, self.state[name], best))

    def run(self, progress: Callable[[int], None] | None = None) -> float:
        """Trains until every run has stopped or the epochs are over; returns the seconds."""
        if self.device.type == "cuda":
            with torch.no_grad():
                self.outputs()  # a stream keeps memory for products: let the first batch count it
        advance = self.stepper()
        synchronize(self.device)
        started = time.perf_counter()
        check_every = CHECK_EVERY[self.device.type]
        for epoch in range(1, self.config.epochs + 1):
            advance()
            if epoch % check_every == 0 or epoch == self.config.epochs:
                if progress is not None:
                    progress(epoch)
                if not bool(self.active.any()):
                    break
        return time.perf_counter() - started

    def stepper(self) -> Callable[[], None]:
        """A function that runs an epoch; on a GPU as a CUDA graph, since launches take long."""
        if self.device.type != "cuda":
            return self.epoch
        # A step beyond the last has no place in the curves.
        with undone(self.changed):
            return captured(self.epoch, self.device, min(2, self.config.epochs))

    def changed(self) -> list[Tensor]:
        """All that an epoch changes."""
        own = (self.step, self.active, self.best_value, self.best_epoch, self.epochs_run)
        states = (self.state, self.best, self.curves, *self.optimizer.state.values())
        return [*own, *(value for state in states for value in state.values())]

    @torch.no_grad()
    def results(self, seconds: float) -> list[Result]:
        """One result per run, from the parameters of its best epoch."""
        config, outs, runs = self.config, self.outputs(), len(self.seeds)
        values: dict[str, list[Any]] = {
            "score": self.test.score(outs["test"], config.metric).tolist(),
            "val_score": self.val.score(outs["val"], config.metric).tolist(),
            "best_epoch": self.best_epoch.tolist(),
            "epochs_run": self.epochs_run.tolist(),
            "calibration_error": [math.nan] * runs,
        }
        if any(map(math.isnan, values["score"] + values["val_score"])):
            raise ValueError(
                f"The metric {config.metric} needs validation and test labels that differ."
            )
        for part, out in outs.items():
            values[f"{part}_loss"] = getattr(self, part).loss(out).tolist()
        if config.select == "loss":
            values["val_loss"] = self.best_value.tolist()
        if self.test.task == "classes":
            errors = calibration_error(outs["test"], self.test.label, self.test.known)
            values["calibration_error"] = errors.tolist()
        common = surroundings(self.device) | {"config": config, "seconds": seconds / runs}
        common["parameters"] = sum(p[0].numel() for p in self.parameters.values())
        common["epochs_computed"] = int(self.step)
        last = self.curves["train_loss"].gather(0, (self.epochs_run - 1).clamp(min=0).unsqueeze(0))
        values["diverged"] = (~last.squeeze(0).isfinite()).tolist()
        if self.device.type == "cuda":
            common["peak_memory"] = torch.cuda.max_memory_allocated(self.device) // runs
        results = []
        for row, (seed, split) in enumerate(zip(self.seeds, self.splits, strict=True)):
            own = {name: of_runs[row] for name, of_runs in values.items()}
            curves = {
                name: thin(curve[: own["epochs_run"], row].tolist(), CURVE_POINTS)
                for name, curve in self.curves.items()
            }
            results.append(Result(seed=seed, note=split.note, curves=curves, **own, **common))
        return results


def train_nodes(
    config: Config,
    graph: Graph,
    inputs: Any,
    seeds: Sequence[int],
    device: torch.device,
    progress: Callable[[int], None] | None = None,
) -> tuple[SeedBatch, list[Result]]:
    """Trains the runs of a cell at once; returns the trained batch and its results.

    Time and memory are measured over the epochs: without the first calls, which compile kernels,
    and without what earlier batches left behind.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    batch = SeedBatch(config, graph, inputs, seeds, device)
    return batch, batch.results(batch.run(progress))
