"""Sets of molecules: the published networks and four plain ones, by activation and virtual node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from graphrelu.lab import data
from graphrelu.lab.data.graph import GraphSet
from graphrelu.lab.data.splits import SetSplit
from graphrelu.lab.models.graph_networks import Network
from graphrelu.lab.record.config import ERRORS, Config, Metric
from graphrelu.lab.record.recipes import NETWORK, on_sets
from graphrelu.lab.record.results import SET_SCORES, Result
from graphrelu.lab.render import label
from graphrelu.lab.reproduce import figures, files, shown
from graphrelu.lab.reproduce.table import GridTable, Pair, Place, Row

FOLDER = "Molecules"  # below the folder of the datasets


class MoleculeSet(NamedTuple):
    """A file, how it is split, its metric, and how many seeds the chosen settings get."""

    title: str
    file: str
    split: SetSplit
    metric: Metric
    seeds: int
    nodes: float  # per graph


SETS = {
    "peptides_func": MoleculeSet("Peptides-func", "peptides_func.csv.gz", "column", "ap", 5, 150.9),
    "zinc12k": MoleculeSet("ZINC-12k", "zinc12k.csv.gz", "column", "mae", 5, 23.2),
    "esol": MoleculeSet("ESOL", "esol.csv", "random", "mae", 10, 13.3),
    "lipo": MoleculeSet("Lipo", "lipo.csv", "random", "mae", 10, 27.0),
    "bace": MoleculeSet("BACE", "bace.csv", "scaffold", "rocauc", 10, 34.1),
    "tox21": MoleculeSet("Tox21", "tox21.csv", "scaffold", "rocauc", 10, 18.6),
}


class Rival(NamedTuple):
    """A row of the table: what it changes of a cell."""

    name: str
    activation: str
    options: Mapping[str, Any] = {}
    virtual_node: bool = False
    wider: bool = False  # with as many parameters as the network with a virtual node
    budget: int = 1  # times the epochs: what learns faster must not win by that alone


RIVALS = {
    "relu": Rival("ReLU", "relu"),
    "prelu": Rival("PReLU", "prelu"),
    "gelu": Rival("GELU", "gelu"),
    "grelu": Rival("GReLU", "grelu"),
    "relu+vn": Rival("ReLU with a virtual node", "relu", virtual_node=True),
    "relu-2": Rival("ReLU, twice as long", "relu", budget=2),
    "relu-4": Rival("ReLU, four times as long", "relu", budget=4),
    "grelu-4": Rival("GReLU, four times as long", "grelu", budget=4),
    "grelu-f": Rival("GReLU-F", "grelu", {"node_wise": False}),
    "grelu-b": Rival("GReLU-B", "grelu", {"topology": False}),
    "grelu+vn": Rival("GReLU with a virtual node", "grelu", virtual_node=True),
    "relu-wide": Rival("ReLU, wider", "relu", wider=True),
    "digraf": Rival("DiGRAF", "digraf"),
    "digraf-plain": Rival("DiGRAF without its network", "digraf-plain"),
}
EVERYWHERE = ("relu", "prelu", "gelu", "grelu", "relu+vn", "relu-2", "relu-4")
WITH_GCN = ("grelu-4", "grelu-f", "grelu-b", "grelu+vn", "relu-wide")
QUICK = ("relu", "gelu", "grelu")
TOLERANCE = 1.0  # points below what is published


class Point(NamedTuple):
    """A point of the grid from which every row chooses on validation."""

    dropout: float
    epochs: int


@dataclass(frozen=True)
class Cell:
    """A network on a set with the settings of its publication."""

    dataset: str
    network: Network
    grid: tuple[tuple[float, ...], tuple[int, ...]]  # dropout, epochs
    published: float | None = None
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    min_lr: float = 0.0
    activation: str = "gelu"  # the published one
    wide: int = 112  # hidden units with which ReLU has the parameters of a virtual node

    @property
    def rivals(self) -> tuple[str, ...]:
        digraf = ("digraf", "digraf-plain") if self.dataset in ("esol", "zinc12k") else ()
        return EVERYWHERE + (WITH_GCN + digraf if self.network.conv in ("gcn", "bond") else ())

    @property
    def usual(self) -> Point:
        """The published settings."""
        return Point(self.network.dropout, self.epochs)

    def points(self, rival: str) -> list[Point]:
        """What a row chooses from; where ReLU has more time, that is of the longest."""
        dropouts, epochs = self.grid
        longest = epochs[-1:] if RIVALS[rival].budget > 1 else epochs
        return [Point(*point) for point in product(dropouts, longest)]

    def config(self, key: str, point: Point) -> Config:
        rival, spec = RIVALS[key], SETS[self.dataset]
        network = replace(self.network, virtual_node=rival.virtual_node)
        network = replace(network, hidden=self.wide) if rival.wider else network
        options = {
            name: value
            for name, value in vars(network).items()
            if name not in ("conv", "hidden", "dropout")
            and (name in NETWORK or value != getattr(Network, name))
        }
        falls_to = {"min_lr": self.min_lr} if self.min_lr else {}
        return on_sets(
            self.dataset,
            network.conv,
            rival.activation,
            hidden=network.hidden,
            dropout=point.dropout,
            epochs=rival.budget * point.epochs,
            split=spec.split,
            metric=spec.metric,
            lr=self.lr,
            weight_decay=self.weight_decay,
            activation_options=rival.options,
            training_options={"batch_size": self.batch_size} | falls_to,
            **options,
        )


# "Reassessing the Long-Range Graph Benchmark" (Toenshoff et al. 2023), its code's LRGB-tuned.
_TUNED = Network("gcn", 6, 235, None, True, 0.1, 3, walks=20, plain="gelu")
_TUNED_GINE = replace(_TUNED, conv="gine", layers=8, hidden=160, inside=True)
# GNN+ ("Unlocking the Potential of Classic GNNs", ICML 2025), its code's settings.
_PLUS = Network("bond", 3, 275, "batch", False, 0.2, 4, walks=32, plain="gelu")
_PLUS_GINE = replace(_PLUS, conv="gine", hidden=240, norm=None, residual=True, head_layers=3)
_ZINC = Network("bond", 12, 64, "batch", True, 0.0, 3, "sum", 32, feed_forward=True, halving=True)
_ZINC_GINE = replace(_ZINC, conv="gine", hidden=80, norm=None, walks=20)
_PEPTIDES_GRID, _PLUS_GRID = ((0.1, 0.3), (100, 250)), ((0.2, 0.4), (100, 300))
_ZINC_GRID, _PLAIN_GRID = ((0.0, 0.1), (100, 200)), ((0.0, 0.3), (30, 100))
# 200 of 2,000 epochs; GINE reaches 0.065 after 2,000.
_ZINC_CELL = partial(
    Cell, "zinc12k", grid=_ZINC_GRID, epochs=200, batch_size=32, weight_decay=1e-5, min_lr=1e-6
)
CELLS: dict[tuple[str, str], Cell] = {
    ("peptides_func", "gcn"): Cell(
        "peptides_func", _TUNED, _PEPTIDES_GRID, 68.6, 250, 200, wide=436
    ),
    ("peptides_func", "gine"): Cell("peptides_func", _TUNED_GINE, _PEPTIDES_GRID, 66.2, 250, 200),
    ("peptides_func", "gcn+"): Cell("peptides_func", _PLUS, _PLUS_GRID, 72.6, 300, 16, wide=415),
    ("peptides_func", "gine+"): Cell(
        "peptides_func", _PLUS_GINE, _PLUS_GRID, 70.6, 300, 16, lr=5e-4, activation="relu"
    ),
    ("zinc12k", "gcn"): _ZINC_CELL(_ZINC, wide=84),
    ("zinc12k", "gine"): _ZINC_CELL(_ZINC_GINE),
    **{
        (name, conv): Cell(name, Network(conv), _PLAIN_GRID)  # type: ignore[arg-type]
        for name, conv in product(("esol", "lipo", "bace", "tox21"), ("gcn", "gine", "gat", "sage"))
    },
}


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every row at every point of its grid, which has the epochs: no ``changes`` apply."""
    return {
        (place, (rival, point)): cell.config(rival, point)
        for place, cell in CELLS.items()
        if place[0] == dataset
        for rival in cell.rivals
        for point in cell.points(rival)
    }


def load(config: Config, root: str | Path | None) -> GraphSet:
    """A set of molecules, from its file in :data:`FOLDER`."""
    path = data.data_root(root) / FOLDER / SETS[config.dataset].file
    name = config.dataset if config.dataset in data.GRAPH_NAMES else str(path)
    return data.load_graphs(name, root, split=SETS[config.dataset].split)


class MoleculeTable(GridTable):
    """Beside what each row chose stand all rows with the same settings."""

    def rows(self, results: Iterable[Result]) -> list[Row]:
        """Each rival with the published settings, with those that it chose, and with each of the
        others of the grid."""
        rows = []
        found = self.found(results)
        choices = self.choices(found)
        for place, own in found.items():
            cell = CELLS[place]
            others = [point for point in cell.points("relu") if point != cell.usual]
            everywhere = [("published", cell.usual), *(("grid", point) for point in others)]
            views = [("chosen", choices[place])]
            views += [(setting, dict.fromkeys(cell.rivals, point)) for setting, point in everywhere]
            for setting, points in views:
                runs = {r: own[r, point] for r, point in points.items() if (r, point) in own}
                for row in self.rows_of({place: runs}):
                    row.values |= {"setting": setting} | price(row, runs.get("relu", {}))
                    rows.append(row)
        return rows


def price(row: Row, relu: Mapping[int, Result]) -> dict[str, Any]:
    """What a row costs, and when it has reached ReLU's best score."""
    runs = row.runs.values()
    peaks = [run.peak_memory for run in runs if run.peak_memory]
    epochs, seconds = _until_relu(row.runs, relu)
    return {
        "parameters": next(iter(runs)).parameters,
        "step_ms": median(1e3 * run.seconds / (run.steps or 1) for run in runs),
        "peak_mib": max(peaks) / 2**20 if peaks else None,
        "epochs_to_relu": epochs,
        "seconds_to_relu": seconds,
        "published": CELLS[row.cell].published,
    }


def _until_relu(
    runs: Mapping[int, Result], relu: Mapping[int, Result]
) -> tuple[float | None, float | None]:
    """When ReLU's best validation score is reached: medians over the seeds of the shares of ReLU's
    epochs and seconds. The scores on record have four digits."""
    epochs, seconds = [], []
    for seed in runs.keys() & relu.keys():
        own, other = runs[seed], relu[seed]
        curve = own.curves.get(SET_SCORES, [])
        reached = [i for i, score in enumerate(curve, 1) if score >= other.val_score - 5e-5]
        if not reached:
            return None, None
        epochs.append(reached[0] / other.best_epoch)
        speeds = [run.seconds / run.epochs_run for run in (own, other)]
        seconds.append(epochs[-1] * speeds[0] / speeds[1])
    return (median(epochs), median(seconds)) if epochs else (None, None)


SETTINGS = {
    "published": "Every row with the published settings",
    "chosen": "Every row with the settings that it chose on validation",
    "grid": "Other settings of the grid, every row with the same",
}
HEAD = (
    *("set", "network", "", "score", "over ReLU", "p", "seeds", "dropout", "epochs", "parameters"),
    *("ms a step", "epochs to ReLU's best", "seconds"),
)


def page(rows: list[Row]) -> dict[str, Any]:
    tables = []
    for setting, title in SETTINGS.items():
        own = [row for row in rows if row["setting"] == setting]
        if own:
            tables.append(f"## {title}\n\n{files.table(HEAD, map(_line, own), numbers=3)}")
    return {"check": check(rows), "tables": "\n".join(tables)}


def check(rows: Iterable[Row]) -> str:
    """The published networks with their activation, beside what is published."""
    lines = [
        (
            *_titles(row),
            _score(row),
            _amount(row, row["published"]),
            str(row.n),
            "yes" if row.mean >= row["published"] - TOLERANCE else "no",
        )
        for row in rows
        if row["published"] is not None
        and (row["setting"], row.name) == ("published", CELLS[row.cell].activation)
    ]
    if not lines:
        return "No network has been run with the published settings and activation yet."
    head = ("set", "network", "", "ours", "published", "seeds", "at most 1.0 below")
    return files.table(head, lines, numbers=3)


def _line(row: Row) -> tuple[str, ...]:
    shares = (row["epochs_to_relu"], row["seconds_to_relu"])
    return (
        *_titles(row),
        _score(row),
        *(told or "-" for told in shown.lead_and_p(row["over_relu"])),
        str(row.n),
        f"{row['dropout']:g}",
        str(row["epochs"]),
        f"{row['parameters']:,}",
        f"{row['step_ms']:.1f}",
        *("-" if share is None else f"{100 * share:.0f} %" for share in shares),
    )


def _titles(row: Row) -> tuple[str, str, str]:
    return SETS[row.dataset].title, label(row.backbone), RIVALS[row.name].name


def _score(row: Row) -> str:
    spread = f" ± {_amount(row, row.std)}" if row.n > 1 else ""
    return f"{_amount(row, row.mean)}{spread}"


def _amount(row: Row, value: float) -> str:
    return f"{value:.4f}" if row["metric"] in ERRORS else f"{value:.1f}"


def draw(rows: Sequence[Row]) -> figures.Figure:
    """GReLU's leads over ReLU against the nodes of a graph, with their intervals."""
    figure, ((axes,),) = figures.panels(1, 1, figsize=(6.0, 3.5), layout="constrained")
    axes.axhline(0, color="0.7", linewidth=0.8)
    styles = figures.line_styles()
    for setting in ("published", "chosen"):
        own = [row for row in rows if (row["setting"], row.name) == (setting, "grelu")]
        style = {**next(styles), "linestyle": "none", "label": f"{setting} settings"}
        leads = [(SETS[row.dataset].nodes, row["over_relu"]) for row in own]
        figures.draw_leads(axes, leads, style)
    axes.set(xlabel="nodes per graph", ylabel="lead over ReLU (points, or % of its error)")
    axes.legend()
    return figure


TABLE = MoleculeTable(
    name="molecules",
    datasets=tuple(SETS),
    cells=cells,
    runs=10,
    quick_runs=2,
    # GReLU is a family of its own, as in a comparison.
    pairs=(Pair("over_relu", None, "relu", family=lambda cell, name: (cell, name == "grelu")),),
    columns=(
        *("over_relu", "setting", "metric", "dropout", "epochs", "parameters", "step_ms"),
        *("peak_mib", "epochs_to_relu", "seconds_to_relu", "published"),
    ),
    page=page,
    figure=draw,
    seeds=lambda config, runs: range(min(runs, SETS[config.dataset].seeds)),
    load=load,
    tuning=(0, 1),
    fixed=lambda place: place[1][1] == CELLS[place[0]].usual,
    quick=(
        ("esol",),
        lambda place: (place[0][1], place[1][1].epochs) == ("gcn", 30) and place[1][0] in QUICK,
    ),
    family="the rivals of a cell, but for GReLU, which is a family of its own,",
    margin=0.0,
)
