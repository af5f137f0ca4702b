"""Activations compared in the user's own model: ``from graphrelu.lab import compare``."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from html import escape
from inspect import signature
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch_geometric import seed_everything
from torch_geometric.data import Data, Dataset
from torch_geometric.data.data import BaseData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import InnerProductDecoder
from torch_geometric.nn.inits import reset
from torch_geometric.transforms import RandomNodeSplit
from torch_geometric.utils import negative_sampling
from tqdm.auto import tqdm

from graphrelu.checks import check_count
from graphrelu.context import graph_context
from graphrelu.conversion import call_with, convert, read_graph
from graphrelu.lab.engine import choose_device
from graphrelu.lab.errors import check_name
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.render import (
    CompareRow,
    Price,
    compare_cells,
    frame,
    label,
    percent,
    verdict,
)
from graphrelu.lab.stats import MARGIN, Splits, check_margin, over_relu

if TYPE_CHECKING:
    import pandas as pd

Build: TypeAlias = Callable[[Callable[[int], Module]], Module]
Train: TypeAlias = Callable[[Module, Iterable[Any], torch.optim.Optimizer], float]
Evaluate: TypeAlias = Callable[[Module, Iterable[Any]], float]
Example: TypeAlias = Callable[[Module], float]

COMPARED = ("relu", "prelu", "gelu", "grelu")
PARTS = ("train", "val", "test")
GRAPHS_AT_ONCE = 32


@dataclass(frozen=True, repr=False)
class ModelComparison:
    """What :func:`compare` found: scores in percent, and differences paired by seed.

    ``baseline`` is ReLU or, in the comparison of a model with its conversion, the model as it is.
    """

    rows: list[CompareRow]
    baseline: str = "ReLU"

    @property
    def verdict(self) -> str:
        """What can be said about GReLU, and what to do next."""
        found = verdict(self.rows, self.baseline)
        if found.runs is None:
            return found.sentence
        look = next(row.over_relu.look for row in self.rows if row.over_relu)
        return f"{found.sentence} Continue with runs={found.runs}, look={(look or 0) + 1}."

    @property
    def table(self) -> pd.DataFrame:
        """All numbers, a row for each activation."""
        return frame(map(vars, self.rows)).set_index("activation")

    @property
    def shown(self) -> pd.DataFrame:
        """The table as the command line shows it."""
        import pandas as pd

        cells = pd.DataFrame(compare_cells(self.rows)).set_index("activation")
        difference = {"difference to ReLU": f"difference to {self.baseline}"}
        return cells.rename(index={"ReLU": self.baseline}, columns=difference)

    def __repr__(self) -> str:
        return f"{self.shown.to_string()}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        return f"{self.shown.to_html()}\n<p>{escape(self.verdict)}</p>\n"


def compare(
    model: Module | Build,
    data: Any,
    activations: Sequence[str] | None = None,
    runs: int = 10,
    *,
    train: Train | None = None,
    evaluate: Evaluate | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    device: str = "auto",
    margin: float = MARGIN,
    look: int = 1,
) -> ModelComparison:
    """Compares activations in your own model.

    Every activation gets the same seeds, batches, settings and initial weights. The epoch with the
    best validation score gives the test score; the test part is looked at once, after training.

    Args:
        model (callable or torch.nn.Module): A function ``build(act)`` that returns a model, or a
            class with the argument ``act``, where ``act(channels)`` makes an activation, to be
            called with ``x, edge_index``. Or a model: it is compared, with new weights for each
            seed, with its conversion by :func:`graphrelu.convert`.
        data (Data or Dataset or iterable or tuple or callable): A graph with ``train_mask``,
            ``val_mask`` and ``test_mask`` (of several columns, each seed takes one; without masks,
            each seed draws 60 / 20 / 20 % of the nodes); an iterable of batches with such masks; a
            list of graphs, which each seed splits into 80 / 10 / 10 %; a
            tuple of three parts, each a graph or an iterable of batches, such as three loaders or
            what :class:`~torch_geometric.transforms.RandomLinkSplit` gives; or a function of the
            seed that returns one of these.
        activations (list of str, optional): Names of ``graphrelu.lab.models.activations``; none
            with a model. (default: ReLU, PReLU, GELU and GReLU)
        runs (int, optional): The number of seeds. (default: :obj:`10`)
        train (callable, optional): ``train(model, batches, optimizer)`` trains for an epoch and
            returns the loss. If a batch has masks, its ``part_mask`` is that of the part.
            (default: cross-entropy for classes, squared error for values, and for links the
            cross-entropy of ``model.decode(z, edge_label_index)`` or else of inner products)
        evaluate (callable, optional): ``evaluate(model, batches)`` returns a score, the
            higher the better; tables show it times 100. (default: accuracy for classes, R² for
            values, area under the ROC curve for links)
        epochs (int, optional): The number of epochs. (default: :obj:`200`)
        lr, weight_decay (float, optional): Of Adam. (default: :obj:`0.01` and :obj:`0.0`)
        device (str, optional): ``auto``, ``cpu`` or ``cuda``. (default: :obj:`"auto"`)
        margin (float, optional): The largest difference, in percentage points, that does not
            matter. (default: :obj:`0.5`)
        look (int, optional): How often this comparison has been looked at, including this time;
            later looks, after more runs, have to meet a stricter level. (default: :obj:`1`)
    """
    names = _names(model, activations)
    check_margin(margin)
    for option, number in {"look": look, "runs": runs, "epochs": epochs}.items():
        check_count(option, number)
    where, start = choose_device(device), _converted if isinstance(model, Module) else _built
    train, evaluate = train or _train, evaluate or _evaluate
    found: dict[str, list[_Run]] = {name: [] for name in names}
    splits = Splits()
    bar = tqdm(total=runs * len(names), unit="run", leave=False, disable=None)  # in a terminal
    for seed in range(runs):
        seed_everything(seed)
        sources, count = _sources(data, seed)
        if seed == 0:
            splits = _splits(sources, count)
        parts = _parts(sources, seed, where)

        @torch.no_grad()
        def example(own: Module, val: Iterable[Any] = parts[1]) -> float:
            return evaluate(own, val)

        for name in names:
            bar.set_description(f"{label(name)}, seed {seed}")
            own = start(model, name, seed, where, example)
            optimizer = torch.optim.Adam(own.parameters(), lr=lr, weight_decay=weight_decay)
            seed_everything(seed)  # for dropout and the order of the batches
            run = _run(own, parts, optimizer, train, evaluate, epochs)
            if not math.isfinite(run.score):
                raise ValueError(
                    f"evaluate must return a finite score, got {run.score} for {name} with seed "
                    f"{seed} after a loss of {run.loss}."
                )
            found[name].append(run)
            bar.update()
    bar.close()
    scores = {name: dict(enumerate(run.score for run in own)) for name, own in found.items()}
    leads = over_relu(scores, splits, margin, (look, look))
    rows = []
    for name, own_runs in found.items():
        seconds = median(run.seconds for run in own_runs) / epochs
        price = Price(seconds_per_epoch=seconds, parameters=own_runs[0].parameters)
        diverged = sum(not math.isfinite(run.loss) for run in own_runs)
        rows.append(CompareRow(name, *percent(scores[name]), leads.get(name), price, diverged))
    return ModelComparison(rows, "your model" if isinstance(model, Module) else "ReLU")


def _names(model: Any, activations: Any) -> list[str]:
    """The activations to compare, with ReLU in place of a model as it is."""
    if isinstance(model, Module):
        if activations is not None:
            raise ValueError("activations must be left out with a model, which is converted.")
        return ["relu", "grelu"]
    if not callable(model):
        raise TypeError(f"model must be a module or a function, got {type(model).__name__}.")
    if isinstance(model, type) and "act" not in signature(model).parameters:
        raise TypeError(
            f"model must take an argument act, which makes its activations, unlike the class "
            f"{model.__name__}{signature(model)}."
        )
    wanted = COMPARED if activations is None else activations
    if isinstance(wanted, str) or not wanted or not all(isinstance(n, str) for n in wanted):
        raise TypeError(f"activations must be a list of names, got {activations!r}.")
    return list(dict.fromkeys(check_name("activation", n, list(ACTIVATIONS)) for n in wanted))


@dataclass(frozen=True)
class _Batches:
    """The batches of one part on the device, each with the mask of its part."""

    source: Iterable[Any]
    part: str
    seed: int
    device: torch.device

    def __iter__(self) -> Iterator[Any]:
        for batch in self.source:
            if isinstance(batch, BaseData):
                batch = copy.copy(batch)  # as `to` changes the object itself
            if isinstance(batch, Data) and f"{self.part}_mask" in batch:
                mask = batch[f"{self.part}_mask"]
                batch.part_mask = mask if mask.dim() == 1 else mask[:, self.seed % mask.size(1)]
            yield batch.to(self.device) if hasattr(batch, "to") else batch


def _sources(data: Any, seed: int) -> tuple[Sequence[Any], int | None]:
    """The three parts of a seed, as they are given, by masks or drawn; and the number of different
    splits, ``None`` where each seed has its own."""
    if callable(data) and not hasattr(data, "__iter__"):  # a Data can be called as well
        return _sources(data(seed), seed)[0], None
    if isinstance(data, tuple):
        if len(data) != len(PARTS):
            raise ValueError(f"data must have three parts if it is a tuple, got {len(data)}.")
        return data, 1
    if isinstance(data, Data) and not any(f"{part}_mask" in data for part in PARTS):
        has_labels = isinstance(data.y, Tensor) and len(data.y) == data.num_nodes
        if has_labels and "edge_label" not in data:
            return (RandomNodeSplit(num_val=0.2, num_test=0.2)(data),) * 3, None
    several = [data] if isinstance(data, BaseData) else data
    is_set = isinstance(several, (list, Dataset))
    first = next(iter(several), None) if is_set or isinstance(several, Iterable) else None
    if isinstance(first, Data) and all(f"{part}_mask" in first for part in PARTS):
        masks = first.train_mask
        return (several,) * 3, masks.size(1) if masks.dim() == 2 else 1
    if not is_set or len(several) < 3:
        raise ValueError(
            "data must be a graph or batches with train_mask, val_mask and test_mask, three graphs "
            f"or more, or a tuple of three parts, got {type(data).__name__}."
        )
    order, tenth = torch.randperm(len(several)).tolist(), max(1, len(several) // 10)
    drawn = order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]
    return [
        DataLoader([several[i] for i in own], GRAPHS_AT_ONCE, shuffle=part == "train")
        for part, own in zip(PARTS, drawn, strict=True)
    ], None


def _splits(sources: Sequence[Any], count: int | None) -> Splits:
    """What the splits of the seeds share, as far as the parts of one of them tell."""
    sizes = [_size(source, part) for source, part in zip(sources, PARTS, strict=True)]
    if not all(sizes):
        return Splits(count=count)
    train, _, test = sizes
    return Splits(train / sum(sizes), test / train, test, count)


def _size(source: Any, part: str) -> int:
    """The number of nodes, links or graphs of a part; 0 where it is not known."""
    if isinstance(source, Data) and f"{part}_mask" in source:
        mask = source[f"{part}_mask"]
        return int((mask if mask.dim() == 1 else mask[:, 0]).sum())
    if isinstance(source, BaseData):
        return len(source.edge_label) if "edge_label" in source else 1
    if isinstance(source, (list, Dataset)):
        return sum(_size(one, part) for one in source)
    return len(source.dataset) if hasattr(getattr(source, "dataset", None), "__len__") else 0


def _parts(sources: Sequence[Any], seed: int, device: torch.device) -> list[Iterable[Any]]:
    """What a seed trains, validates and tests on."""
    found: list[Iterable[Any]] = []
    for part, source in zip(PARTS, sources, strict=True):
        several = [source] if isinstance(source, BaseData) else source
        if not hasattr(several, "__iter__") or iter(several) is several:
            raise TypeError(
                "data must be graphs, or batches that can be iterated over in every epoch, got "
                f"{type(several).__name__}."
            )
        batches = _Batches(several, part, seed, device)
        # What is in memory goes to the device once: otherwise GReLU could not recognise its graph.
        found.append(list(batches) if isinstance(several, (list, Dataset)) else batches)
    return found


def _built(build: Any, name: str, seed: int, device: torch.device, example: Example) -> Module:
    """The model with an activation. All but the activation's own weights are copied from the model
    with ReLU: whatever an activation draws for itself, the runs of a seed start alike."""

    def make(kind: type[Module]) -> Module:
        seed_everything(seed)
        model = build(act=kind) if isinstance(build, type) else build(kind)
        if not isinstance(model, Module):
            raise TypeError(f"model must return a torch.nn.Module, got {type(model).__name__}.")
        if not any(isinstance(module, kind) for module in model.modules()):
            raise ValueError("model must make its activations with act, got one without any.")
        if any(map(is_lazy, model.to(device).parameters())):
            example(model.eval())
        return model

    model, kind = make(ACTIVATIONS[name]), ACTIVATIONS[name]
    state = make(ACTIVATIONS["relu"]).state_dict()
    modules = model.named_modules(remove_duplicate=False)
    inside = tuple(f"{path}." for path, module in modules if isinstance(module, kind))
    own = {k: value.shape for k, value in model.state_dict().items() if not k.startswith(inside)}
    if own != {key: value.shape for key, value in state.items()}:
        raise ValueError(f"model must build the same layers for every activation, unlike {name}.")
    model.load_state_dict(state, strict=False)
    return model


def _converted(model: Any, name: str, seed: int, device: torch.device, example: Example) -> Module:
    """The model with new weights or, with the same ones, its conversion."""
    _check_reset(model)
    own = copy.deepcopy(model)
    seed_everything(seed)
    reset(own)
    if any(map(is_lazy, own.to(device).parameters())):  # their first input decides their shape
        example(own.eval())
    return own if name == "relu" else convert(own, example=example)


def _check_reset(module: Module) -> None:
    """Whether :func:`reset` reaches all parameters of a module."""
    if hasattr(module, "reset_parameters"):
        return
    if next(module.parameters(recurse=False), None) is not None:
        raise ValueError(
            f"model must have reset_parameters for new weights, got a {type(module).__name__} "
            "without it; a function that builds the model needs none."
        )
    for child in module.children():
        _check_reset(child)


class _Run(NamedTuple):
    score: float
    loss: float  # of the last epoch
    seconds: float
    parameters: int


def _run(
    model: Module,
    parts: Sequence[Iterable[Any]],
    optimizer: torch.optim.Optimizer,
    train: Train,
    evaluate: Evaluate,
    epochs: int,
) -> _Run:
    """Training, and the test score at the epoch of the best validation score."""
    to_train, val, test = parts
    started, best, state = time.perf_counter(), -math.inf, None
    for _ in range(epochs):
        loss = float(train(model.train(), to_train, optimizer))
        with torch.no_grad():
            score = float(evaluate(model.eval(), val))
        if best < score < math.inf:
            best, state = score, copy.deepcopy(model.state_dict())
    if state is not None:
        model.load_state_dict(state)
        with torch.no_grad():
            score = float(evaluate(model.eval(), test))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return _Run(score, loss, time.perf_counter() - started, parameters)


def _train(model: Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer) -> float:
    losses = []
    for batch in batches:
        kind, prediction, target = _predicted(model, batch)
        if len(target) == 0:
            continue
        optimizer.zero_grad()
        loss = TASKS[kind][0](prediction, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if not losses:
        raise ValueError("data must have something to train on, got none.")
    return float(torch.stack(losses).mean())


def _evaluate(model: Module, batches: Iterable[Any]) -> float:
    found = [_predicted(model, batch) for batch in batches]
    if not any(len(target) for _, _, target in found):
        raise ValueError("data must have something to validate and to test on, got none.")
    kinds, predictions, targets = zip(*found, strict=True)
    prediction, target = torch.cat(predictions).cpu(), torch.cat(targets).cpu()
    if kinds[0] == "values" and ((target == 0) | (target == 1)).all():
        raise ValueError("evaluate must be given for labels of 0.0 and 1.0; classes are integers.")
    if not prediction.isfinite().all():
        return math.nan  # after a divergence, which chooses no epoch
    return TASKS[kinds[0]][1](prediction, target)


def _predicted(model: Module, batch: Any) -> tuple[str, Tensor, Tensor]:
    """Classes, values or links, with what the model makes of them and what they are."""
    if not isinstance(batch, Data):
        raise TypeError(
            f"data must hold PyG Data if train or evaluate is left out, got {type(batch).__name__}."
        )
    graph = read_graph({"data": batch})
    # For activations that are called with x alone, as by PyG's models.
    with nullcontext() if graph.edge_index is None else graph_context(*graph[:4]):
        if "edge_label" in batch:
            return "links", *_links(model, batch)
        out = call_with(model, batch)
    if batch.y is None:
        raise ValueError("data must have labels y, or edge_label for links, got neither.")
    # Of a NeighborLoader's nodes the first ones count, the others are their neighbours.
    count = batch.batch_size if "batch_size" in batch else len(batch.y)
    out, y = out[:count], batch.y[:count]
    if len(out) != len(y):
        raise ValueError(
            f"model must return a row for each of the {len(y)} labels, got {len(out)}."
        )
    if "part_mask" in batch:
        mask = batch.part_mask[:count]
        out, y = out[mask], y[mask]
    if not y.is_floating_point():
        if out.dim() != 2 or y.numel() != len(y) or (len(y) and int(y.max()) >= out.size(1)):
            raise ValueError(
                "model must return a column for each class if labels are whole numbers, got "
                f"{tuple(out.shape)} for labels {tuple(y.shape)}."
            )
        return "classes", out, y.view(-1)
    if out.numel() != y.numel():
        raise ValueError(
            f"model must return a number for each label, got {tuple(out.shape)} for labels "
            f"{tuple(y.shape)}."
        )
    return "values", out.view_as(y), y


def _links(model: Any, batch: Data) -> tuple[Tensor, Tensor]:
    """The logits and labels of links; where all are there, as many that are not are drawn."""
    links, label = batch.edge_label_index, (batch.edge_label > 0).float()
    if label.all():
        absent = negative_sampling(batch.edge_index, batch.num_nodes, links.size(1))
        links = torch.cat([links, absent], dim=1)
        label = torch.cat([label, label.new_zeros(absent.size(1))])
    has_encode = hasattr(model, "encode")
    z = model.encode(batch.x, batch.edge_index) if has_encode else call_with(model, batch)
    if isinstance(getattr(model, "decoder", None), InnerProductDecoder):
        return model.decode(z, links, sigmoid=False), label
    if hasattr(model, "decode"):
        return model.decode(z, links).view(-1), label
    return (z[links[0]] * z[links[1]]).sum(dim=1), label


# What is learned -> the loss that trains it, and the score that it is judged by.
TASKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], float]]] = {
    "classes": (F.cross_entropy, lambda out, y: accuracy_score(y, out.argmax(dim=1))),
    "values": (F.mse_loss, lambda out, y: r2_score(y, out)),
    "links": (F.binary_cross_entropy_with_logits, lambda out, y: roc_auc_score(y, out)),
}
