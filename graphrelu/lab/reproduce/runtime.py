"""Seconds for 200 epochs: every backbone and activation, seeds one at a time and batched."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import Progress, choose_device, prepare_inputs, scaled_features
from graphrelu.lab.engine.timing import seconds
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.entries import Entries, Entry, origin
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, recipe
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.findings import Finding, Observation
from graphrelu.lab.render.tables import in_order, label
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPOCHS = 200
MODES = {"one": 1, "batched": 10}  # mode -> seeds
IDENTITY = ("dataset", "backbone", "activation", "device", "mode", "seeds", "epochs")
FIELDS: dict[str, kinds.Kind] = {
    "dataset": kinds.text,
    "backbone": kinds.one_of(BACKBONES),
    "activation": kinds.one_of(ACTIVATIONS),
    "mode": kinds.one_of(MODES),
    **dict.fromkeys(("seeds", "epochs", "epochs_timed"), kinds.whole),
    "seconds": kinds.positive,
    "repeats": kinds.listed(kinds.positive),
    **kinds.SURROUNDINGS,
}

# The seconds of a repetition. If all epochs would take longer, fewer epochs are timed and the time
# is scaled up: each epoch does the same work.
BUDGET = {"cpu": 2.0, "cuda": 0.5}
QUICK_BUDGET = 0.6
FEWEST_EPOCHS = 3
WARM_UP = 2  # epochs

Epochs = Callable[[int], None]  # trains that number of epochs


def record_of(path: Path) -> Entries:
    return Entries(path, "timed", IDENTITY, FIELDS)


def collect(request: Request) -> str:
    """Time what the record lacks; the activations of a backbone take turns."""
    request.stays_here()
    deadline = request.deadline
    device = choose_device(request.device)
    record = record_of(output.check_record(request.out))
    (dataset,) = request.datasets("citeseer")
    graph = data.load(dataset, request.root)
    budget = QUICK_BUDGET if request.quick else BUDGET[device.type]
    here = {"dataset": graph.name, "device": device_name(device), "epochs": EPOCHS}
    done = {record.key(entry) for entry in record.read()}
    total, finished = len(MODES) * len(BACKBONES) * len(ACTIVATIONS), 0
    for (mode, seeds), backbone in product(MODES.items(), BACKBONES):
        cells = {
            name: here | {"backbone": backbone, "activation": name, "mode": mode, "seeds": seeds}
            for name in ACTIVATIONS
        }
        configs = {
            name: recipe(graph.name, graph.family, backbone, name, epochs=EPOCHS, patience=0)
            for name, entry in cells.items()
            if record.key(entry) not in done
        }
        finished += len(cells) - len(configs)
        if not configs or time.monotonic() > deadline:
            continue
        first = next(iter(configs.values()))
        if request.progress is not None:
            request.progress(Progress(first, tuple(range(seeds)), 0, finished, total, 1))
        training = (alone if mode == "one" else batched)(first, graph, seeds, device)
        trainings = {name: training(config) for name, config in configs.items()}
        epochs, times = in_turns(trainings, request.runs, budget, device)
        scale = EPOCHS / epochs / seeds
        for name in configs:
            measured = {
                "seconds": scale * statistics.median(times[name]),
                "repeats": [scale * value for value in times[name]],
                "epochs_timed": epochs,
            }
            cells[name] |= measured | surroundings(device)
        record.append(cells[name] for name in configs)
        finished += len(configs)
    return standing(finished, total, request.out, "timings")


def alone(
    config: Config, graph: Graph, seeds: int, device: torch.device
) -> Callable[[Config], Epochs]:
    """A plain PyG loop: each epoch is a step of Adam and a pass in evaluation."""
    x = scaled_features(config, graph).to_dense().to(device)
    edge_index = graph.edge_index.to(device)
    weight = None if graph.edge_weight is None else graph.edge_weight.to(device)
    split, y = make_split(graph, 0), graph.y.to(device)
    train, val = split.train.to(device), split.val.to(device)

    def training(config: Config) -> Epochs:
        model = build(config, graph, 0).to(device)
        adam = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)

        def run(epochs: int) -> None:
            for _ in range(epochs):
                model.train()
                adam.zero_grad()
                F.cross_entropy(model(x, edge_index, weight)[train], y[train]).backward()
                adam.step()
                model.eval()
                with torch.no_grad():
                    float(F.cross_entropy(model(x, edge_index, weight)[val], y[val]))

        return run

    return training


def batched(
    config: Config, graph: Graph, seeds: int, device: torch.device
) -> Callable[[Config], Epochs]:
    """All seeds at once, as the laboratory trains them; the inputs are prepared before."""
    inputs = prepare_inputs(config, graph, device)

    def training(config: Config) -> Epochs:
        batch = SeedBatch(config, graph, inputs, range(seeds), device)
        advance = batch.stepper()

        def run(epochs: int) -> None:
            batch.restart()
            for _ in range(epochs):
                advance()

        return run

    return training


def in_turns(
    trainings: Mapping[str, Epochs], repeats: int, budget: float, device: torch.device
) -> tuple[int, dict[str, list[float]]]:
    """The number of epochs timed, and the seconds of each repetition of every training.

    The trainings take turns, so that a machine that becomes slower favours none of them.
    """
    pace = 0.0
    for run in trainings.values():
        run(WARM_UP)  # first calls prepare, allocate and choose kernels
        pace = max(pace, seconds(partial(run, WARM_UP), device) / WARM_UP)
    epochs = max(FEWEST_EPOCHS, min(EPOCHS, int(budget / pace)))
    times: dict[str, list[float]] = {name: [] for name in trainings}
    for _ in range(repeats):
        for name, run in trainings.items():
            times[name].append(seconds(partial(run, epochs), device))
    return epochs, times


NOTES = f"""\
Seconds of {EPOCHS} epochs of one seed, the median of the repetitions; in brackets relative to ReLU.
The activations of a backbone take turns. Every epoch is a step of Adam on the whole graph and a
pass in evaluation, without early stopping. Loading, first calls and, in batches on a GPU, the
capture of the epoch are not counted. *One at a time* is a plain PyG loop on `edge_index` with dense
features. *Batched* is the laboratory's training of many seeds at once, its time divided by the
number of seeds. Where all epochs of a repetition would take too long, some of them are timed and
the time is scaled up; `epochs_timed` in the CSV says how many. The paper prints a figure of these
times without numbers, and says that GReLU is faster than Maxout and slightly slower than the
others.
"""


@dataclass(frozen=True)
class Row:
    """One timing; ``relative`` is its time divided by that of ReLU."""

    dataset: str
    device: str
    mode: str
    seeds: int
    backbone: str
    activation: str
    seconds: float
    fastest: float
    slowest: float
    repeats: int
    epochs_timed: int
    relative: float | None

    @property
    def panel(self) -> tuple[str, str, str, int]:
        """Timings that are shown together."""
        return self.dataset, self.device, self.mode, self.seeds


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """The timings, panel by panel, in the order of the paper's tables."""
    cell = ("dataset", "device", "mode", "seeds", "backbone")
    relu = {
        tuple(entry[name] for name in cell): entry["seconds"]
        for entry in entries
        if entry["activation"] == "relu"
    }
    rows = []
    for entry in entries:
        base = relu.get(tuple(entry[name] for name in cell))
        repeats = entry["repeats"]
        rows.append(
            Row(
                **{name: entry[name] for name in (*cell, "activation", "seconds", "epochs_timed")},
                fastest=min(repeats),
                slowest=max(repeats),
                repeats=len(repeats),
                relative=None if base is None else entry["seconds"] / base,
            )
        )
    position = in_order(*MODES, *BACKBONES, *ACTIVATIONS)
    return sorted(
        rows,
        key=lambda row: (
            *(row.dataset, row.device, position([row.mode]), row.seeds),
            position((row.backbone, row.activation)),
        ),
    )


def title(panel: tuple[str, str, str, int]) -> str:
    """Dataset, device and mode of a panel."""
    dataset, device, mode, seeds = panel
    how = "one at a time" if mode == "one" else f"batched, {seeds} seeds"
    return f"{label(dataset)}, {device}, {how}"


def observations(rows: Sequence[Row]) -> list[Observation]:
    """The paper's claim, held against the timings of each graph, device and mode."""
    claim, paper = "GReLU is slower than ReLU but faster than Maxout", "no numbers"
    modes = {"one": "one run at a time", "batched": "many runs at once"}
    found = []
    ordered = sorted(rows, key=lambda row: row.panel[:3])
    for (dataset, device, mode), part in groupby(ordered, key=lambda row: row.panel[:3]):
        if whole := _whole(part):
            slower = [_faster(own["relu"], own["grelu"]) for own in whole]
            faster = [_faster(own["grelu"], own["maxout"]) for own in whole]
            both = (*slower, *faster)
            outcome: Finding = "undecided" if "undecided" in both else "holds"
            ours = (
                f"{_span(whole, 'relu')} times ReLU's time, slower with {slower.count('holds')} of "
                f"{len(whole)} backbones; {_span(whole, 'maxout')} times Maxout's, faster with "
                f"{faster.count('holds')}"
            )
            found.append(
                Observation(
                    f"{claim} ({label(dataset)}, {device}, {modes[mode]})",
                    paper,
                    "does not hold" if "does not hold" in both else outcome,
                    ours,
                )
            )
    return found or [Observation(claim, paper, "not measured yet", "")]


def _whole(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """The timings of each backbone that has all activations of the claim."""
    backbones: dict[str, dict[str, Row]] = {}
    for row in rows:
        backbones.setdefault(row.backbone, {})[row.activation] = row
    return [own for own in backbones.values() if own.keys() >= {"relu", "grelu", "maxout"}]


def _ratios(whole: Sequence[dict[str, Row]], rival: str) -> list[float]:
    return [own["grelu"].seconds / own[rival].seconds for own in whole]


def _span(whole: Sequence[dict[str, Row]], rival: str) -> str:
    ratios = _ratios(whole, rival)
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return low if low == high else f"{low} to {high}"


def _faster(first: Row, second: Row) -> Finding:
    """One timing is faster than another if its slowest repetition beats the other's fastest."""
    if first.slowest < second.fastest:
        return "holds"
    return "does not hold" if first.fastest > second.slowest else "undecided"


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of all timings on record."""
    entries = record_of(record).required()
    rows = rows_of(entries)
    parts = ["# Runtime\n", origin(entries, record.name, "timing") + "\n", NOTES]
    head = ("backbone", *map(label, ACTIVATIONS))
    for panel, group in groupby(rows, key=lambda row: row.panel):
        members = list(group)
        lines = []
        for backbone, cells in groupby(members, key=lambda row: row.backbone):
            shown = {row.activation: _cell(row) for row in cells}
            lines.append((label(backbone), *(shown.get(name, "") for name in ACTIVATIONS)))
        parts.append(f"## {title(panel)}\n\n{export.table(head, lines, numbers=1)}")
        parts.append(_in_short(_whole(members)))
    return figures.write(record, parts, rows, Row, lambda: draw(rows))


def _cell(row: Row) -> str:
    return f"{row.seconds:.3g}" + ("" if row.relative is None else f" ({row.relative:.2f})")


def _in_short(whole: Sequence[dict[str, Row]]) -> str:
    if not whole:
        return ""
    ratios = _ratios(whole, "relu")
    return (
        f"GReLU takes {statistics.median(ratios):.2f} times as long as ReLU in the median of the "
        f"backbones ({min(ratios):.2f} to {max(ratios):.2f}), and less time than Maxout with "
        f"{sum(ratio < 1 for ratio in _ratios(whole, 'maxout'))} of {len(whole)} backbones.\n"
    )


def draw(rows: Sequence[Row]) -> Figure:
    """Bars of seconds, and relative to ReLU, one line of panels for each device and mode."""
    import matplotlib.pyplot as plt

    panels = {key: list(group) for key, group in groupby(rows, key=lambda row: row.panel)}
    figure, axes = plt.subplots(len(panels), 2, figsize=(11, 2.9 * len(panels)), squeeze=False)
    for line, (panel, members) in zip(axes, panels.items(), strict=True):
        _bars(line[0], members, "seconds")
        _bars(line[1], members, "relative")
        what = f"seconds for {EPOCHS} epochs of a seed"
        line[0].set(yscale="log", ylabel=what, title=title(panel))
        line[1].set(ylabel="time relative to ReLU", title="relative to ReLU")
        line[1].axhline(1, color="black", linewidth=0.8)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ACTIVATIONS)
    )
    return figure


def _bars(axis: Any, rows: Sequence[Row], field: str) -> None:
    width = 0.8 / len(ACTIVATIONS)
    for place, (name, style) in enumerate(
        zip(ACTIVATIONS, figures.bar_styles(), strict=False), start=-len(ACTIVATIONS) // 2
    ):
        found = [row for row in rows if row.activation == name and getattr(row, field) is not None]
        axis.bar(
            [BACKBONES.index(row.backbone) + (place + 0.5) * width for row in found],
            [getattr(row, field) for row in found],
            width,
            label=label(name),
            **style,
        )
    axis.set_xticks(range(len(BACKBONES)), [label(name) for name in BACKBONES])


EXPERIMENT = Experiment(runs=3, quick_runs=1, collect=collect, render=render)
