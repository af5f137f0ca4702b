"""Seconds for 200 epochs: every backbone and activation, seeds one at a time and batched."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from graphrelu.lab import data
from graphrelu.lab.cli.options import standing
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
from graphrelu.lab.render.findings import WORST_FIRST, Finding, Observation
from graphrelu.lab.render.tables import in_order, label
from graphrelu.lab.reproduce.table import Request, filled

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
record_of = partial(Entries, event="timed", identity=IDENTITY, fields=FIELDS)  # of a path

# The seconds of a repetition. If all epochs would take longer, fewer epochs are timed and the time
# is scaled up: each epoch does the same work.
BUDGET = {"cpu": 2.0, "cuda": 0.5}
QUICK_BUDGET = 0.6
FEWEST_EPOCHS = 3
WARM_UP = 2  # epochs

Epochs = Callable[[int], None]  # trains that number of epochs


def collect(request: Request) -> str:
    """Measure the missing timings; the activations of a backbone take turns."""
    if request.engine != "local" or request.only or request.prepare is not None:
        raise ValueError("The timings run in this process, and all together.")
    deadline, device = request.deadline, choose_device(request.device)
    record = record_of(output.check_record(request.out))
    graph = data.load("digits" if request.quick else "citeseer", request.root)
    budget = QUICK_BUDGET if request.quick else BUDGET[device.type]
    done = {record.key(entry) for entry in record.read()}
    plan: list[tuple[Entry, dict[str, Config]]] = []
    for (mode, seeds), backbone in product(MODES.items(), BACKBONES):
        here: Entry = {"dataset": graph.name, "device": device_name(device), "epochs": EPOCHS}
        here |= {"backbone": backbone, "mode": mode, "seeds": seeds}
        configs = {
            name: recipe(graph.name, graph.family, backbone, name, epochs=EPOCHS, patience=0)
            for name in ACTIVATIONS
            if record.key(here | {"activation": name}) not in done
        }
        plan.append((here, configs))
    total = len(plan) * len(ACTIVATIONS)
    finished = total - sum(len(configs) for _, configs in plan)
    for here, configs in plan:
        if not configs or time.monotonic() > deadline:
            continue
        seeds = here["seeds"]
        if request.progress is not None:
            first = next(iter(configs.values()))
            request.progress(Progress(first, tuple(range(seeds)), 0, finished, total, 1))
        training = alone if here["mode"] == "one" else batched
        trainings = {name: training(own, graph, seeds, device) for name, own in configs.items()}
        epochs, times = in_turns(trainings, request.runs, budget, device)
        here |= {"epochs_timed": epochs} | surroundings(device)
        entries = []
        for name, own in times.items():
            repeats = [EPOCHS / epochs / seeds * value for value in own]
            timing = {"seconds": statistics.median(repeats), "repeats": repeats}
            entries.append(here | {"activation": name} | timing)
        record.append(entries)
        finished += len(configs)
    return standing(finished, total, request.out, "timings")


def alone(config: Config, graph: Graph, seeds: int, device: torch.device) -> Epochs:
    """A plain PyG loop: each epoch is a step of Adam and a pass in evaluation."""
    x = scaled_features(config, graph).to_dense().to(device)
    edge_index = graph.edge_index.to(device)
    weight = None if graph.edge_weight is None else graph.edge_weight.to(device)
    split, y = make_split(graph, 0), graph.y.to(device)
    train, val = split.train.to(device), split.val.to(device)
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


def batched(config: Config, graph: Graph, seeds: int, device: torch.device) -> Epochs:
    """All seeds at once, as the laboratory trains them; the inputs are prepared before."""
    inputs = prepare_inputs(config, graph, device)
    batch = SeedBatch(config, graph, inputs, range(seeds), device)
    advance = batch.stepper()

    def run(epochs: int) -> None:
        batch.restart()
        for _ in range(epochs):
            advance()

    return run


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


# Timings that are shown together, and what the CSV file has of each.
PANEL = itemgetter("dataset", "device", "mode", "seeds")
COLUMNS = (
    *("dataset", "device", "mode", "seeds", "backbone", "activation", "seconds"),
    *("fastest", "slowest", "repeats", "epochs_timed", "relative"),
)
Panel = dict[str, dict[str, Entry]]  # backbone -> activation -> timing


def rows_of(entries: Sequence[Entry]) -> list[Entry]:
    """The timings, panel by panel, in the order of the paper's tables; ``relative`` is the time
    divided by that of ReLU."""
    relu = {(*PANEL(e), e["backbone"]): e["seconds"] for e in entries if e["activation"] == "relu"}
    rows = []
    for entry in entries:
        repeats, base = entry["repeats"], relu.get((*PANEL(entry), entry["backbone"]))
        row = entry | {"fastest": min(repeats), "slowest": max(repeats), "repeats": len(repeats)}
        rows.append(row | {"relative": entry["seconds"] / base if base else None})
    place = in_order(*MODES, *BACKBONES, *ACTIVATIONS)
    names = itemgetter("backbone", "activation")
    return sorted(
        rows,
        key=lambda r: (r["dataset"], r["device"], place([r["mode"]]), r["seeds"], place(names(r))),
    )


def by_panel(rows: Iterable[Entry]) -> dict[tuple[Any, ...], Panel]:
    """The timings of each dataset, device and mode."""
    panels: dict[tuple[Any, ...], Panel] = {}
    for row in rows:
        panel = panels.setdefault(PANEL(row), {})
        panel.setdefault(row["backbone"], {})[row["activation"]] = row
    return panels


def title_of(dataset: str, device: str, mode: str, seeds: int) -> str:
    how = "one at a time" if mode == "one" else f"batched, {seeds} seeds"
    return f"{label(dataset)}, {device}, {how}"


def observations(rows: Iterable[Entry]) -> list[Observation]:
    """The paper's claim, held against the timings of each graph, device and mode."""
    claim, paper = "GReLU is slower than ReLU but faster than Maxout", "no numbers"
    modes = {"one": "one run at a time", "batched": "many runs at once"}
    found = []
    for (dataset, device, mode, _), panel in sorted(by_panel(rows).items()):
        if whole := _whole(panel):
            slower = [_faster(own["relu"], own["grelu"]) for own in whole]
            faster = [_faster(own["grelu"], own["maxout"]) for own in whole]
            outcome = next(one for one in WORST_FIRST if one in (*slower, *faster))
            relu, maxout = (_ratios(whole, rival) for rival in ("relu", "maxout"))
            ours = (
                f"{_span(relu)} times ReLU's time, slower with {slower.count('holds')} of "
                f"{len(whole)} backbones; {_span(maxout)} times Maxout's, faster with "
                f"{faster.count('holds')}"
            )
            of = f"{claim} ({label(dataset)}, {device}, {modes[mode]})"
            found.append(Observation(of, paper, outcome, ours))
    return found or [Observation(claim, paper, "not measured yet", "")]


def _whole(panel: Panel) -> list[dict[str, Entry]]:
    """The timings of each backbone that has all activations of the claim."""
    return [own for own in panel.values() if own.keys() >= {"relu", "grelu", "maxout"}]


def _ratios(whole: Iterable[dict[str, Entry]], rival: str) -> list[float]:
    return [own["grelu"]["seconds"] / own[rival]["seconds"] for own in whole]


def _span(ratios: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))


def _faster(first: Entry, second: Entry) -> Finding:
    """One timing is faster than another if its slowest repetition beats the other's fastest."""
    if first["slowest"] < second["fastest"]:
        return "holds"
    return "does not hold" if first["fastest"] > second["slowest"] else "undecided"


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of all timings on record."""
    entries = record_of(record).required()
    rows = rows_of(entries)
    parts = []
    head = ("backbone", *map(label, ACTIVATIONS))
    for names, panel in by_panel(rows).items():
        lines = [
            (label(backbone), *(_cell(own.get(name)) for name in ACTIVATIONS))
            for backbone, own in panel.items()
        ]
        parts.append(f"## {title_of(*names)}\n\n{export.table(head, lines, numbers=1)}")
        whole, in_short = _whole(panel), ""
        if whole:
            relu, maxout = (_ratios(whole, rival) for rival in ("relu", "maxout"))
            in_short = (
                f"GReLU takes {statistics.median(relu):.2f} times as long as ReLU in the median of "
                f"the backbones ({min(relu):.2f} to {max(relu):.2f}), and less time than Maxout "
                f"with {sum(ratio < 1 for ratio in maxout)} of {len(whole)} backbones.\n"
            )
        parts.append(in_short)
    told = origin(entries, record.name, "timing")
    page = filled("runtime", origin=told, epochs=EPOCHS, panels="\n".join(parts))
    return figures.write(record, page, rows, COLUMNS, lambda: draw(rows))


def _cell(row: Entry | None) -> str:
    if row is None:
        return ""
    return f"{row['seconds']:.3g}" + (f" ({row['relative']:.2f})" if row["relative"] else "")


def draw(rows: Sequence[Entry]) -> figures.Figure:
    """Bars of seconds, and relative to ReLU, one line of panels for each device and mode."""
    panels, width = by_panel(rows), 0.8 / len(ACTIVATIONS)
    figure, axes = figures.panels(len(panels), 2, figsize=(11, 2.9 * len(panels)))
    for (left, right), (names, panel) in zip(axes, panels.items(), strict=True):
        for axis, field in ((left, "seconds"), (right, "relative")):
            styles = zip(ACTIVATIONS, figures.bar_styles(), strict=False)
            for place, (name, style) in enumerate(styles, start=-len(ACTIVATIONS) // 2):
                found = {
                    BACKBONES.index(backbone) + (place + 0.5) * width: own[name][field]
                    for backbone, own in panel.items()
                    if name in own and own[name][field] is not None
                }
                axis.bar(found.keys(), found.values(), width, label=label(name), **style)
            axis.set_xticks(range(len(BACKBONES)), map(label, BACKBONES))
        title = title_of(*names)
        left.set(yscale="log", ylabel=f"seconds for {EPOCHS} epochs of a seed", title=title)
        right.set(ylabel="time relative to ReLU", title="relative to ReLU")
        right.axhline(1, color="black", linewidth=0.8)
    columns = len(ACTIVATIONS)
    figures.shared_legend(figure, axes[0][:1], loc="outside lower center", ncols=columns)
    return figure


class Timings:
    """What a table of runs has, for timings: the runs are repetitions."""

    runs, quick_runs = 3, 1
    collect, render = staticmethod(collect), staticmethod(render)

    def has_page(self, record: Path) -> bool:
        return True


TABLE = Timings()
