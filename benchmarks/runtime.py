"""Seconds for 200 epochs: every backbone and activation, seeds one at a time and batched.

python benchmarks/runtime.py            # measures what results/runtime.jsonl lacks
python benchmarks/runtime.py --render   # the page, the CSV file and the figure beside it
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import Entry, Timings, origin, seconds

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import features_of, prepare_inputs
from graphrelu.lab.engine.train import SeedBatch, build
from graphrelu.lab.models.propagation import PreparedInputs
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.machine import device_name, surroundings
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, recipe
from graphrelu.lab.render import in_order, label
from graphrelu.lab.reproduce import figures, files

RECORD = Path(__file__).parents[1] / "results" / "runtime.jsonl"
PAGE = """\
# Runtime

{origin}

Seconds of {epochs} epochs of one seed, the median of the repetitions; in brackets relative to ReLU.
The activations of a backbone take turns. Every epoch is a step of Adam on the whole graph and a
pass in evaluation, without early stopping. Loading, first calls and, in batches on a GPU, the
capture of the epoch are not counted. *One at a time* is a plain PyG loop on `edge_index` with dense
features. *Batched* is the laboratory's training of many seeds at once, its time divided by the
number of seeds. Where all epochs of a repetition would take too long, some of them are timed and
the time is scaled up; `epochs_timed` in the CSV says how many. The paper prints a figure of these
times without numbers, and says that GReLU is faster than Maxout and slightly slower than the
others.

{panels}
"""
EPOCHS = 200
MODES = {"one": 1, "batched": 10}  # mode -> seeds
IDENTITY = ("dataset", "backbone", "activation", "device", "mode", "seeds", "epochs")

# The seconds of a repetition. If all epochs would take longer, fewer epochs are timed and the time
# is scaled up: each epoch does the same work.
BUDGET = {"cpu": 2.0, "cuda": 0.5}
FEWEST_EPOCHS = 3
WARM_UP = 2  # epochs
HATCHES = ("", "//", "..", "xx", "\\\\", "oo", "++")  # bars told apart in black and white, too

Epochs = Callable[[int], None]  # trains that number of epochs


def collect(record: Timings, dataset: str, repeats: int, device: torch.device) -> None:
    """Measure the missing timings; the activations of a backbone take turns."""
    graph = data.load(dataset, None)
    done = {record.key(entry) for entry in record.read()}
    for (mode, seeds), backbone in product(MODES.items(), BACKBONES):
        here: Entry = {"dataset": graph.name, "device": device_name(device), "epochs": EPOCHS}
        here |= {"backbone": backbone, "mode": mode, "seeds": seeds}
        make = alone if mode == "one" else batched
        trainings = {}
        for name in ACTIVATIONS:
            if record.key(here | {"activation": name}) not in done:
                settings = {"epochs": EPOCHS, "patience": 0}
                config = recipe(graph.name, backbone, name, **settings)
                trainings[name] = make(config, graph, seeds, device)
        if not trainings:
            continue
        epochs, times = in_turns(trainings, repeats, device)
        here |= {"epochs_timed": epochs} | surroundings(device)
        entries = []
        for name, own in times.items():
            scaled = [EPOCHS / epochs / seeds * value for value in own]
            timing = {"seconds": statistics.median(scaled), "repeats": scaled}
            entries.append(here | {"activation": name} | timing)
        record.append(entries)
        print(mode, backbone, *trainings)


def alone(config: Config, graph: Graph, seeds: int, device: torch.device) -> Epochs:
    """A plain PyG loop: each epoch is a step of Adam and a pass in evaluation."""
    x = features_of(config, graph).to_dense().to(device)
    edge_index = graph.edge_index.to(device)
    weight = None if graph.edge_weight is None else graph.edge_weight.to(device)
    split, y = make_split(graph, 0), graph.y.to(device)
    train, val = split.train.to(device), split.val.to(device)
    model = build(config, graph, 0).to(device)
    inputs = PreparedInputs(x, None, edge_index, weight)
    adam = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)

    def run(epochs: int) -> None:
        for _ in range(epochs):
            model.train()
            adam.zero_grad()
            F.cross_entropy(model(inputs)[train], y[train]).backward()
            adam.step()
            model.eval()
            with torch.no_grad():
                float(F.cross_entropy(model(inputs)[val], y[val]))

    return run


def batched(config: Config, graph: Graph, seeds: int, device: torch.device) -> Epochs:
    """All seeds at once, as the laboratory trains them; the inputs are prepared before."""
    inputs = prepare_inputs(config, graph, device)
    batch = SeedBatch(config, graph, inputs, range(seeds), device)
    advance = batch.stepper()

    def run(epochs: int) -> None:
        batch.step.zero_()  # which the curves have a place for
        for _ in range(epochs):
            advance()

    return run


def in_turns(
    trainings: Mapping[str, Epochs], repeats: int, device: torch.device
) -> tuple[int, dict[str, list[float]]]:
    """The number of epochs timed, and the seconds of each repetition of every training.

    The trainings take turns, so that a machine that becomes slower favours none of them.
    """
    pace = 0.0
    for run in trainings.values():
        run(WARM_UP)  # first calls prepare, allocate and choose kernels
        pace = max(pace, seconds(partial(run, WARM_UP), device) / WARM_UP)
    epochs = max(FEWEST_EPOCHS, min(EPOCHS, int(BUDGET[device.type] / pace)))
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


def ratios(panel: Panel, rival: str) -> list[float]:
    """GReLU's time as a multiple of a rival's, for each backbone."""
    both = (own for own in panel.values() if own.keys() >= {"grelu", rival})
    return [own["grelu"]["seconds"] / own[rival]["seconds"] for own in both]


def page(entries: Sequence[Entry], rows: Sequence[Entry]) -> str:
    parts = []
    head = ("backbone", *map(label, ACTIVATIONS))
    for names, panel in by_panel(rows).items():
        lines = [
            (label(backbone), *(_cell(own.get(name)) for name in ACTIVATIONS))
            for backbone, own in panel.items()
        ]
        parts.append(f"## {title_of(*names)}\n\n{files.table(head, lines, numbers=1)}")
        relu, maxout = ratios(panel, "relu"), ratios(panel, "maxout")
        if relu and maxout:
            parts.append(
                f"GReLU takes {statistics.median(relu):.2f} times as long as ReLU in the median of "
                f"the backbones ({min(relu):.2f} to {max(relu):.2f}), and less time than Maxout "
                f"with {sum(ratio < 1 for ratio in maxout)} of {len(maxout)} backbones.\n"
            )
    told = origin(entries, RECORD.name)
    return PAGE.format(origin=told, epochs=EPOCHS, panels="\n".join(parts).rstrip("\n"))


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
            styles = zip(ACTIVATIONS, figures.COLOURS, HATCHES, strict=False)
            for place, (name, colour, hatch) in enumerate(styles, start=-len(ACTIVATIONS) // 2):
                found = {
                    BACKBONES.index(backbone) + (place + 0.5) * width: own[name][field]
                    for backbone, own in panel.items()
                    if name in own and own[name][field] is not None
                }
                look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
                axis.bar(found.keys(), found.values(), width, label=label(name), **look)
            axis.set_xticks(range(len(BACKBONES)), map(label, BACKBONES))
        title = title_of(*names)
        left.set(yscale="log", ylabel=f"seconds for {EPOCHS} epochs of a seed", title=title)
        right.set(ylabel="time relative to ReLU", title="relative to ReLU")
        right.axhline(1, color="black", linewidth=0.8)
    columns = len(ACTIVATIONS)
    named = axes[0][0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=columns)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="citeseer")
    parser.add_argument("--runs", type=int, default=3, help="repetitions of each timing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RECORD, help="the record (.jsonl)")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    args = parser.parse_args()
    record = Timings(args.out, IDENTITY)
    if not args.render:
        collect(record, args.dataset, args.runs, torch.device(args.device))
    entries = record.read()
    rows = rows_of(entries)
    numbers = files.csv(rows, COLUMNS)
    print(*files.write(args.out, page(entries, rows), numbers, lambda: draw(rows)))


if __name__ == "__main__":
    main()
