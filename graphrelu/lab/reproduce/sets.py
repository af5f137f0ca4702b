"""Why GReLU helps on sets of graphs: labels that need a look at the whole graph, or do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from statistics import fmean
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab.data.generated import ColouredGraphs, Label
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import on_sets
from graphrelu.lab.record.results import SET_SCORES
from graphrelu.lab.render import label as told
from graphrelu.lab.render import marked, measured
from graphrelu.lab.reproduce import figures, files, shown
from graphrelu.lab.reproduce.table import Pair, Place, Row, Table

EPOCHS, LAYERS, HIDDEN = 30, 4, 32
# Label -> nodes per graph -> the seed of the set; the design was tried on sets with the seed 0.
SEEDS: dict[Label, dict[int, int]] = {
    "whole": {15: 103, 40: 100, 100: 106},
    "both": {15: 104, 40: 101, 100: 107},
    "local": {15: 105, 40: 102, 100: 108},
    "share": {40: 109},
}
NODES = 40  # the size at which every rival is run
FIRST = ("whole", NODES)
FIRST_CELL = (*FIRST, LAYERS)
DEPTHS = (2, LAYERS, 8)  # of the first set

# What each changes.
FEW: dict[str, dict[str, Any]] = {
    "ReLU": {"activation": "relu"},
    "GReLU-A": {"activation": "grelu"},
    "virtual node": {"activation": "relu", "virtual_node": True},
}
LONGER: dict[str, dict[str, Any]] = {
    "ReLU, 2 x": {"activation": "relu", "epochs": 2 * EPOCHS},
    "ReLU, 4 x": {"activation": "relu", "epochs": 4 * EPOCHS},
    "GReLU-A, 4 x": {"activation": "grelu", "epochs": 4 * EPOCHS},
}
# A virtual node adds up the nodes, and so tells how many there are, as this pooling does.
SUMS: dict[str, dict[str, Any]] = {
    "ReLU, sum": {"activation": "relu", "pooling": "sum"},
    "GReLU-A, sum": {"activation": "grelu", "pooling": "sum"},
}
MORE: dict[str, dict[str, Any]] = {
    **{
        f"GReLU-{letter}": {"activation": "grelu", "activation_options": options}
        for letter, options in VARIANTS.items()
        if letter != "A"
    },
    "GELU": {"activation": "gelu"},
    "PReLU": {"activation": "prelu"},
}

# The name of a set -> its label and its nodes per graph.
GENERATED = {
    ColouredGraphs(label=label, nodes=nodes, seed=seed).name: (label, nodes)
    for label, own in SEEDS.items()
    for nodes, seed in own.items()
}
# They had no part in the rule of thumb. MUTAG's epochs have two steps, not seven.
HELD_OUT = {"mutag": {"nodes": 18, "epochs": 4 * EPOCHS}, "proteins": {"nodes": 39}}
OTHERS = "held out"
HELD_OUT_SEEDS = 2  # times as many


class Cell(NamedTuple):
    """A set, a network, and what both are."""

    dataset: str
    backbone: str
    label: str
    nodes: int
    layers: int


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """A cell for each depth of the network on a set. Names differ in their epochs: no ``changes``
    apply."""
    settings: dict[str, Any] = {"epochs": EPOCHS, "hidden": HIDDEN, "metric": "rocauc"}
    settings |= {"split": "random"} | HELD_OUT.get(dataset, {})
    label, nodes = GENERATED.get(dataset) or (OTHERS, settings.pop("nodes"))
    found: dict[Place, Config] = {}
    for layers in DEPTHS if (label, nodes) == FIRST else (LAYERS,):
        rivals = FEW | SUMS if label == OTHERS else FEW
        if nodes == NODES and layers == LAYERS and label != "share":
            rivals = FEW | MORE | (LONGER if label == "whole" else {})
        for name, own in rivals.items():
            cell = Cell(dataset, "gcn", label, nodes, layers)
            found[cell, name] = on_sets(dataset, "gcn", layers=layers, **settings | own)
    return found


def page(rows: list[Row]) -> dict[str, Any]:
    cells = shown.by_cell(rows)
    held_out = [own for cell, own in cells.items() if cell.label == OTHERS]
    generated = [
        own for cell, own in cells.items() if cell.label != OTHERS and cell.layers == LAYERS
    ]
    deep = [own for cell, own in cells.items() if cell[2:4] == FIRST]
    long = [row for row in rows if row.cell[2:] == FIRST_CELL and row.name in FEW | LONGER]
    ends = [row["at_the_end"] for row in long if row["at_the_end"] is not None]
    budgets = (
        (row.name, str(row["epochs"]), f"{row.mean:.1f}", marked(row["behind_a"])) for row in long
    )
    variants = [f"GReLU-{letter}" for letter in VARIANTS]
    return {
        "epochs": EPOCHS,
        "generated": _leads(("label", "nodes"), generated, (*FEW, "GELU", "PReLU")),
        "variants": _leads(("label", "nodes"), generated, variants),
        "layers": _leads(("label", "layers"), deep, FEW),
        "budgets": files.table(("", "epochs", "ROC AUC", "GReLU-A - it"), budgets, numbers=1),
        "at_the_end": ", ".join(map(measured, ends)) or "not measured yet",
        "held_out": _leads(("dataset", "nodes"), held_out, FEW | SUMS),
        "agreement": agreement(generated),
        "agreement_held_out": agreement(held_out),
    }


def _leads(head: Sequence[str], cells: Iterable[Mapping[Any, Row]], names: Iterable[str]) -> str:
    """ReLU's score, and the leads over it; no line for a cell that has none of them."""
    names, lines = [name for name in names if name != "ReLU"], []
    for own in cells:
        if "ReLU" in own and any(name in own for name in names[1:]):
            first = (told(str(own["ReLU"][field])) for field in head)
            leads = (marked(own[name]["over_relu"]) if name in own else "" for name in names)
            lines.append((*first, f"{own['ReLU'].mean:.1f}", *leads))
    return files.table((*head, "ReLU", *names), lines, numbers=1)


def agreement(cells: Iterable[Mapping[Any, Row]]) -> str:
    """Where GReLU helps, and where the virtual node does."""
    cells = [own for own in cells if own.keys() >= FEW.keys()]  # those that are finished
    pairs = [[own[name]["over_relu"] for name in ("GReLU-A", "virtual node")] for own in cells]
    outcomes = [tuple(lead.outcome == "better" for lead in pair) for pair in pairs]
    counts = [outcomes.count(pair) for pair in product((True, False), repeat=2)]
    return (
        "Better than ReLU are both GReLU and the virtual node on {} of these sets, GReLU alone on "
        "{}, the virtual node alone on {}, and neither on {}."
    ).format(*counts)


def draw(rows: Sequence[Row]) -> figures.Figure:
    """GReLU's lead by nodes per graph, and validation scores against epochs."""
    figure, ((by_nodes, by_epoch),) = figures.panels(1, 2, figsize=(8, 3.3), layout="constrained")
    own = (row for row in rows if row.name == "GReLU-A" and row["layers"] == LAYERS)
    lines = groupby((row for row in own if row["label"] != OTHERS), key=lambda row: row["label"])
    for shift, ((label, line), style) in enumerate(zip(lines, figures.line_styles(), strict=False)):
        leads = [(row["nodes"] + shift, row["over_relu"]) for row in line]
        figures.draw_leads(by_nodes, leads, {**style, "label": label})
    by_nodes.axhline(0, color="black", linewidth=0.8)
    by_nodes.set(xlabel="nodes per graph", ylabel="lead of GReLU over ReLU (points)")
    shown_names = (*FEW, "ReLU, 4 x", "GReLU-A, 4 x")
    own = (row for row in rows if row.cell[2:] == FIRST_CELL and row.name in shown_names)
    for row, style in zip(own, figures.line_styles(), strict=False):
        curves = (run.curves.get(SET_SCORES, []) for run in row.runs.values())
        means = [100 * fmean(scores) for scores in zip(*curves, strict=True)]
        by_epoch.plot(means, **{**style, "marker": ""}, label=row.name)
    by_epoch.set(xlabel="epoch", ylabel="validation ROC AUC (%)")
    for axes in (by_nodes, by_epoch):
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    return figure


TABLE = Table(
    name="sets",
    datasets=(*GENERATED, *HELD_OUT),
    cells=cells,
    runs=5,
    quick_runs=2,
    pairs=(
        # GReLU is a family of its own, as in a comparison.
        Pair("over_relu", None, "ReLU", family=lambda cell, name: (cell, name == "GReLU-A")),
        Pair("behind_a", "GReLU-A", None, family=lambda cell, name: cell),
        Pair("at_the_end", "GReLU-A, 4 x", "ReLU, 4 x", only="GReLU-A, 4 x"),
    ),
    columns=("label", "nodes", "layers", "epochs", "over_relu", "behind_a", "at_the_end"),
    page=page,
    seeds=lambda config, runs: range(runs * (HELD_OUT_SEEDS if config.dataset in HELD_OUT else 1)),
    figure=draw,
    family="the rivals of a cell, but for GReLU, which is a family of its own,",
    quick=(
        tuple(name for name, own in GENERATED.items() if own == FIRST),
        lambda place: place[0].layers == LAYERS and place[1] in FEW,
    ),
)
