"""Sets of graphs in mini-batches: one run, from its configuration to its result.

The host only draws the order of the graphs, which depends on the seed and the epoch alone, so that
every activation sees the same batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.data.graph import GraphSet
from graphrelu.lab.data.splits import Split, split_of
from graphrelu.lab.engine.graph_batches import PADDING, DeviceGraphs, Shape
from graphrelu.lab.engine.scores import TASKS
from graphrelu.lab.engine.timing import captured, undone
from graphrelu.lab.models.graph_networks import GraphNetwork, Network, count_parameters
from graphrelu.lab.record.config import GIN_SPLITS, Config, Metric
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.record.results import SET_SCORES, Result, thin

EVALUATION_BATCH = 512
_NO_CLASS = -100  # of the empty graph
DIGITS = 4  # of the validation scores of all epochs
CURVE_POINTS = 20  # of the other curves
# By the paper's protocol.
POOLING = {"gcn": "mean", "sage": "max", "gin": "sum"}
PAPERS_NETWORK = {"residual": False, "head_layers": 1, "encoder": False, "pooled_dropout": True}
PAPERS_TRAINING = {"halve_every": 50, "warmup": 0}


@dataclass(frozen=True)
class Schedule:
    """The mini-batches and the learning rate, which rises linearly for ``warmup`` epochs and falls
    as a half cosine to ``min_lr``; or is halved every ``halve_every`` epochs."""

    batch_size: int = 128
    warmup: int = 5
    min_lr: float = 0.0
    halve_every: int = 0

    def rate(self, lr: float, epoch: int, epochs: int) -> float:
        if self.halve_every:
            return lr * 0.5 ** (epoch // self.halve_every)
        if epoch < self.warmup:
            return lr * max(1e-6, epoch / self.warmup)
        progress = (epoch - self.warmup) / max(1, epochs - self.warmup)
        return self.min_lr + (lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))


def network_of(config: Config) -> Network:
    """The architecture of a configuration."""
    options = dict(config.backbone_options)
    if _is_papers(config):
        norm = "batch" if config.backbone == "gin" else None
        options |= PAPERS_NETWORK | {"norm": norm, "pooling": POOLING[config.backbone]}
    shared = {"conv": config.backbone, "hidden": config.hidden, "dropout": config.dropout}
    return Network(**shared, **options)  # type: ignore[arg-type]


def schedule_of(config: Config) -> Schedule:
    """How a configuration is trained."""
    usual = PAPERS_TRAINING if _is_papers(config) else {}
    return Schedule(**{**usual, **dict(config.training_options)})  # type: ignore[arg-type]


def _is_papers(config: Config) -> bool:
    return config.split == "folds" and not config.is_deep


def build_network(config: Config, graphs: GraphSet, seed: int) -> GraphNetwork:
    """The network of a run, as its seed starts it."""
    torch.manual_seed(seed)
    features = graphs.nodes, graphs.edges, graphs.num_classes
    options: dict[str, Any] = dict(config.activation_options)
    return GraphNetwork(network_of(config), *features, config.activation, **options)


def split_set(config: Config, graphs: GraphSet, seed: int) -> Split:
    """The training, validation and test graphs of a run."""
    if config.split in GIN_SPLITS:
        raise ValueError(f"Runs by the GIN paper's protocol ({config.split}) are only read.")
    return split_of(graphs, seed, config.split)  # type: ignore[arg-type]


class Targets:
    """The targets on the device; values are standardised by those of the training graphs."""

    def __init__(self, graphs: GraphSet, train: Tensor, device: torch.device) -> None:
        self.task = graphs.task
        self.mean = self.std = torch.zeros(graphs.y.size(1), device=device)
        y = graphs.y.to(device)
        if self.task == "values":
            own = y[train.to(device)]
            known = ~own.isnan()
            self.mean = own.nanmean(dim=0)
            square = (own - self.mean).masked_fill(~known, 0.0).square().sum(dim=0)
            self.std = (square / known.sum(dim=0)).sqrt().clamp(min=1e-6)
            y = (y - self.mean) / self.std
        # The last row is that of the empty graph, of which nothing is known.
        self.known = F.pad((~y.isnan()).float(), (0, 0, 0, 1))
        self.y = F.pad(y.nan_to_num(), (0, 0, 0, 1))
        self.raw = F.pad(graphs.y.to(device), (0, 0, 0, 1), value=_NO_CLASS)

    def loss(self, out: Tensor, index: Tensor) -> Tensor:
        """The mean over the known targets."""
        y, known = self.y.index_select(0, index), self.known.index_select(0, index)
        if self.task == "classes":
            label = self.raw.index_select(0, index).view(-1)
            return F.cross_entropy(out, label, ignore_index=_NO_CLASS)
        losses = TASKS[self.task].loss(out, y)
        return (losses * known).sum() / known.sum().clamp(min=1)

    def score(self, metric: Metric, out: Tensor, index: Tensor) -> Tensor:
        """The metric, in the units of the targets; errors are negative, so higher is better."""
        out = out.nan_to_num()  # a run may have diverged
        if self.task == "values":
            out = out * self.std + self.mean
        y = self.raw[index].unsqueeze(0)
        label = y.squeeze(2) if self.task == "classes" else y
        return TASKS[self.task].scores[metric](out.unsqueeze(0), label, ~y.isnan()).squeeze(0)


class Training:
    """One run."""

    def __init__(self, config: Config, graphs: GraphSet, data: DeviceGraphs, seed: int) -> None:
        self.config, self.graphs, self.data, self.seed = config, graphs, data, seed
        self.schedule = schedule_of(config)
        self.device = device = data.counts.device
        is_gpu = device.type == "cuda"
        split = split_set(config, graphs, seed)
        self.parts, self.note = (split.train, split.val, split.test), split.note
        self.targets = Targets(graphs, self.parts[0], device)
        self.model = build_network(config, graphs, seed).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=torch.tensor(config.lr, device=device) if is_gpu else config.lr,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=is_gpu,
        )
        self.seconds = 0.0
        names = ("train_loss", "val_loss", SET_SCORES, "test_loss", "test")
        self.curves: dict[str, list[float]] = {name: [] for name in names}
        self.settings = self.model.diffusion
        data.diffuse_by(self.settings)
        self.replay: Replay | None = None
        torch.manual_seed(seed)  # dropout, whatever was drawn at the start

    def order(self, epoch: int) -> Tensor:
        """The training graphs, as an epoch takes them."""
        generator = torch.Generator().manual_seed(2**20 * self.seed + epoch)
        train = self.parts[0]
        return train[torch.randperm(len(train), generator=generator)]

    def step(self, index: Tensor, shape: Shape) -> Tensor:
        """One step on these graphs; returns their loss."""
        self.optimizer.zero_grad()
        out = self.model(self.data.gather(index, shape, self.settings))
        loss = self.targets.loss(out, index)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def changed(self) -> list[Tensor]:
        """All that a step changes."""
        states = (self.model.state_dict(), *self.optimizer.state.values())
        return [value for state in states for value in state.values()]

    def predict(self, index: Tensor, shape: Shape) -> Tensor:
        with torch.no_grad():
            out: Tensor = self.model(self.data.gather(index, shape, self.settings))
        return out

    def train_epoch(self, epoch: int) -> Tensor:
        """The mean loss of the steps."""
        rate = self.schedule.rate(self.config.lr, epoch, self.config.epochs)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):  # a captured step reads it from there
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        order, size = self.order(epoch), self.schedule.batch_size
        if self.replay is not None:
            losses = [self.replay.step(index).clone() for index in self.data.padded(order, size)]
        else:
            self.model.train()
            losses = [self.step(*batch) for batch in self.data.batches(order, size)]
        return torch.stack(losses).mean()

    def evaluate(self) -> list[Tensor]:
        """The loss and the score of the validation graphs, and those of the test graphs."""
        self.model.eval()
        found = []
        for part in self.parts[1:]:
            if self.replay is not None:
                rows = self.data.padded(part, self.replay.evaluated)
                outs = [self.replay.predict(index)[:-PADDING].clone() for index in rows]
            else:
                outs = [self.predict(*batch) for batch in self.data.batches(part, EVALUATION_BATCH)]
            out, index = torch.cat(outs)[: len(part)], part.to(self.device)
            found += [self.targets.loss(out, index)]
            found += [self.targets.score(self.config.metric, out, index)]
        return found

    def train(self, progress: Callable[[int], None] | None = None) -> None:
        """All epochs. Their seconds are counted without what prepares the first."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.replay = Replay(self)
        start = time.perf_counter()
        for epoch in range(self.config.epochs):
            found = [self.train_epoch(epoch), *self.evaluate()]
            values = torch.stack([value.double() for value in found]).tolist()
            for curve, value in zip(self.curves.values(), values, strict=True):
                curve.append(value)
            if progress is not None:
                progress(epoch + 1)
        self.seconds = time.perf_counter() - start
        self.replay = None  # and the memory that it holds

    def _best(self) -> int:
        """The epoch, from 0, that the validation graphs choose."""
        values = self.curves[SET_SCORES]
        if self.config.select == "loss":
            losses = self.curves["val_loss"]
            values = [-loss if math.isfinite(loss) else -math.inf for loss in losses]
        return values.index(max(values))

    def result(self) -> Result:
        """The result, with the losses and scores of the best epoch."""
        config, device, epochs, best = self.config, self.device, self.config.epochs, self._best()
        steps = epochs * math.ceil(len(self.parts[0]) / self.schedule.batch_size)
        is_gpu = device.type == "cuda"
        losses = ("train_loss", "val_loss")
        curves = {name: thin(self.curves[name], CURVE_POINTS) for name in losses}
        curves[SET_SCORES] = [round(value, DIGITS) for value in self.curves[SET_SCORES]]
        return Result(
            config=config,
            seed=self.seed,
            score=self.curves["test"][best],
            val_score=self.curves[SET_SCORES][best],
            best_epoch=best + 1,
            epochs_run=epochs,
            epochs_computed=epochs,
            train_loss=self.curves["train_loss"][best],
            val_loss=self.curves["val_loss"][best],
            test_loss=self.curves["test_loss"][best],
            curves=curves,
            seconds=self.seconds,
            note=self.note,
            parameters=count_parameters(self.model),
            peak_memory=torch.cuda.max_memory_allocated(device) if is_gpu else None,
            diverged=not math.isfinite(self.curves["train_loss"][-1]),
            steps=steps,
            **surroundings(device),
        )


class Replay:
    """A step and a prediction, each captured once on a GPU and then replayed: a small model's
    launches take ten times as long as its work. All mini-batches are padded to one shape, and the
    next call overwrites a result."""

    def __init__(self, training: Training) -> None:
        data, size = training.data, training.schedule.batch_size
        self.evaluated = min(EVALUATION_BATCH, max(map(len, training.parts[1:])))
        orders = [training.order(epoch) for epoch in range(training.config.epochs)]
        shapes = (
            data.common_shape(orders, size),
            data.common_shape(training.parts[1:], self.evaluated),
        )
        random = torch.cuda.get_rng_state(training.device)
        with undone(training.changed):
            training.model.train()
            first = data.padded(orders[0], size)[0]
            self.step = self._captured(lambda index: training.step(index, shapes[0]), first)
            training.model.eval()
            first = data.padded(training.parts[1], self.evaluated)[0]
            self.predict = self._captured(lambda index: training.predict(index, shapes[1]), first)
        torch.cuda.set_rng_state(random, training.device)

    def _captured(
        self, call: Callable[[Tensor], Tensor], like: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """The function for any index of this shape."""
        index = like.clone()
        replay = captured(lambda: call(index), like.device)

        def replayed(other: Tensor) -> Tensor:
            index.copy_(other)
            return replay()

        return replayed
