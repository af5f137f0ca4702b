"""Inside GReLU: the functions that a trained model applies, and gamma over the nodes."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from graphrelu.lab import stats
from graphrelu.lab.data.checksums import sha256
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.engine import choose_device, expected_seconds, prepare_inputs
from graphrelu.lab.engine.keep import file_name, read_model, saved_model, trained_model
from graphrelu.lab.engine.look import PERCENTILES, look
from graphrelu.lab.engine.memory import fitting_seeds
from graphrelu.lab.engine.train import train
from graphrelu.lab.prepare import prepare
from graphrelu.lab.record import kinds, output
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.entries import Entries, Entry, origin
from graphrelu.lab.record.machine import surroundings
from graphrelu.lab.render import export, figures, pieces
from graphrelu.lab.render.tables import label
from graphrelu.lab.reproduce.experiment import Experiment, Request, filled, standing

PAIRS = 1_000
IDENTITY = ("dataset", "key", "seed", "pairs", "model")
FIELDS: dict[str, kinds.Kind] = {
    **dict.fromkeys(("dataset", "key"), kinds.text),
    **dict.fromkeys(("seed", "pairs"), kinds.whole),
    "model": kinds.optional(kinds.text),
    "alpha": kinds.number,
    **dict.fromkeys(("slopes", "intercepts"), kinds.listed(kinds.listed(kinds.number))),
    **dict.fromkeys(("low", "high", "gamma", "degree", "pagerank"), kinds.listed(kinds.number)),
    "config": lambda config: isinstance(config, dict) and kinds.text(config.get("backbone")),
    **kinds.SURROUNDINGS,
}
record_of = partial(Entries, event="inspected", identity=IDENTITY, fields=FIELDS)  # of a path


def default_prefix(dataset: str) -> Path:
    """The prefix of the files of ``graphrelu inspect``, unless the user names another."""
    return Path("results", "quick", f"inspect-{file_name(dataset)}")


def collect(request: Request) -> str:
    """Train a GCN for each seed that the record lacks, and look inside."""
    request.stays_here()
    deadline = request.deadline
    record = record_of(output.check_record(request.out))
    (dataset,) = request.datasets("citeseer")
    finished = inspect_trained(
        *(record, dataset, "gcn", range(request.runs), PAIRS),
        root=request.root,
        device=request.device,
        epochs=request.changes.get("epochs"),
        deadline=deadline,
        announce=request.announce,
    )
    return standing(len(finished), request.runs, request.out, "models")


def inspect_trained(
    record: Entries,
    dataset: str,
    backbone: str,
    seeds: Sequence[int],
    pairs: int,
    *,
    root: str | Path | None = None,
    device: str = "auto",
    epochs: int | None = None,
    deadline: float = math.inf,
    announce: Callable[[Callable[[], float]], None] = lambda expected: None,
) -> list[Entry]:
    """Train the missing seeds by the recipe; return the entries of these seeds on record.

    After ``deadline``, a value of ``time.monotonic()``, nothing new is trained. ``announce``
    may say how many seconds the training takes, before the training begins.
    """
    where = choose_device(device)
    graph, config = _cell(dataset, backbone, seeds, root, epochs)
    wanted = {record.key(_identity(config, seed, pairs)): seed for seed in seeds}
    known = set(map(record.key, record.read()))
    missing = [seed for key, seed in wanted.items() if key not in known]
    if missing:
        runs, graphs = {config: len(missing)}, {config.dataset: graph}
        announce(lambda: expected_seconds(runs, graphs, device))
        inputs = prepare_inputs(config, graph, where)
        at_once = fitting_seeds(config, graph, where)
        for start in range(0, len(missing), at_once):
            if time.monotonic() > deadline:
                break
            batch, _ = train(config, graph, inputs, missing[start : start + at_once], where)
            for seed in batch.seeds:
                seen = look(trained_model(batch, seed), graph, inputs, seed, pairs)
                record.append([_identity(config, seed, pairs) | seen | surroundings(where)])
    found = {record.key(entry): entry for entry in record.read()}
    return [found[key] for key in wanted if key in found]


def inspect_saved(
    record: Entries,
    dataset: str,
    path: Path,
    pairs: int,
    *,
    root: str | Path | None = None,
    device: str = "auto",
) -> list[Entry]:
    """Look inside a model that ``graphrelu compare --save`` kept."""
    where = choose_device(device)
    config, seed, state = read_model(path)
    graph, expected = _cell(dataset, "gcn", [seed], root)  # for the name alone
    if config.dataset != expected.dataset:
        raise ValueError(f"{path} is a model of {config.dataset}, not of {expected.dataset}.")
    identity = _identity(config, seed, pairs, sha256(path)[:12])
    key = record.key(identity)
    if key not in map(record.key, record.read()):
        model = saved_model(config, graph, seed, state, path).to(where)
        seen = look(model, graph, prepare_inputs(config, graph, where), seed, pairs)
        record.append([identity | seen | surroundings(where)])
    return [entry for entry in record.read() if record.key(entry) == key]


def _cell(
    dataset: str,
    backbone: str,
    seeds: Sequence[int],
    root: str | Path | None,
    epochs: int | None = None,
) -> tuple[Graph, Config]:
    graph, (config,) = prepare(dataset, backbone, ["grelu"], seeds, root=root, epochs=epochs)
    if isinstance(graph, GraphSet):
        raise ValueError(
            f"{dataset} is a set of graphs; only models of one graph can be looked at."
        )
    return graph, config


def _identity(config: Config, seed: int, pairs: int, file: str | None = None) -> Entry:
    """The fields that identify a look, and the configuration."""
    names = {"dataset": config.dataset, "key": config.key(), "config": config.to_dict()}
    return names | {"seed": seed, "pairs": pairs, "model": file}


QUANTILES = {"lowest": 0, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "highest": 1}


COLUMNS = ("dataset", "backbone", "seed", "shape", "paper_word", "functions", "share")


def functions(entry: Entry) -> tuple[pieces.Array, ...]:
    """Slopes and intercepts ``[P, K]``, and both ends of the ranges ``[P]``."""
    slopes, intercepts, low, high = (
        np.asarray(entry[name]) for name in ("slopes", "intercepts", "low", "high")
    )
    fits = slopes.shape == intercepts.shape and low.shape == high.shape == slopes.shape[:1]
    if not fits or len(low) != entry["pairs"] or (low > high).any():
        raise ValueError(f"The functions of {_name(entry)} on record do not fit each other.")
    return slopes, intercepts, low, high


def rows_of(entry: Entry) -> list[Entry]:
    """The functions of a model by shape, whether or not there is such a function."""
    counts = Counter(pieces.shapes(*functions(entry)))
    cell = entry["dataset"], entry["config"]["backbone"], entry["seed"]
    rows = [
        (*cell, shape, pieces.coarse(shape), counts[shape], counts[shape] / entry["pairs"])
        for shape in pieces.NAMES
    ]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def write(entries: Sequence[Entry], record: Path) -> list[Path]:
    """The files of models of one configuration; the page comes first."""
    rows = [row for entry in entries for row in rows_of(entry)]
    return figures.write(record, page_of(entries, record), rows, COLUMNS, lambda: draw(entries[0]))


def page_of(entries: Sequence[Entry], record: Path) -> list[str]:
    """The text of the page."""
    first = entries[0]
    seeds = [_name(entry) for entry in entries]
    tables = [rows_of(entry) for entry in entries]
    lines: list[tuple[str, ...]] = []
    for word in pieces.CLASSES:
        parts = [[row for row in table if row["paper_word"] == word] for table in tables]
        shares = (f"{100 * sum(row['share'] for row in part):.1f}" for part in parts)
        lines.append((f"**{word}**", *shares))
        if word == "mixed":
            for kind in zip(*parts, strict=True):
                lines.append((kind[0]["shape"], *(f"{100 * row['share']:.1f}" for row in kind)))
    head = ("model", *QUANTILES, "rho with degree", "rho with PageRank")
    return filled(
        "inspect",
        title=f"{label(first['dataset'])}, {label(first['config']['backbone'])}",
        origin=origin(entries, record.name, "model"),
        low=100 * PERCENTILES[0],
        high=100 * PERCENTILES[1],
        flat_slope=pieces.FLAT_SLOPE,
        pairs=first["pairs"],
        shares=export.table(("shape", *seeds), lines, numbers=1),
        gamma=export.table(head, map(_gamma_line, entries), numbers=1),
    )


def _gamma_line(entry: Entry) -> tuple[str, ...]:
    quantiles = np.quantile(entry["gamma"], list(QUANTILES.values()))
    ranks = [stats.rank_correlation(entry["gamma"], entry[name]) for name in ("degree", "pagerank")]
    return (
        _name(entry),
        *(f"{value:.3f}" for value in quantiles),
        *("constant" if rank is None else f"{rank:+.2f}" for rank in ranks),
    )


def _name(entry: Entry) -> str:
    return f"seed {entry['seed']}" + ("" if entry["model"] is None else f", file {entry['model']}")


def draw(entry: Entry) -> figures.Figure:
    """The functions by class, their shares, and gamma: its distribution, degree, PageRank."""
    figure, axes = figures.panels(2, 4, figsize=(12, 6))
    _draw_functions(axes[0], entry)
    rows = rows_of(entry)
    shares, histogram, by_degree, by_pagerank = axes[1]
    counted = [100 * row["share"] for row in rows]
    shares.barh([row["shape"] for row in rows], counted, color="#555555")
    shares.invert_yaxis()
    shares.set(xlabel="share of functions, %", title="shapes")
    histogram.hist(entry["gamma"], bins=40, color="#999999", edgecolor="black", linewidth=0.4)
    histogram.set(xlabel="gamma of a node", ylabel="nodes", title="gamma")
    by_degree.set(xscale="symlog", xlabel="degree (edges)")
    by_pagerank.set(xscale="log", xlabel="PageRank (share of visits)")
    for axis, name in ((by_degree, "degree"), (by_pagerank, "pagerank")):
        rank = stats.rank_correlation(entry[name], entry["gamma"])
        axis.scatter(entry[name], entry["gamma"], s=3, c="black", alpha=0.3, rasterized=True)
        axis.set_ylabel("gamma")
        axis.set_title("constant" if rank is None else f"rank correlation {rank:+.2f}")
    figure.suptitle(
        f"{label(entry['dataset'])}, {label(entry['config']['backbone'])}, {_name(entry)}: "
        f"{entry['pairs']:,} pairs of a node and a channel"
    )
    return figure


def _draw_functions(axes: Any, entry: Entry) -> None:
    from matplotlib.collections import LineCollection

    slopes, intercepts, low, high = functions(entry)
    x = pieces.knots(slopes, intercepts, low, high)
    paths = np.stack([x, pieces.values(slopes, intercepts, x)], axis=2)
    words = [pieces.coarse(shape) for shape in pieces.shapes(slopes, intercepts, low, high)]
    for axis, word in zip(axes, pieces.CLASSES, strict=True):
        members = paths[[found == word for found in words]]
        style: Any = {"colors": "black", "linewidths": 0.5, "alpha": 0.3, "rasterized": True}
        axis.add_collection(LineCollection(list(members), **style))
        axis.axhline(0, color="black", linewidth=0.6, linestyle=":")
        share = 100 * len(members) / len(words)
        axis.set(xlabel="input x", ylabel="output", title=f"{word}: {share:.1f} %")
        axis.set(xlim=_with_margin(paths[..., 0]), ylim=_with_margin(paths[..., 1]))


def _with_margin(numbers: pieces.Array) -> tuple[float, float]:
    """Limits of an axis, the same for all classes: a flat line then looks flat everywhere."""
    low, high = float(numbers.min()), float(numbers.max())
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def draw_schematic() -> figures.Figure:
    """Section 4.3: ranges that are scaled differently, and GAT's weighting, which has none."""
    panels = {
        "GReLU, K = 2": ([0.3, 1.0], [0.0, -0.3]),
        "GReLU, K = 3": ([-0.4, 0.2, 1.2], [-0.5, 0.0, -0.8]),
        "GAT: a weighting, any range": ([0.6], [0.0]),
    }
    figure, (axes,) = figures.panels(1, len(panels), figsize=(9, 2.8), sharey=True)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        slopes, intercepts = map(np.array, lines)
        # The slopes grow, so that each line meets the next one in a bend of their maximum.
        x = np.array([-2.0, *-np.diff(intercepts) / np.diff(slopes), 2.0])
        y = np.outer(x, slopes) + intercepts
        axis.plot(x, y, color="grey", linestyle="--", linewidth=0.8)
        axis.plot(x, y.max(axis=1), color="black", linewidth=2)
        for place, (left, right) in enumerate(pairwise(x), start=1):
            if len(slopes) > 1:
                axis.axvspan(left, right, color="black", alpha=0.06 * (place % 2))
                axis.text((left + right) / 2, -1.8, f"$r_{place}$", ha="center")
        axis.set(title=title, xlabel="input x", xlim=(-2, 2), ylim=(-2, 2))
    axes[0].set_ylabel("output")
    return figure


def render(record: Path) -> list[Path]:
    """The page, the table and the figure of the newest models on record, and the schematic."""
    entries = record_of(record).required()
    cell = entries[-1]["dataset"], entries[-1]["key"], entries[-1]["pairs"]
    newest = [e for e in entries if (e["dataset"], e["key"], e["pairs"]) == cell]
    paths = write(newest, record)
    with figures.drawing():
        return [*paths, *figures.save(draw_schematic(), record.with_name("schematic"))]


EXPERIMENT = Experiment(runs=1, quick_runs=1, collect=collect, render=render)
