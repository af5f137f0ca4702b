"""Training of all seeds of a cell at once.

Every run has its own split, initialisation and dropout stream, all from its own seed: what comes
out depends on configuration and seed alone, not on the runs beside it. The parameters of the runs
are stacked, one `vmap` serves all forward passes, and Adam works elementwise; on a GPU the whole
epoch is captured once and replayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from graphrelu.backbones import GNN
from graphrelu.lab import stats
from graphrelu.lab.config import Config
from graphrelu.lab.dropout import SeededDropout
from graphrelu.lab.graph import Graph
from graphrelu.lab.results import Result, commit, device_name, environment, now, thin
from graphrelu.lab.splits import make_split

METRICS = {"accuracy": stats.accuracy, "f1": stats.f1, "rocauc": stats.rocauc}
CURVE_POINTS = 20
# Between two looks at whether all runs have stopped; each look waits for the GPU.
LOOK_EVERY = {"cpu": 1, "cuda": 20}


def build(config: Config, graph: Graph, seed: int) -> GNN:
    """A model with the parameters that a seed stands for, the same on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GNN(
            config.backbone,
            graph.num_features,
            config.hidden,
            graph.num_classes,
            activation=config.activation,
            dropout=config.dropout,
            activation_options=dict(config.activation_options),
            **dict(config.backbone_options),
        )
    return model.to(getattr(torch, config.dtype))


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
        chosen = logits.take_along_dim(self.index.unsqueeze(2), dim=1)
        log_likelihood = chosen.log_softmax(dim=2).gather(2, self.label.unsqueeze(2)).squeeze(2)
        return -(self.weight.to(logits.dtype) * log_likelihood).sum(dim=1)

    def accuracy(self, logits: Tensor) -> Tensor:
        chosen = logits.take_along_dim(self.index.unsqueeze(2), dim=1)
        return (self.weight * (chosen.argmax(dim=2) == self.label)).sum(dim=1)


class SeedBatch:
    """The runs of one configuration that are trained together."""

    def __init__(
        self, config: Config, graph: Graph, inputs: Any, seeds: Sequence[int], device: torch.device
    ) -> None:
        self.config, self.graph, self.inputs, self.device = config, graph, inputs, device
        self.seeds = tuple(seeds)
        self.splits = [make_split(graph, seed, config.split) for seed in seeds]
        self.train, self.val, self.test = (
            Nodes.stack([getattr(split, part) for split in self.splits], graph.y, device)
            for part in ("train", "val", "test")
        )
        models = [build(config, graph, seed) for seed in seeds]
        stacked, _ = stack_module_state(models)
        self.initial = {name: value.detach().clone() for name, value in stacked.items()}
        self.parameters = {
            name: value.to(device, copy=True).requires_grad_()
            for name, value in self.initial.items()
        }
        self.best = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.skeleton = models[0].to("meta")
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            list(self.parameters.values()),
            lr=config.lr,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=on_gpu,
        )
        runs = len(seeds)
        self.seed_tensor = torch.tensor(seeds, device=device)
        self.step = torch.zeros((), dtype=torch.long, device=device)
        self.active = torch.ones(runs, dtype=torch.bool, device=device)
        self.best_loss = torch.full((runs,), torch.inf, device=device, dtype=torch.double)
        self.best_epoch = torch.zeros(runs, dtype=torch.long, device=device)
        self.epochs_run = torch.zeros(runs, dtype=torch.long, device=device)
        self.curves = {
            name: torch.zeros(config.epochs, runs, device=device)
            for name in ("train_loss", "val_loss", "val_accuracy")
        }

    def logits(self, parameters: dict[str, Tensor], training: bool) -> Tensor:
        """The outputs of all runs, `[R, N, classes]`."""
        self.skeleton.train(training)

        def forward(parameters: dict[str, Tensor], seed: Tensor) -> Tensor:
            with SeededDropout(seed, self.step):
                out: Tensor = functional_call(self.skeleton, parameters, (self.inputs,))
                return out

        return vmap(forward)(parameters, self.seed_tensor)

    def descend(self) -> Tensor:
        """One optimiser step of every run; returns their training losses `[R]`."""
        loss = self.train.loss(self.logits(self.parameters, training=True))
        leaves = list(self.parameters.values())
        # A convolution may hold parameters that it does not use (ARMA's with one layer).
        grads = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        for leaf, grad in zip(leaves, grads, strict=True):
            # The fused optimiser does not look at strides.
            leaf.grad = None if grad is None else grad.contiguous()
        self.optimizer.step()
        return loss.detach()

    def epoch(self) -> None:
        """One step of every run, and the books that early stopping and the record need."""
        loss = self.descend()
        with torch.no_grad():
            logits = self.logits(self.parameters, training=False)
            val_loss = self.val.loss(logits)
            self._keep_the_best(val_loss)
            self._note(train_loss=loss, val_loss=val_loss, val_accuracy=self.val.accuracy(logits))
            self._stop(val_loss)
            self.step += 1

    def _keep_the_best(self, val_loss: Tensor) -> None:
        """Parameters of the lowest validation loss: the only thing that chooses an epoch."""
        self.epochs_run += self.active
        improved = self.active & (val_loss < self.best_loss)
        self.best_loss.copy_(torch.where(improved, val_loss.double(), self.best_loss))
        self.best_epoch.copy_(torch.where(improved, self.step + 1, self.best_epoch))
        for name, best in self.best.items():
            chosen = improved.view(-1, *(1,) * (best.dim() - 1))
            best.copy_(torch.where(chosen, self.parameters[name], best))

    def _note(self, **values: Tensor) -> None:
        for name, value in values.items():
            self.curves[name].index_copy_(0, self.step.view(1), value.float().unsqueeze(0))

    def _stop(self, val_loss: Tensor) -> None:
        """After half of the epochs: where the loss exceeds its mean over the last `patience`."""
        patience = self.config.patience
        if patience == 0:
            return
        past = self.step - patience + torch.arange(patience, device=self.device)
        mean = self.curves["val_loss"].index_select(0, past.clamp(min=0)).mean(dim=0)
        late = self.step + 1 > self.config.epochs // 2
        self.active &= ~(late & (val_loss > mean))

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Trains until every run has stopped or the epochs are over."""
        advance = self.stepper()
        look_every = LOOK_EVERY[self.device.type]
        for epoch in range(1, self.config.epochs + 1):
            advance()
            if epoch % look_every == 0 or epoch == self.config.epochs:
                if progress is not None:
                    progress(epoch)
                if not bool(self.active.any()):
                    break

    def stepper(self) -> Callable[[], None]:
        """What runs an epoch: on a GPU one CUDA graph, as small models are bound by launches."""
        if self.device.type != "cuda":
            return self.epoch
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # whatever is prepared lazily must be there before the capture
                self.epoch()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.restart()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.epoch()
        return graph.replay

    def restart(self) -> None:
        """Back to the start, in place: a captured graph keeps the addresses."""
        with torch.no_grad():
            for name, value in self.initial.items():
                self.parameters[name].copy_(value)
                self.best[name].copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
            for counter in (self.step, self.best_epoch, self.epochs_run, *self.curves.values()):
                counter.zero_()
            self.active.fill_(True)
            self.best_loss.fill_(torch.inf)

    def results(self, seconds: float) -> list[Result]:
        """One result per run, from the parameters of its best epoch."""
        with torch.no_grad():
            logits = self.logits(self.best, training=False)
            losses = {name: getattr(self, name).loss(logits).cpu() for name in ("train", "test")}
        logits, metric = logits.cpu(), METRICS[self.config.metric]
        common: dict[str, Any] = {
            "seconds": seconds / len(self.seeds),
            "device": device_name(self.device),
            "versions": environment(),
            "date": now(),
            "commit": commit(),
        }
        results = []
        for row, (seed, split) in enumerate(zip(self.seeds, self.splits, strict=True)):
            ran = int(self.epochs_run[row])
            y = self.graph.y
            results.append(
                Result(
                    config=self.config,
                    seed=seed,
                    score=metric(logits[row, split.test], y[split.test]),
                    val_score=metric(logits[row, split.val], y[split.val]),
                    best_epoch=int(self.best_epoch[row]),
                    epochs_run=ran,
                    train_loss=float(losses["train"][row]),
                    val_loss=float(self.best_loss[row]),
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
