"""The HTML page of ``graphrelu report``: one file that a browser shows without any other."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import chain
from operator import attrgetter
from pathlib import Path
from statistics import median
from string import Template
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from torch_geometric.utils import homophily

from graphrelu.lab import data
from graphrelu.lab.data.graph import Features, Graph, GraphSet
from graphrelu.lab.engine.keep import inspection_path, read_look
from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.machine import environment, now, write_text
from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, NODE_DATASETS, TABLE
from graphrelu.lab.record.results import SET_SCORES, Record, Result, kept_positions
from graphrelu.lab.render import (
    METRICS,
    amount,
    compare_rows,
    diverged,
    going_on,
    in_order,
    label,
    reading,
    row_of,
    shown,
    size_of,
    split_rule,
    task_of,
    verdict,
)
from graphrelu.lab.stats import (
    Decided,
    Decision,
    Scores,
    compared,
    decide_at_look,
    over_relu,
    relative_to_relu,
    splits_of,
)

Plain: TypeAlias = dict[str, Any]
Look: TypeAlias = dict[str, np.ndarray]
Numbers: TypeAlias = NDArray[np.float64]
Nodes: TypeAlias = NDArray[np.int64]
Runs: TypeAlias = dict[str, dict[str, list[Result]]]  # key of a cell -> variant -> runs

SCRIPTS = ("draw.js", "table.js", "charts.js", "explorer.js", "save.js", "page.js")
NAMES = attrgetter("dataset", "backbone")
CURVE_POINTS = 30
BAND = (10, 50, 90)  # percentiles
PLANNED = (
    "Differences are paired by seed. The intervals of an activation share Holm's correction over "
    "all networks and graphs, except where a comparison was made on its own. Better or worse: the "
    "interval lies above or below 0. No difference that matters: it lies within the margin, 0.5 "
    "unless another was chosen."
)
DRAWN_NODES = 400
DRAWN_CHANNELS = 12
# By atomic number; the others are named by it.
ELEMENTS = {1: "H", 5: "B", 6: "C", 7: "N", 8: "O", 9: "F", 11: "Na", 14: "Si", 15: "P", 16: "S"}
ELEMENTS |= {17: "Cl", 19: "K", 33: "As", 34: "Se", 35: "Br", 53: "I"}


def from_records(paths: Sequence[Path]) -> dict[str, Any]:
    """The content of a page, from records; the graphs of kept models are read from the disk, where
    they are known by name."""
    content = _empty("Activations compared")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"There is no record {path}.")
        record = Record(path)
        results = record.read()
        if not results:
            content["missing"].append(f"{path.name} has no finished runs to show.")
            continue
        content["missing"] += unreadable(path.name, record.corrupt_lines)
        decided = decide_all(record, results)
        if len(paths) == 1 and len(decided) == 1:
            ((key, one),) = decided.items()
            own = [result for result in results if result.config.cell_key() == key]
            _answer(content, own, one, path)
        looks = kept_looks(results, path)
        names = {config.dataset for config, look in looks if not shows_a_set(look)}
        graphs = {name: data.load(name) for name in names if data.at_hand(name)}
        if lacking := ", ".join(sorted(map(label, names - graphs.keys()))):
            content["missing"].append(
                f"{path.name}: the explorer lacks {lacking}; the page of graphrelu compare has it."
            )
        content["tables"] += tables_of(results, path.name, decided)
        content["models"] += kept_models(looks, graphs, content["graphs"])
    if not content["tables"]:
        raise ValueError(content["missing"][0])
    return content


def unreadable(name: str, lines: Sequence[int]) -> list[str]:
    """A sentence on the lines of a record that cannot be read, if there are any."""
    if not lines:
        return []
    numbers = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
    what = "1 line cannot be read" if len(lines) == 1 else f"{len(lines)} lines cannot be read"
    return [f"{name}: {what} (number {numbers})."]


def decide_all(record: Record, results: Sequence[Result]) -> dict[str, Decided]:
    """The decisions on the comparisons of a record, by the key of their cell."""
    looked = {key: own for key, own in runs_by_cell(results).items() if record.looks(key)}
    return {key: decide_at_look(record, [*chain(*own.values())]) for key, own in looked.items()}


def from_comparison(
    results: Sequence[Result],
    decided: Decided,
    graph: Graph | GraphSet,
    record: Path,
    command: str,
) -> dict[str, Any]:
    """The content of a page, from one comparison with its decisions, and the command that repeats
    it."""
    config = results[0].config
    content = _empty("") | {"command": command}
    _answer(content, results, decided, record)
    graphs = {}
    if isinstance(graph, GraphSet):
        content["facts"] = facts(graph, results)
    else:
        alike = ""
        if graph.task == "classes":  # nodes are right or wrong
            graphs[config.dataset] = graph
            if graph.num_edges:
                known = (graph.y[graph.edge_index] >= 0).all(dim=0)
                alike = f", homophily {homophily(graph.edge_index[:, known], graph.y):.2f}"
        content["graph"] = f"{size_of(graph)}{alike}. Split: {split_rule(results)}."
    content["tables"] = tables_of(results, config.dataset, {config.cell_key(): decided})
    content["models"] = kept_models(kept_looks(results, record), graphs, content["graphs"])
    return content


def facts(graphs: GraphSet, results: Sequence[Result]) -> list[tuple[str, str]]:
    """What a set of graphs is, line by line."""
    count, config = graphs.node_count, results[0].config
    return [
        ("graphs", f"{graphs.num_graphs:,}"),
        ("nodes per graph", f"median {count.median():,}, from {count.min():,} to {count.max():,}"),
        ("features", f"{_kinds(graphs.nodes)} per node, {_kinds(graphs.edges)} per edge"),
        ("to predict", task_of(graphs)),
        ("split", split_rule(results)),
        ("metric", METRICS[config.metric]),
        ("training", f"{config.epochs} epochs"),
    ]


def _kinds(features: Features) -> str:
    count, one, many = features.table.size(1), "real number", "real numbers"
    if features.sizes:
        one, many = "category", "categories"
    return f"{count:,} {one if count == 1 else many}"


def _empty(title: str) -> dict[str, Any]:
    made = {"date": now(), "version": environment()["graphrelu"]}
    texts = dict.fromkeys(("answer", "verdict", "next", "command", "graph"), "")
    lists: dict[str, Any] = {name: [] for name in ("missing", "facts", "tables", "models")}
    return {"title": title, "made": made, "graphs": {}, **texts, **lists}


def _answer(
    content: dict[str, Any], results: Sequence[Result], decided: Decided, record: Path
) -> None:
    """What the page begins with: the words of the terminal."""
    config = results[0].config
    found = verdict(compare_rows(results, decided.decisions))
    content["title"] = f"{label(config.dataset)}, {label(config.backbone)}: activations compared"
    content |= {"answer": found.answer, "verdict": found.sentence}
    content["next"] = going_on(found, decided.command, record)


def render(content: dict[str, Any]) -> str:
    """The page. Its policy lets no request out, and no script in but the page's own."""
    script = "\n".join(map(template, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Inside a script element only "<" can end or change it.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    page, style = Template(template("page.html")), template("page.css")
    return page.substitute(digest=digest, style=style, data=text, script=script)


def template(name: str) -> str:
    """One of the files that the page is made of."""
    text = files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    return text.rstrip("\n")


def write(path: Path, content: dict[str, Any]) -> Path:
    """Write the page, complete or not at all."""
    write_text(path, render(content))
    return path


def tables_of(
    results: Sequence[Result], source: str, decided: Mapping[str, Decided] = {}
) -> list[Plain]:
    """A table for a record; errors, which are not percentages, have one of their own.

    ``decided`` are the decisions on comparisons, by the key of their cell. All other cells are
    those of a table whose runs were fixed beforehand."""
    parts: dict[str, list[Result]] = {}
    for result in results:
        name = f"{source} (lower is better)" if result.config.metric in ERRORS else source
        parts.setdefault(name, []).append(result)
    return [_table(part, name, decided) for name, part in parts.items()]


def runs_by_cell(results: Sequence[Result]) -> Runs:
    """The runs that are compared with each other: the same graph, backbone and settings."""
    cells: Runs = {}
    for run in results:
        cells.setdefault(run.config.cell_key(), {}).setdefault(run.config.variant, []).append(run)
    position = in_order(*dict.fromkeys((*NODE_DATASETS, *GRAPH_DATASETS, *TABLE, *GRAPH_BACKBONES)))
    place = {key: position(NAMES(first_of(own).config)) for key, own in cells.items()}
    return {key: cells[key] for key in sorted(cells, key=lambda key: place[key])}


def first_of(cell: Mapping[str, Sequence[Result]]) -> Result:
    """A run of a cell, all of which have its settings."""
    return next(iter(cell.values()))[0]


def planned_leads(cells: Runs) -> dict[str, dict[str, Decision]]:
    """Differences to ReLU in a table whose runs were fixed beforehand, by cell and variant: in one
    cell as in any comparison, else with Holm's correction over the cells of each activation."""
    families: dict[str, dict[str, tuple[Scores, Scores]]] = {}
    splits = {}
    for key, by_name in cells.items():
        first = first_of(by_name)
        splits[key], is_error = splits_of(first.config, first.note), first.config.metric in ERRORS
        scores: dict[str, Scores] = {
            name: {run.seed: run.score for run in own} for name, own in by_name.items()
        }
        if len(cells) == 1:
            return {key: over_relu(scores, splits[key], looks=(None, None), is_error=is_error)}
        if is_error:
            scores |= relative_to_relu(scores)
        for name in scores.keys() - {"relu"}:
            families.setdefault(name, {})[key] = scores[name], scores.get("relu", {})
    found: dict[str, dict[str, Decision]] = {}
    for name, family in families.items():
        for key, lead in compared(family, splits).items():
            found.setdefault(key, {})[name] = lead
    return found


def bands(runs: Sequence[Result]) -> dict[str, Plain]:
    """The percentiles of each curve over the seeds, up to the epoch that half of them reach."""
    found: dict[str, Plain] = {}
    for name in dict.fromkeys(name for run in runs for name in run.curves):
        curves = [(run.epochs_run, run.curves[name]) for run in runs if name in run.curves]
        curves = [(n, curve) for n, curve in curves if len(curve) > 1 and np.isfinite(curve).all()]
        is_error = name == SET_SCORES and runs[0].config.metric in ERRORS  # negative on record
        if not curves:
            continue
        last = int(np.median([n for n, _ in curves])) - 1
        epochs = np.unique(np.linspace(0, last, CURVE_POINTS).round())
        lines = [
            np.interp(epochs, kept_positions(n, len(curve)), curve, right=np.nan)
            * (-1 if is_error else 1)
            for n, curve in curves
        ]
        low, middle, high = (
            [float(f"{value:.4g}") for value in line]
            for line in np.nanpercentile(np.stack(lines), BAND, axis=0)
        )
        found[name] = {"epoch": epochs.tolist(), "low": low, "middle": middle, "high": high}
    return found


def pace(grelu: Sequence[Result], relu: Sequence[Result]) -> str:
    """How soon GReLU reaches ReLU's best validation score, where it is sooner than ReLU itself: a
    sentence of medians over the seeds, else nothing."""
    beside = {run.seed: scores for run in relu if (scores := _validation(run))}
    pairs = [(_validation(run), beside[run.seed]) for run in grelu if run.seed in beside]
    if not pairs:
        return ""
    best = [max(theirs.values()) for _, theirs in pairs]
    ours, its = (
        median(
            min((epoch for epoch, score in side[i].items() if score >= goal), default=math.inf)
            for side, goal in zip(pairs, best, strict=True)
        )
        for i in range(2)
    )
    if not ours < its:
        return ""
    first, score = grelu[0], median(best)
    what, amount = "score" if SET_SCORES in first.curves else "accuracy", f"{100 * score:.1f} %"
    if first.config.metric in ERRORS:
        what, amount = "error", f"{-score:.3g}"
    return (
        f"{label_of(first.config)} reaches ReLU's best validation {what} ({amount}) after {ours:g} "
        f"of {median(run.epochs_run for run in grelu):g} epochs, ReLU after {its:g} (medians over "
        f"{len(pairs)} {'seed' if len(pairs) == 1 else 'seeds'})."
    )


def _validation(run: Result) -> dict[int, float]:
    """The validation scores by epoch, from 1, as far as they were kept."""
    curve = run.curves.get(SET_SCORES) or run.curves.get("val_accuracy", [])
    places = kept_positions(run.epochs_run, len(curve))
    pairs = zip(places, curve, strict=True)
    return {place + 1: score for place, score in pairs if math.isfinite(score)}


def origin_of(results: Sequence[Result]) -> Plain:
    """Where and when runs took place, and how their nodes were split."""
    dates = sorted(result.date for result in results)
    return {
        "runs": len(results),
        "devices": sorted({result.device for result in results}),
        "versions": sorted({f"{name} {v}" for r in results for name, v in r.versions.items()}),
        "dates": [dates[0], dates[-1]],
        "commits": sorted({result.commit for result in results if result.commit}),
        "splits": list(dict.fromkeys(result.note for result in results))[:3],
        "diverged": diverged(results),
    }


def _table(results: Sequence[Result], name: str, decided: Mapping[str, Decided]) -> Plain:
    cells = runs_by_cell(results)
    leads = planned_leads({key: own for key, own in cells.items() if key not in decided})
    leads |= {key: decided[key].decisions for key in cells if key in decided}
    configs = {key: first_of(own).config for key, own in cells.items()}
    titles = {config.dataset: label(config.dataset) for config in configs.values()}
    if len(set(titles.values())) < len(titles):  # two editions of a user's file
        titles = {name: name for name in titles}
    rows, settings = [], []
    for key, by_name in cells.items():
        config = configs[key]
        backbone = label(config.backbone) + _difference(config, configs.values())
        names = {"dataset": titles[config.dataset], "backbone": backbone}
        rows += _rows(by_name, names, leads.get(key, {}))
        own = [runs[0].config for runs in by_name.values()]
        same = {"dataset": None, "backbone": None}  # the page names them
        settings.append({**names, "settings": {label_of(c): c.to_dict() | same for c in own}})
    note = reading(*leads.values()) if len(cells) == 1 else PLANNED
    origin = origin_of(results)
    return {"name": name, "rows": rows, "cells": settings, "note": note, "origin": origin}


def _rows(
    by_name: Mapping[str, list[Result]], names: Plain, leads: Mapping[str, Decision]
) -> list[Plain]:
    """The rows of a cell, in the order of the table of activations."""
    rows, position = [], in_order(*ACTIVATIONS)
    configs = {which: runs[0].config for which, runs in by_name.items()}
    place = {which: (position([c.activation]), label_of(c)) for which, c in configs.items()}
    for which in sorted(by_name, key=lambda which: place[which]):
        runs, config, lead = by_name[which], configs[which], leads.get(which)
        row = row_of(which, runs, lead)
        factor = -1 if row.is_error else 100
        by_seed = sorted(runs, key=lambda run: run.seed)
        rows.append(
            {
                **names,
                "activation": label_of(config),
                "family": config.activation,
                "metric": config.metric,
                "is_error": row.is_error,
                "scale": METRICS[config.metric] + " (lower is better)" * row.is_error,
                "mean": row.mean,
                "std": row.std,
                "n": row.n,
                "shown": shown(row),
                "price": asdict(row.price),
                "lead": None if lead is None else {**asdict(lead), "text": amount(lead)},
                "seeds": [[run.seed, factor * run.score] for run in by_seed],
                "curves": bands(runs),
                "pace": pace(runs, by_name.get("relu", [])) if which.startswith("grelu") else "",
            }
        )
    best = (min if rows[0]["metric"] in ERRORS else max)(row["mean"] for row in rows)
    for own in rows:
        own["highest"] = len(rows) > 1 and own["mean"] == best
    return rows


def label_of(config: Config) -> str:
    """An activation as the paper spells it, with the options that differ from the default."""
    return label(config.activation) + config.variant.removeprefix(config.activation)


def _difference(config: Config, configs: Iterable[Config]) -> str:
    """The settings that differ between cells of the same graph and backbone; may be empty."""
    own = _settings(config)
    others = [_settings(other) for other in configs if NAMES(other) == NAMES(config)]
    values = {name: {str(other.get(name)) for other in others} for name in own}
    # What tells most cells apart comes first: on a phone the end is cut off.
    names = sorted((name for name in own if len(values[name]) > 1), key=lambda n: -len(values[n]))
    return f" ({', '.join(f'{name} {own[name]}' for name in names)})" if names else ""


def _settings(config: Config) -> Plain:
    known = dict(sorted(config.shared_settings.items()))
    options = (known.pop(name, {}) for name in ("backbone_options", "training_options"))
    return {name: value for own in options for name, value in sorted(own.items())} | known


# The graph explorer: where to draw each node, and the functions that GReLU learned on it.
def kept_looks(results: Sequence[Result], record: Path) -> list[tuple[Config, Look]]:
    """What was kept beside the record of the GReLUs of some runs."""
    configs = dict.fromkeys(r.config for r in results if r.config.activation == "grelu")
    paths = [(config, inspection_path(record, config.key())) for config in configs]
    return [(config, read_look(path)) for config, path in paths if path.is_file()]


def shows_a_set(look: Look) -> bool:
    """Whether a look holds the graphs that it is about: some of a set."""
    return "node_count" in look


def kept_models(
    looks: Sequence[tuple[Config, Look]], graphs: Mapping[str, Graph], drawn: dict[str, Plain]
) -> list[Plain]:
    """Of each GReLU of each model its functions on the graphs, which are added to those drawn."""
    found = []
    for config, look in looks:
        layers = [name.removesuffix(".nodes") for name in look if name.endswith(".nodes")]
        graph = graphs.get(config.dataset)
        if not layers:
            continue
        if shows_a_set(look):
            own = {f"{config.key()}-{i}": one for i, one in enumerate(parts_of(look, layers))}
        elif graph is None or len(look["prediction"]) != graph.num_nodes:
            continue  # it is not at hand, or another edition of it
        else:
            known = drawn.get(config.dataset) or draw(graph, look[f"{layers[0]}.nodes"])
            own = {config.dataset: (known, look)}
        drawn |= {key: part for key, (part, _) in own.items()}
        options = "".join(f", {name}={value}" for name, value in config.told_options)
        title = f"{label(config.dataset)}, {label(config.backbone)}{options}"
        for layer in layers:
            parts = [
                {"graph": key, **functions(seen, layer, np.array(part["nodes"]))}
                for key, (part, seen) in own.items()
            ]
            found.append({"name": f"{title}, {layer}", "seed": int(look["seed"]), "parts": parts})
    return found


def functions(look: Look, layer: str, nodes: Nodes) -> Plain:
    """One GReLU: gamma and prediction of the drawn nodes, the functions of some of them."""
    gamma, slopes, intercepts = (
        look[f"{layer}.{name}"].astype(float) for name in ("gamma", "slopes", "intercepts")
    )
    channels = np.unique(np.linspace(0, slopes.shape[2] - 1, DRAWN_CHANNELS).round().astype(int))
    return {
        "gamma": _digits(gamma.mean(axis=1)[nodes]),
        "prediction": look["prediction"][nodes].tolist() if "prediction" in look else [],
        "nodes": look[f"{layer}.nodes"].tolist(),
        "channels": channels.tolist(),
        "slopes": _digits(slopes[:, :, channels]),
        "intercepts": _digits(intercepts[:, :, channels]),
    }


def parts_of(look: Look, layers: Sequence[str]) -> Iterator[tuple[Plain, Look]]:
    """Each graph of a look that shows a set, drawn, and the part of the look that is about it."""
    source = look["edge_index"][0]
    ends = look["node_count"].cumsum()
    for i, end in enumerate(ends):
        count = int(look["node_count"][i])
        start, part = end - count, {}
        for layer in layers:
            nodes = look[f"{layer}.nodes"]
            own = (nodes >= start) & (nodes < end)
            part[f"{layer}.nodes"] = nodes[own] - start
            part[f"{layer}.slopes"] = look[f"{layer}.slopes"][own]
            part[f"{layer}.intercepts"] = look[f"{layer}.intercepts"][own]
            part[f"{layer}.gamma"] = look[f"{layer}.gamma"][start:end]
        edge_index = look["edge_index"][:, (source >= start) & (source < end)] - start
        graph = layout(edge_index, sample(edge_index, count, part[f"{layers[0]}.nodes"]), count)
        target, prediction = look["target"][i], look["prediction"][i]
        known = "unknown" if np.isnan(target) else f"{target:.4g}"
        size = f"{count:,} node{'s' * (count > 1)}"
        graph["name"] = f"{size}, target {known}, predicted {prediction:.4g}"
        if "atoms" in look:
            numbers = look["atoms"][start:end][graph["nodes"]].tolist()
            graph["atoms"] = [ELEMENTS.get(number, str(number)) for number in numbers]
        yield graph, part


def draw(graph: Graph, chosen: Nodes) -> Plain:
    """A single graph, with the labels of its nodes."""
    edge_index = graph.edge_index.numpy()
    nodes = sample(edge_index, graph.num_nodes, chosen)
    labels = graph.y.numpy()[nodes].tolist()
    return layout(edge_index, nodes, graph.num_nodes) | {"label": labels}


def sample(edge_index: Nodes, count: int, chosen: Nodes) -> Nodes:
    """All nodes of a small graph; of a larger one the chosen nodes and some of their neighbours."""
    if count <= DRAWN_NODES:
        return np.arange(count, dtype=np.int64)
    source, target = edge_index
    near = target[np.isin(source, chosen)]
    spread = near[np.linspace(0, len(near) - 1, min(len(near), 4 * DRAWN_NODES)).astype(int)]
    kept = list(dict.fromkeys([*chosen.tolist(), *spread.tolist()]))
    return np.sort(np.array(kept[:DRAWN_NODES], dtype=np.int64))


def layout(edge_index: Nodes, nodes: Nodes, count: int) -> Plain:
    """Positions in the unit square, edges once, and degrees."""
    source, target = edge_index
    inside = np.isin(source, nodes) & np.isin(target, nodes)
    ends = np.searchsorted(nodes, np.stack([source[inside], target[inside]], axis=1))
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    edges = np.unique(ends, axis=0).astype(np.int64)
    degree = np.bincount(source, minlength=count)
    return {
        "total": count,
        "nodes": nodes.tolist(),
        "place": _digits(_places(len(nodes), edges)),
        "edges": edges.tolist(),
        "degree": degree[nodes].tolist(),
    }


def _places(count: int, edges: Nodes) -> Numbers:
    """Where the distances of nodes are about those along the edges (Kamada-Kawai)."""
    from networkx import empty_graph, kamada_kawai_layout

    joined = np.zeros((count, count))
    joined[edges[:, 0], edges[:, 1]] = 1
    steps = shortest_path(joined, directed=False, unweighted=True)
    steps = np.minimum(steps, steps[np.isfinite(steps)].max() + 1)  # parts stay near each other
    apart = {node: dict(enumerate(row)) for node, row in enumerate(steps)}
    place = np.stack([*kamada_kawai_layout(empty_graph(count), apart).values()])
    low, high = place.min(axis=0), place.max(axis=0)
    return np.asarray((place - low) / np.maximum(high - low, 1e-9))


def _digits(values: Numbers) -> Any:
    """Nested lists with three decimals: enough to draw, and a third of the size."""
    return np.round(values.astype(float), 3).tolist()
