"""Seconds for 200 epochs: every backbone and activation, seeds one at a time and batched."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import Progress, choose_device, prepare_inputs, scaled_features
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.entries import Entries
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, recipe
from graphrelu.lab.reproduce.experiment import Experiment, Request, standing
from graphrelu.lab.reproduce.timing import seconds

EPOCHS = 200
MODES = {"one": 1, "batched": 10}  # and how many seeds
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

# Where the epochs of a repetition would take longer than so many seconds, some of them are timed,
# and the time is scaled up: each does the same work.
BUDGET = {"cpu": 2.0, "cuda": 0.5}
QUICK_BUDGET = 0.6
FEWEST_EPOCHS = 3
WARM_UP = 2  # epochs

Epochs = Callable[[int], None]  # runs so many epochs


def record_of(path: Path) -> Entries:
    return Entries(path, "timed", IDENTITY, FIELDS)


def collect(request: Request) -> str:
    """Times what the record lacks, the activations of a backbone in turns."""
    request.stays_here()
    deadline = request.deadline()
    device = choose_device(request.device)
    record = record_of(output.check_record(request.out))
    (dataset,) = request.datasets("citeseer")
    graph = data.load(dataset, request.root)
    budget = QUICK_BUDGET if request.quick else BUDGET[device.type]
    here = {"dataset": graph.name, "device": device_name(device), "epochs": EPOCHS}
    done = {record.key(entry) for entry in record.read()}
    total, finished = len(MODES) * len(BACKBONES) * len(ACTIVATIONS), 0
    for mode, seeds in MODES.items():
        for backbone in BACKBONES:
            cells = {
                name: here
                | {"backbone": backbone, "activation": name, "mode": mode, "seeds": seeds}
                for name in ACTIVATIONS
            }
            missing = [name for name, cell in cells.items() if record.key(cell) not in done]
            finished += len(cells) - len(missing)
            if not missing or time.monotonic() > deadline:
                continue
            configs = {
                name: recipe(graph.name, graph.family, backbone, name, epochs=EPOCHS, patience=0)
                for name in missing
            }
            if request.progress is not None:
                config = configs[missing[0]]
                request.progress(Progress(config, tuple(range(seeds)), 0, finished, total, 1))
            trainings = (alone if mode == "one" else batched)(configs, graph, seeds, device)
            epochs, times = in_turns(trainings, request.runs, budget, device)
            scale = EPOCHS / epochs / seeds
            record.append(
                cells[name]
                | {
                    "seconds": scale * statistics.median(times[name]),
                    "repeats": [scale * value for value in times[name]],
                    "epochs_timed": epochs,
                }
                | surroundings(device)
                for name in missing
            )
            finished += len(missing)
    return standing(finished, total, request.out, "timings")


def alone(
    configs: Mapping[str, Config], graph: Graph, seeds: int, device: torch.device
) -> dict[str, Epochs]:
    """A plain PyG loop: each epoch is a step of Adam and a look at the validation nodes."""
    config = next(iter(configs.values()))
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

    return {name: training(config) for name, config in configs.items()}


def batched(
    configs: Mapping[str, Config], graph: Graph, seeds: int, device: torch.device
) -> dict[str, Epochs]:
    """All seeds at once, as the laboratory trains them; what an epoch needs is prepared before."""
    inputs = prepare_inputs(next(iter(configs.values())), graph, device)

    def training(config: Config) -> Epochs:
        batch = SeedBatch(config, graph, inputs, range(seeds), device)
        advance = batch.stepper()

        def run(epochs: int) -> None:
            batch.restart()
            for _ in range(epochs):
                advance()

        return run

    return {name: training(config) for name, config in configs.items()}


def in_turns(
    trainings: Mapping[str, Epochs], repeats: int, budget: float, device: torch.device
) -> tuple[int, dict[str, list[float]]]:
    """How many epochs were timed, and the seconds of each repetition of every training.

    They take turns, so that a machine that becomes slower favours none of them.
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


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of all timings on record."""
    from graphrelu.lab.reproduce.runtime_page import write

    return write(record_of(record).required(), record)


EXPERIMENT = Experiment(runs=3, quick_runs=1, collect=collect, render=render)
