"""The table, the page and the figure of :mod:`graphrelu.lab.reproduce.molecules`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from graphrelu.lab.engine.graph_training import ERRORS
from graphrelu.lab.render import export, figures
from graphrelu.lab.render.tables import marked
from graphrelu.lab.reproduce.molecules import (
    CELLS,
    RIVALS,
    SETS,
    Cell,
    Entries,
    Point,
    by_key,
    chosen,
)
from graphrelu.lab.stats import ONE, Decision, Splits, over_relu

SETTINGS = {
    "published": "Every column with the published settings",
    "chosen": "Every column with the settings that it chose on validation",
    "grid": "Other settings of the grid, every column with the same",
}
# 80 / 10 / 10 %, drawn by the seed; else there is one split.
RANDOM = Splits(share=0.8, ratio=0.125)
TOLERANCE = 0.01  # below what is published


@dataclass(frozen=True)
class Row:
    """A column of a cell. Errors and their leads are in percent too: of ReLU's mean error.

    ``epochs_to_relu`` is the median epoch at which the validation score reaches ReLU's best, as a
    share of the epochs that ReLU took to get there; ``seconds_to_relu`` the same in seconds.
    """

    cell: str
    nodes: float
    setting: str
    rival: str
    metric: str
    dropout: float
    epochs: int
    seeds: int
    mean: float
    std: float | None
    over_relu: Decision | None
    parameters: int
    step_ms: float
    peak_mib: float | None
    epochs_to_relu: float | None
    seconds_to_relu: float | None
    published: float | None


def rows(entries: Entries) -> list[Row]:
    """All columns that have runs: of each cell with the published settings, with those that the
    column chose, and with each of the others."""
    found = []
    for name, cell in CELLS.items():
        choice = {rival: chosen(cell, rival, entries) for rival in cell.rivals}
        others = [point for point in cell.points("relu") if point != cell.usual]
        everywhere = [("published", cell.usual), *(("grid", point) for point in others)]
        views: list[tuple[str, Mapping[str, Point | None]]] = [("chosen", choice)]
        views += [(setting, dict.fromkeys(cell.rivals, point)) for setting, point in everywhere]
        for setting, points in views:
            own = {
                rival: runs
                for rival, point in points.items()
                if point is not None and (runs := _runs(cell, rival, point, entries))
            }
            found += [_row(name, setting, rival, own) for rival in own]
    return found


Runs = Mapping[int, dict[str, Any]]  # entries by seed


def _runs(cell: Cell, rival: str, point: Point, entries: Entries) -> Runs:
    keys = {seed: cell.run(rival, seed, point).key() for seed in range(SETS[cell.dataset].seeds)}
    return {seed: entries[key] for seed, key in keys.items() if key in entries}


def _row(name: str, setting: str, rival: str, own: Mapping[str, Runs]) -> Row:
    cell, runs = CELLS[name], own[rival]
    spec, is_error = SETS[cell.dataset], SETS[cell.dataset].metric in ERRORS
    sign = -1 if is_error else 1
    scores = {
        key: {seed: sign * entry["score"] for seed, entry in entries.items()}
        for key, entries in own.items()
    }
    splits = RANDOM if spec.split == "random" else ONE
    leads = over_relu(scores, splits, 0.0, (None, None), is_error)
    values = [abs(score) for score in scores[rival].values()]
    first = next(iter(runs.values()))
    peaks = [entry["peak_memory"] for entry in runs.values() if entry["peak_memory"]]
    epochs, seconds = _until_relu(runs, own.get("relu", {}), sign)
    return Row(
        name,
        spec.nodes,
        setting,
        rival,
        spec.metric,
        first["run"]["network"]["dropout"],
        first["run"]["epochs"],
        len(runs),
        fmean(values),
        stdev(values) if len(values) > 1 else None,
        leads.get(rival),
        first["parameters"],
        median(1e3 * entry["seconds"] / entry["steps"] for entry in runs.values()),
        max(peaks) / 2**20 if peaks else None,
        epochs,
        seconds,
        cell.published,
    )


def _until_relu(runs: Runs, relu: Runs, sign: int) -> tuple[float | None, float | None]:
    """When ReLU's best validation score is reached, as shares of ReLU's epochs and seconds."""
    epochs, seconds = [], []
    for seed in runs.keys() & relu.keys():
        own, other = runs[seed], relu[seed]
        goal = sign * other["val_score"]
        values = (value for value in own["curves"]["val"])
        reached = (i for i, v in enumerate(values) if v is not None and sign * v >= goal - 5e-5)
        epoch = next(reached, None)
        if epoch is None:
            return None, None
        epochs.append((epoch + 1) / (other["best_epoch"] + 1))
        speeds = [entry["seconds"] / entry["run"]["epochs"] for entry in (own, other)]
        seconds.append(epochs[-1] * speeds[0] / speeds[1])
    return (median(epochs), median(seconds)) if epochs else (None, None)


HEAD = (
    *("cell", "", "score", "over ReLU", "p", "seeds", "dropout", "epochs", "parameters"),
    *("ms a step", "epochs to ReLU's best", "seconds"),
)


def page(found: Sequence[Row], entries: Entries, record: Path) -> list[str]:
    """The parts of the page in Markdown."""
    some = list(entries.values())
    devices = ", ".join(sorted({entry["device"] for entry in some}))
    versions = ", ".join(sorted({entry["versions"]["torch"] for entry in some}))
    beside = ", ".join(map(str, sorted({entry["processes"] for entry in some})))
    parts = [
        "# Sets of molecules",
        f"Made from `{record.name}`: {len(some):,} runs ({devices}; torch {versions}).",
        "Test scores in percent at the epoch of the best validation score: average precision on "
        "Peptides-func, ROC AUC on BACE and Tox21; the mean absolute error on ZINC-12k*, ESOL and "
        "Lipo, in the units of the target. ZINC-12k* has 200 epochs instead of 2,000. Leads over "
        "ReLU are paired by seed, in points or in percent of ReLU's error; * marks what is "
        "significant (t-test, 5 %, Holm's correction over the rivals of a cell but for GReLU, "
        "which is a family of its own).",
        "Only the activations of the layers differ; seeds, splits and batches are the same. The "
        "last columns say when ReLU's best validation score is reached, as a share of the epochs "
        "and seconds that ReLU took; nothing stands there where some seed does not reach it. Runs "
        f"shared the device, {beside} side by side, and so did their steps.",
        "## Are the networks as strong as published?",
        check(found),
        "## In short",
        in_short(found),
    ]
    for setting, title in SETTINGS.items():
        own = [row for row in found if row.setting == setting]
        if own:
            parts += [f"## {title}", export.table(HEAD, map(_line, own), numbers=2).rstrip()]
    return [f"{part}\n" for part in parts]


def check(found: Iterable[Row]) -> str:
    """The published networks with their activation, beside what is published."""
    lines = [
        (
            row.cell,
            RIVALS[row.rival].name,
            _score(row),
            _amount(row, row.published),
            str(row.seeds),
            "yes" if row.mean >= row.published - TOLERANCE else "no",
        )
        for row in found
        if row.published is not None
        and (row.setting, row.rival) == ("published", CELLS[row.cell].activation)
    ]
    if not lines:
        return "No network has been run with the published settings and activation yet."
    head = ("cell", "", "ours", "published", "seeds", "at most 1.0 below")
    return export.table(head, lines, numbers=2).rstrip()


def in_short(found: Iterable[Row]) -> str:
    """GReLU's lead over ReLU at every setting, and whether it is decided."""
    lines = [
        f"- {row.cell}, dropout {row.dropout:g}, {row.epochs} epochs ({row.setting}): GReLU is "
        f"{marked(row.over_relu)} {row.over_relu.unit} ahead of ReLU over {row.over_relu.n} "
        f"{'seed' if row.over_relu.n == 1 else 'seeds'}, {row.over_relu.outcome}."
        for row in found
        if row.rival == "grelu" and row.over_relu is not None
    ]
    return "\n".join(lines) if lines else "GReLU and ReLU have not been run together yet."


def _line(row: Row) -> tuple[str, ...]:
    p = "" if row.over_relu is None or row.over_relu.p is None else f"{row.over_relu.p:.2g}"
    shares = [
        "" if share is None else f"{100 * share:.0f} %"
        for share in (row.epochs_to_relu, row.seconds_to_relu)
    ]
    return (
        row.cell,
        RIVALS[row.rival].name,
        _score(row),
        "" if row.over_relu is None else marked(row.over_relu),
        p,
        str(row.seeds),
        f"{row.dropout:g}",
        str(row.epochs),
        f"{row.parameters:,}",
        f"{row.step_ms:.1f}",
        *shares,
    )


def _score(row: Row) -> str:
    spread = "" if row.std is None else f" ± {_amount(row, row.std)}"
    return f"{_amount(row, row.mean)}{spread}"


def _amount(row: Row, value: float) -> str:
    return f"{value:.4f}" if row.metric in ERRORS else f"{100 * value:.1f}"


def draw(found: Sequence[Row]) -> Any:
    """GReLU's leads over ReLU against the nodes of a graph, with their intervals."""
    figure, ((axes,),) = figures.panels(1, 1, figsize=(6.0, 3.5), layout="constrained")
    axes.axhline(0, color="0.7", linewidth=0.8)
    styles = figures.line_styles()
    for setting in ("published", "chosen"):
        own = [row for row in found if (row.setting, row.rival) == (setting, "grelu")]
        style = {**next(styles), "linestyle": "none", "label": f"{setting} settings"}
        figures.draw_leads(axes, [(row.nodes, row.over_relu) for row in own], style)
    axes.set(xlabel="nodes per graph", ylabel="lead over ReLU (points, or % of its error)")
    axes.legend()
    return figure


def write(record: Path) -> list[Path]:
    """The page, the table and the figure beside a record."""
    entries = by_key(record)
    if not entries:
        raise ValueError(f"{record} has no runs on sets of molecules yet.")
    found = rows(entries)
    parts = page(found, entries, record)
    columns = [
        part
        for field in fields(Row)
        for part in (
            export.lead_columns("over_relu") if field.name == "over_relu" else [field.name]
        )
    ]
    return figures.write(record, parts, map(vars, found), columns, lambda: draw(found))
