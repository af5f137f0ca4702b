"""Where topology matters: GReLU with and without topology, on graphs of every homophily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, product
from typing import Any, NamedTuple

from graphrelu.grelu import VARIANTS
from graphrelu.lab.data.generated import BlockModel
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.tables import label, marked
from graphrelu.lab.reproduce import shown
from graphrelu.lab.reproduce.table import Found, Pair, Place, Row, Table

HOMOPHILY = (0.0, 0.25, 0.5, 0.75, 1.0)
# How odd regions differ from even ones. Without mirroring, a strong signal would leave nothing to
# gain.
KINDS: dict[str, dict[str, Any]] = {
    "mirrored": {"shift": 1, "signal": 1.0},
    "opposed": {"opposed": 1, "signal": 0.2},
    "plain": {"signal": 0.2},
}
# Kind of graph and backbone -> expected degrees.
PANELS: dict[tuple[str, str], tuple[float, ...]] = {
    ("mirrored", "gcn"): (2.0, 4.0, 8.0),
    ("mirrored", "sage"): (4.0,),
    ("opposed", "gcn"): (4.0,),
    ("plain", "gcn"): (4.0,),
}
FIRST_SEED = 100  # the search (docs/reproduce.md) saw no graph with such a seed

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "GReLU-A": ("grelu", VARIANTS["A"]),
    "GReLU-B": ("grelu", VARIANTS["B"]),
    "GReLU-F": ("grelu", VARIANTS["F"]),
    "ReLU": ("relu", {}),
    "PReLU": ("prelu", {}),
}
RIVALS = tuple(name for name in ACTIVATIONS if name != "GReLU-A")
SHOWN = ("GReLU-B", "ReLU")  # the page only sums up the leads over the others


class Cell(NamedTuple):
    """A graph and a backbone; what the graph is."""

    dataset: str
    backbone: str
    kind: str
    degree: float
    homophily: float


# The name of a graph -> kind, degree and homophily; every graph has noise of its own.
PLACES = {
    BlockModel(degree=degree, homophily=share, seed=seed, **KINDS[kind]).name: (kind, degree, share)
    for seed, (kind, degree, share) in enumerate(
        dict.fromkeys(
            (kind, degree, share)
            for (kind, _), degrees in PANELS.items()
            for degree, share in product(degrees, HOMOPHILY)
        ),
        FIRST_SEED,
    )
}
# A quick run has GCN on these.
QUICK_GRAPHS = tuple(
    name
    for name, (kind, degree, share) in PLACES.items()
    if kind in ("mirrored", "plain") and degree == 4 and share in (0, 1)
)


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every backbone and activation on a graph."""
    kind, degree, homophily = PLACES.get(dataset, ("", 0.0, 0.0))
    backbones = [own for (of, own), degrees in PANELS.items() if of == kind and degree in degrees]
    return {
        (Cell(dataset, backbone, kind, degree, homophily), name): recipe(
            dataset, "other", backbone, activation, activation_options=options, **changes
        )
        for backbone in backbones
        for name, (activation, options) in ACTIVATIONS.items()
    }


def page(rows: list[Row], all_runs: Found) -> dict[str, Any]:
    leads = (f"A - {rival.removeprefix('GReLU-')}" for rival in SHOWN)
    head = ("degree", "homophily", *ACTIVATIONS, *leads)
    panels, in_short = [], []
    for panel, part in groupby(rows, key=panel_of):
        cells = shown.by_cell(part)
        table = export.table(head, map(_line, cells.values()), numbers=0)
        panels.append(f"## {_title(panel)}\n\n{table}")
        for rival in RIVALS:
            found = [own[rival]["behind_a"] for own in cells.values() if rival in own]
            told = findings.several([lead for lead in found if lead is not None])
            in_short.append((panel[0], label(panel[1]), rival, told))
    head = ("graphs", "backbone", "rival", "GReLU-A")
    return {
        "in_short": export.table(head, in_short, numbers=4),
        "panels": "\n".join(panels),
    }


def _line(rows: Mapping[str, Row]) -> tuple[str, ...]:
    first = next(iter(rows.values()))
    means = (f"{rows[name].mean:.1f}" if name in rows else "" for name in ACTIVATIONS)
    leads = (marked(rows[name]["behind_a"]) if name in rows else "" for name in SHOWN)
    return (f"{first['degree']:g}", f"{first['homophily']:g}", *means, *leads)


def panel_of(row: Row) -> tuple[str, str]:
    return row["kind"], row.backbone


def draw(rows: Sequence[Row]) -> figures.Figure:
    """The lead of A over B against homophily: a panel for each of the tables."""
    panels = list(dict.fromkeys(panel_of(row) for row in rows))
    styles = dict(zip(sorted({row["degree"] for row in rows}), figures.line_styles(), strict=False))
    figure, axes = figures.panels(
        1, len(panels), figsize=(9, 3.3), sharey=True, layout="constrained"
    )
    for panel, axis in zip(panels, axes[0], strict=True):
        behind = [row for row in rows if panel_of(row) == panel and row.name == "GReLU-B"]
        for degree, line in groupby(behind, key=lambda row: row["degree"]):
            leads = [(row["homophily"], row["behind_a"]) for row in line]
            figures.draw_leads(axis, leads, {**styles[degree], "label": f"degree {degree:g}"})
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=_title(panel), xlabel="homophily", xticks=HOMOPHILY[::2])
    figures.shared_legend(figure, axes[0], loc="outside lower center", ncols=len(styles))
    axes[0, 0].set_ylabel("lead of A over B (points)")
    return figure


def _title(panel: tuple[str, str]) -> str:
    return f"{panel[0].capitalize()}, {label(panel[1])}"


TABLE = Table(
    name="structure",
    datasets=tuple(PLACES),
    cells=cells,
    runs=30,
    quick_runs=8,
    pairs=(Pair("behind_a", "GReLU-A", None),),
    columns=("kind", "degree", "homophily", "behind_a"),
    page=page,
    figure=draw,
    family="a rival",
    order=lambda row: (list(PANELS).index(panel_of(row)), row["degree"], row["homophily"]),
    quick=(QUICK_GRAPHS, lambda place: place[0][1] == "gcn"),
)
