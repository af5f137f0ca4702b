"""Sets of graphs in mini-batches: one run, from its configuration to its result.

The whole set lies on the device, where mini-batches are gathered. The host only draws the order of
the graphs, which depends on the seed and the epoch alone, so that every activation sees the same
batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.graph import DiffusionSettings, PreparedGraph, prepare
from graphrelu.lab.data.graph import GraphSet
from graphrelu.lab.data.splits import Split, split_of
from graphrelu.lab.engine.scores import TASKS
from graphrelu.lab.engine.timing import captured, undone
from graphrelu.lab.models.graph_networks import (
    GraphBatch,
    GraphNetwork,
    Network,
    count_parameters,
    random_walks,
)
from graphrelu.lab.record.config import GIN_SPLITS, Config, Metric
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.record.results import SET_SCORES, Result, thin
from graphrelu.ops.diffuse import CSR

EVALUATION_BATCH = 512
PADDING = 32  # graphs: a single large one would keep one program of a kernel busy for long
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


class Shape(NamedTuple):
    """The nodes and edges of a mini-batch. Its last graphs, as many as ``padding``, only fill it up
    to these sizes."""

    nodes: int
    edges: int
    padding: int = 0


class DeviceGraphs:
    """A set of graphs on the device, to gather mini-batches from.

    The graph of number `G`, behind the last, is empty: it fills a mini-batch.
    """

    def __init__(self, graphs: GraphSet, device: torch.device, walks: int = 0) -> None:
        self.node_count = F.pad(graphs.node_count, (0, 1))
        self.edge_count = F.pad(graphs.edge_count, (0, 1))
        counts = torch.stack([self.node_count, self.edge_count])
        self.counts = counts.to(device)  # [2, G + 1]
        self.first = self.counts.cumsum(dim=1) - self.counts
        shift = self.first[0].cpu().repeat_interleave(self.edge_count)
        # Edges are sorted once, here, and so are those of every mini-batch.
        source, target = graphs.edge_index + shift
        order = torch.argsort(source * len(graphs.nodes.kind) + target, stable=True)
        self.edge_index = graphs.edge_index[:, order].to(device)
        self.edges = graphs.edges.kind[order].to(device)
        self.nodes = graphs.nodes.kind.to(device)
        self.all_edges = (graphs.edge_index + shift)[:, order].to(device)  # of one large graph
        self.walks = random_walks(self.all_edges, graphs.node_count, walks) if walks else None
        self.settings: DiffusionSettings | None = None
        self.mass = self.value = torch.empty(0, device=device)

    def diffuse_by(self, settings: DiffusionSettings | None) -> None:
        """What the diffusion needs of each graph is computed once, for all mini-batches."""
        if settings in (None, self.settings):
            return
        graph = prepare(self.all_edges, None, len(self.nodes), torch.float, settings)
        assert graph.matrices is not None
        self.settings, self.mass, self.value = settings, graph.mass, graph.matrices[0].value

    def gather(
        self, index: Tensor, shape: Shape, settings: DiffusionSettings | None = None
    ) -> GraphBatch:
        """The graphs of these numbers. The shape is known before, so that nothing waits for the
        device."""
        count = self.counts[:, index]
        real = len(index) - shape.padding
        if shape.padding:
            rest = torch.stack([size - own.sum() for size, own in zip(shape, count, strict=False)])
            ends = rest.view(2, 1) * torch.arange(shape.padding + 1, device=index.device)
            count[:, real:] = (ends // shape.padding).diff()
        end = count.cumsum(dim=1)
        start = end - count
        shift = self.first[:, index] - start

        def places(part: int, size: int, last: int) -> tuple[Tensor, Tensor]:
            place = torch.arange(size, device=index.device)
            owner = torch.searchsorted(end[part], place, right=True)
            return owner, (place + shift[part][owner]).clamp(max=last)

        batch, node = places(0, shape.nodes, self.nodes.numel() - 1)
        owner, edge = places(1, shape.edges, self.edges.numel() - 1)
        edge_index = self.edge_index.index_select(1, edge) + start[0][owner]
        value = self.value[edge] if settings else None
        mass = self.mass[node] if settings else None
        shares: tuple[Tensor, ...] = ()
        if shape.padding:
            # Loops of the nodes of padding, a few each.
            padding = torch.arange(shape.edges, device=index.device) - start[1, real]
            loop = start[0, real] + padding * rest[0] // rest[1].clamp(min=1)
            is_padding = owner >= real
            edge_index = torch.where(is_padding, loop, edge_index)
            value = None if value is None else value.masked_fill(is_padding, 0.0)
            graph_share = (index < self.counts.size(1) - 1).float()
            node_share = (batch < real).float()
            mass = None if mass is None else mass * node_share
            shares = node_share / start[0, real], graph_share / graph_share.sum()
        starts = torch.arange(shape.nodes + 1, device=index.device)
        rowptr = torch.searchsorted(edge_index[0].contiguous(), starts, out_int32=True)
        diffusion = None
        if settings is not None and value is not None and mass is not None:
            matrix = CSR(rowptr, edge_index[1].int(), value)
            diffusion = PreparedGraph(settings, mass, (matrix, matrix))
        return GraphBatch(
            self.nodes[node],
            edge_index,
            self.edges[edge],
            batch,
            len(index),
            rowptr,
            None if self.walks is None else self.walks.index_select(0, node),
            diffusion,
            *shares,
        )

    def batches(self, order: Tensor, size: int) -> list[tuple[Tensor, Shape]]:
        """The numbers of graphs, on the device, and the shape of every mini-batch."""
        device = self.counts.device
        return [
            (part, Shape(int(self.node_count[own].sum()), int(self.edge_count[own].sum())))
            for part, own in zip(order.to(device).split(size), order.split(size), strict=True)
        ]

    def common_shape(self, orders: Iterable[Tensor], size: int) -> Shape:
        """The least shape that every mini-batch of these orders can be padded to. A node of padding
        has two edges at most, so that sums over its neighbours stay small."""
        nodes = torch.cat([_sums(self.node_count[order], size) for order in orders])
        edges = torch.cat([_sums(self.edge_count[order], size) for order in orders])
        most = int(edges.max())
        return Shape(int((nodes + (most - edges + 1) // 2).max()) + 1, most, PADDING)

    def padded(self, order: Tensor, size: int) -> Tensor:
        """The numbers of graphs of all mini-batches `[batches, size + PADDING]`, on the device."""
        none, width = len(self.node_count) - 1, size + PADDING
        rows = [F.pad(part, (0, width - len(part)), value=none) for part in order.split(size)]
        return torch.stack(rows).to(self.counts.device)


def _sums(counts: Tensor, size: int) -> Tensor:
    """Over each mini-batch."""
    return torch.stack([part.sum() for part in counts.split(size)])


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
