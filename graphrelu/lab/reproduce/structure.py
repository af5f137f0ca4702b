"""Where topology matters: GReLU with and without topology, on graphs of every homophily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any

from graphrelu.grelu import VARIANTS
from graphrelu.lab.data.generated import BlockModel
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import Result
from graphrelu.lab.render import export, figures, findings
from graphrelu.lab.render.tables import ScoreRow, label, marked, percent
from graphrelu.lab.reproduce.experiment import Experiment, Place, Request, Table, trained
from graphrelu.lab.stats.comparison import leads_over
from graphrelu.lab.stats.decision import Decision

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
# A quick run has GCN on these graphs.
QUICK_KINDS, QUICK_DEGREE, QUICK_HOMOPHILY = ("mirrored", "plain"), 4.0, (0.0, 1.0)

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "GReLU-A": ("grelu", VARIANTS["A"]),
    "GReLU-B": ("grelu", VARIANTS["B"]),
    "GReLU-F": ("grelu", VARIANTS["F"]),
    "ReLU": ("relu", {}),
    "PReLU": ("prelu", {}),
}
RIVALS = tuple(name for name in ACTIVATIONS if name != "GReLU-A")
SHOWN = ("GReLU-B", "ReLU")  # the page only sums up the leads over the others


@dataclass(frozen=True)
class StructureRow(ScoreRow):
    """One activation on one graph; ``behind_a`` is GReLU-A's lead over the activation.

    The leads over one rival are a family for Holm's correction.
    """

    kind: str
    degree: float
    homophily: float
    behind_a: Decision | None

    @property
    def panel(self) -> tuple[str, str]:
        return self.kind, self.backbone


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


def cells(dataset: str, **changes: Any) -> dict[Place, Config]:
    """Every backbone and activation on a graph."""
    kind, degree, homophily = PLACES.get(dataset, ("", 0.0, 0.0))
    backbones = [own for (of, own), degrees in PANELS.items() if of == kind and degree in degrees]
    return {
        ((dataset, backbone, kind, degree, homophily), name): recipe(
            dataset, "other", backbone, activation, activation_options=options, **changes
        )
        for backbone in backbones
        for name, (activation, options) in ACTIVATIONS.items()
    }


TABLE = Table("structure", "on the generated graphs", tuple(PLACES), cells)


def collect(request: Request) -> str:
    """Train the missing runs; no dataset is needed."""
    if not request.quick:
        return TABLE.collect(request)
    configs = [
        config
        for name, (kind, degree, share) in PLACES.items()
        if (kind in QUICK_KINDS and degree == QUICK_DEGREE and share in QUICK_HOMOPHILY)
        for (cell, _), config in cells(name, **request.changes).items()
        if cell[1] == "gcn"
    ]
    return trained(configs, request)


def structure_rows(results: Iterable[Result]) -> list[StructureRow]:
    """A row for each backbone, graph and activation, in the order of the panels."""
    results = list(results)
    found, splits = TABLE.scores(results), TABLE.splits(results)
    leads = {rival: leads_over(found, "GReLU-A", rival, splits) for rival in RIVALS}
    rows = [
        StructureRow(*(*cell[:2], name, *percent(scores), *cell[2:], leads.get(name, {}).get(cell)))
        for cell, own in found.items()
        for name, scores in own.items()
    ]
    panels = list(PANELS)
    return sorted(rows, key=lambda row: (panels.index(row.panel), row.degree, row.homophily))


def render(record: Path) -> list[Path]:
    """A page, the same as CSV, and the figure."""
    results = TABLE.read(record)
    rows = structure_rows(results)
    leads = (f"A - {rival.removeprefix('GReLU-')}" for rival in SHOWN)
    head = ("degree", "homophily", *ACTIVATIONS, *leads)
    panels = []
    for panel, part in groupby(rows, key=lambda row: row.panel):
        graphs = groupby(part, key=lambda row: (row.degree, row.homophily))
        lines = [_line(place, several) for place, several in graphs]
        panels.append(f"## {_title(panel)}\n\n{export.table(head, lines, numbers=0)}")
    head = ("graphs", "backbone", "rival", "GReLU-A")
    in_short = export.table(head, _in_short(rows), numbers=4)
    rule = findings.rule("a rival", ((row.kind, row.behind_a) for row in rows))
    page = TABLE.text(results, record, rule=rule, in_short=in_short, panels="\n".join(panels))
    return figures.write(record, page, rows, StructureRow, lambda: draw(rows))


def draw(rows: Sequence[StructureRow]) -> figures.Figure:
    """The lead of A over B against homophily: a panel for each of the tables."""
    panels = list(dict.fromkeys(row.panel for row in rows))
    styles = dict(zip(sorted({row.degree for row in rows}), figures.line_styles(), strict=False))
    figure, axes = figures.panels(
        1, len(panels), figsize=(9, 3.3), sharey=True, layout="constrained"
    )
    for panel, axis in zip(panels, axes[0], strict=True):
        behind = [row for row in rows if row.panel == panel and row.activation == "GReLU-B"]
        for degree, line in groupby(behind, key=lambda row: row.degree):
            leads = [(row.homophily, row.behind_a) for row in line]
            figures.draw_leads(axis, leads, {**styles[degree], "label": f"degree {degree:g}"})
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=_title(panel), xlabel="homophily", xticks=HOMOPHILY[::2])
    figures.shared_legend(figure, axes[0], loc="outside lower center", ncols=len(styles))
    axes[0, 0].set_ylabel("lead of A over B (points)")
    return figure


def _title(panel: tuple[str, str]) -> str:
    return f"{panel[0].capitalize()}, {label(panel[1])}"


def _in_short(rows: Sequence[StructureRow]) -> Iterable[tuple[str, ...]]:
    for panel in dict.fromkeys(row.panel for row in rows):
        for rival in RIVALS:
            own = [row for row in rows if (row.panel, row.activation) == (panel, rival)]
            leads = [row.behind_a for row in own if row.behind_a is not None]
            yield panel[0], label(panel[1]), rival, findings.several(leads)


def _line(place: tuple[float, float], rows: Iterable[StructureRow]) -> tuple[str, ...]:
    by_name = {row.activation: row for row in rows}
    means = (f"{by_name[name].mean:.1f}" if name in by_name else "" for name in ACTIVATIONS)
    leads = (by_name[name].behind_a if name in by_name else None for name in SHOWN)
    return (*(f"{number:g}" for number in place), *means, *map(marked, leads))


EXPERIMENT = Experiment(runs=30, quick_runs=8, collect=collect, render=render)
