"""Sets of graphs in mini-batches: one run, from its configuration to its scores.

The whole set lies on the device, and a mini-batch is gathered there: the host only draws the order,
which depends on the seed and the epoch alone, so that every activation sees the same batches.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.data.molecules import Molecules
from graphrelu.lab.models.graph_networks import (
    GraphBatch,
    GraphNetwork,
    Network,
    count_parameters,
    random_walks,
)
from graphrelu.lab.record.machine import surroundings

Metric = Literal["mae", "rmse", "rocauc", "ap", "accuracy"]
ERRORS = ("mae", "rmse")  # the lower the better
EVALUATION_BATCH = 512
DIGITS = 4  # of the curves


@dataclass(frozen=True)
class GraphRun:
    """All that determines a run. The learning rate rises linearly for ``warmup`` epochs and falls
    as a half cosine to ``min_lr``; gradients are clipped to the norm 1."""

    dataset: str
    network: Network
    activation: str
    metric: Metric
    seed: int = 0
    activation_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    min_lr: float = 0.0
    weight_decay: float = 0.0
    warmup: int = 5

    def __post_init__(self) -> None:
        known = get_args(Metric)
        if self.metric not in known:
            raise ValueError(f"metric must be one of {', '.join(known)}, not {self.metric!r}.")
        for name, least in (("epochs", 1), ("batch_size", 1), ("warmup", 0)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"{name} must be {least} or more, not {value!r}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> GraphRun:
        unknown = set(plain) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"A run has no field {sorted(unknown)[0]!r}.")
        return cls(**{**plain, "network": Network(**plain["network"])})

    def key(self) -> str:
        """Twelve hexadecimal digits, the same everywhere for the same run."""
        canonical = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        more = ", virtual node" if self.network.virtual_node else ""
        options = "".join(f", {name}={value}" for name, value in self.activation_options.items())
        what = f"{self.dataset} {self.network.conv} {self.activation}{options}{more}"
        return f"{what}, dropout {self.network.dropout:g}, {self.epochs} epochs, seed {self.seed}"


class DeviceGraphs:
    """A set of graphs on the device, to gather mini-batches from."""

    def __init__(self, graphs: Molecules, device: torch.device, walks: int = 0) -> None:
        self.node_count, self.edge_count = graphs.node_count, graphs.edge_count
        self.nodes = graphs.nodes.kind.to(device)
        self.edges = graphs.edges.kind.to(device)
        self.edge_index = graphs.edge_index.to(device)
        counts = torch.stack([self.node_count, self.edge_count]).to(device)
        self.counts = counts  # [2, G]
        self.first = counts.cumsum(dim=1) - counts
        self.walks: Tensor | None = None
        if walks:
            shift = torch.repeat_interleave(self.first[0], counts[1])
            self.walks = random_walks(self.edge_index + shift, self.node_count, walks)

    def gather(self, index: Tensor, sizes: Sequence[int]) -> GraphBatch:
        """The graphs of these numbers; ``sizes``, nodes and edges of all, save a wait for the
        device."""
        count = self.counts[:, index]
        start = count.cumsum(dim=1) - count
        shift = self.first[:, index] - start
        graph = torch.arange(len(index), device=index.device)

        def places(part: int) -> tuple[Tensor, Tensor]:
            owner = graph.repeat_interleave(count[part], output_size=sizes[part])
            return owner, torch.arange(sizes[part], device=index.device) + shift[part][owner]

        (batch, node), (owner, edge) = places(0), places(1)
        edge_index = self.edge_index.index_select(1, edge) + start[0][owner]
        walks = None if self.walks is None else self.walks.index_select(0, node)
        return GraphBatch(self.nodes[node], edge_index, self.edges[edge], batch, len(index), walks)

    def batches(self, order: Tensor, size: int) -> list[tuple[Tensor, list[int]]]:
        """The numbers of graphs, on the device, and the sizes of every mini-batch."""
        device = self.counts.device
        return [
            (part, [int(self.node_count[own].sum()), int(self.edge_count[own].sum())])
            for part, own in zip(order.to(device).split(size), order.split(size), strict=True)
        ]


class Targets:
    """The targets on the device; values are standardised by those of the training graphs."""

    def __init__(self, graphs: Molecules, train: Tensor, device: torch.device) -> None:
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
        self.known = (~y.isnan()).float()
        self.y = y.nan_to_num()
        self.raw = graphs.y.to(device)

    def loss(self, out: Tensor, index: Tensor) -> Tensor:
        """The mean over the known targets."""
        y, known = self.y.index_select(0, index), self.known.index_select(0, index)
        if self.task == "classes":
            return F.cross_entropy(out, self.raw.index_select(0, index).view(-1))
        if self.task == "values":
            losses = (out - y).abs()
        else:
            losses = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return (losses * known).sum() / known.sum().clamp(min=1)

    def score(self, metric: Metric, out: Tensor, index: Tensor) -> Tensor:
        """The metric, in the units of the targets."""
        if self.task == "values":
            out = out * self.std + self.mean
        y = self.raw[index]
        if self.task == "classes":  # each against the rest
            out, y = out.softmax(dim=1), F.one_hot(y.view(-1), out.size(1)).float()
            if metric == "accuracy":
                return (out.argmax(dim=1) == y.argmax(dim=1)).double().mean()
        return score(metric, out, y)


def score(metric: Metric, out: Tensor, y: Tensor) -> Tensor:
    """The mean of a metric over the targets; of `rocauc` and `ap`, as in the Open Graph Benchmark,
    over the targets with both classes. Unknown targets, NaN in `y`, count nowhere."""
    out, known = out.double(), ~y.isnan()
    count = known.sum(dim=0)
    if metric in ERRORS:
        error = (out - y).masked_fill(~known, 0.0)
        if metric == "mae":
            return (error.abs().sum(dim=0) / count).nanmean()
        return (error.square().sum(dim=0) / count).sqrt().nanmean()
    if metric == "accuracy":
        return ((((out > 0) == (y > 0.5)) & known).sum(dim=0) / count).nanmean()
    out, positive = out.nan_to_num().t(), (y == 1).t()
    out = out.masked_fill(~known.t(), -torch.inf)
    positives = positive.sum(dim=1)
    negatives = count - positives
    # How many graphs, and how many positives, rank at least as high as each.
    all_above, positive_above = _above(out, out), _above(out, out.where(positive, -torch.inf))
    if metric == "ap":  # the precision at the rank of each positive
        value = positive_above / all_above
    else:  # the share of negatives below each positive, ties by half
        above = all_above - positive_above
        strictly = _above(out, out, True) - _above(out, out.where(positive, -torch.inf), True)
        value = 1 - (above + strictly) / (2 * negatives.view(-1, 1))
    mean = value.masked_fill(~positive, 0.0).sum(dim=1) / positives
    return mean.masked_fill((positives == 0) | (negatives == 0), torch.nan).nanmean()


def _above(out: Tensor, among: Tensor, strictly: bool = False) -> Tensor:
    """How many of a row of `among` are at least as high as each of the row of `out`."""
    ordered = among.contiguous().sort(dim=1).values
    return out.size(1) - torch.searchsorted(ordered, out.contiguous(), right=strictly)


def learning_rate(run: GraphRun, epoch: int) -> float:
    """As GraphGym's ``cosine_with_warmup``, one step an epoch."""
    if epoch < run.warmup:
        return run.lr * max(1e-6, epoch / run.warmup)
    progress = (epoch - run.warmup) / max(1, run.epochs - run.warmup)
    return run.min_lr + (run.lr - run.min_lr) * 0.5 * (1 + math.cos(math.pi * progress))


def build(run: GraphRun, graphs: Molecules) -> GraphNetwork:
    """The network of a run, as its seed starts it."""
    torch.manual_seed(run.seed)
    features = graphs.nodes, graphs.edges, graphs.outputs
    return GraphNetwork(run.network, *features, run.activation, **run.activation_options)


class Training:
    """One run. Its state after an epoch can be saved, and training goes on from there."""

    def __init__(self, run: GraphRun, graphs: Molecules, data: DeviceGraphs) -> None:
        self.run, self.graphs, self.data = run, graphs, data
        device = data.counts.device
        self.parts = graphs.parts(run.seed)
        self.targets = Targets(graphs, self.parts[0], device)
        self.model = build(run, graphs).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=run.lr,
            weight_decay=run.weight_decay,
            fused=device.type == "cuda",
        )
        self.device = device
        self.epoch = 0
        self.seconds = 0.0
        self.curves: dict[str, list[float]] = {"train_loss": [], "val": [], "test": []}
        self.evaluated = [data.batches(part, EVALUATION_BATCH) for part in self.parts[1:]]
        torch.manual_seed(run.seed)  # dropout, whatever was drawn at the start

    def train_epoch(self) -> Tensor:
        """The mean loss of the steps."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.run, self.epoch)
        train = self.parts[0]
        generator = torch.Generator().manual_seed(2**20 * self.run.seed + self.epoch)
        order = train[torch.randperm(len(train), generator=generator)]
        losses = []
        for index, sizes in self.data.batches(order, self.run.batch_size):
            self.optimizer.zero_grad()
            out = self.model(self.data.gather(index, sizes))
            loss = self.targets.loss(out, index)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    @torch.no_grad()
    def evaluate(self) -> list[Tensor]:
        """The validation and the test score."""
        self.model.eval()
        scores = []
        for batches in self.evaluated:
            out = torch.cat([self.model(self.data.gather(*batch)) for batch in batches])
            index = torch.cat([index for index, _ in batches])
            scores.append(self.targets.score(self.run.metric, out, index))
        return scores

    def train(self, until: float = math.inf) -> bool:
        """All epochs, or those begun before this time; whether all are done."""
        while self.epoch < self.run.epochs:
            start = time.perf_counter()
            loss = self.train_epoch()
            values = [float(value) for value in (loss, *self.evaluate())]
            for curve, value in zip(self.curves.values(), values, strict=True):
                curve.append(value)
            self.epoch += 1
            self.seconds += time.perf_counter() - start
            if time.time() > until:
                break
        return self.epoch == self.run.epochs

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {name: getattr(self, name) for name in ("epoch", "seconds", "curves")}
        state |= {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        cuda = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        torch.save(state | {"random": [torch.get_rng_state(), *cuda]}, path)

    def resume(self, path: Path) -> None:
        state = torch.load(path, weights_only=True, map_location="cpu")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("epoch", "seconds", "curves"):
            setattr(self, name, state[name])
        cpu, *cuda = state["random"]
        torch.set_rng_state(cpu)
        if cuda and self.device.type == "cuda":
            torch.cuda.set_rng_state(cuda[0], self.device)

    def result(self) -> dict[str, Any]:
        """Plain JSON: the scores of the epoch that is best on the validation graphs, and the
        curves."""
        val = torch.tensor(self.curves["val"], dtype=torch.double)
        value = -val if self.run.metric in ERRORS else val
        best = int(value.nan_to_num(-torch.inf).argmax())
        steps = self.run.epochs * math.ceil(len(self.parts[0]) / self.run.batch_size)
        is_gpu = self.device.type == "cuda"
        return {
            "run": self.run.to_dict(),
            "score": self.curves["test"][best],
            "val_score": self.curves["val"][best],
            "best_epoch": best,
            "parameters": count_parameters(self.model),
            "seconds": round(self.seconds, 2),
            "steps": steps,
            "peak_memory": torch.cuda.max_memory_allocated(self.device) if is_gpu else None,
            "curves": {name: _rounded(curve) for name, curve in self.curves.items()},
            **surroundings(self.device),
        }


def _rounded(curve: Sequence[float]) -> list[float | None]:
    """What is not finite becomes null."""
    return [round(value, DIGITS) if math.isfinite(value) else None for value in curve]
