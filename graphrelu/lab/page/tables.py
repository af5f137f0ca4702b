"""The tables of the page, from runs: cells, leads, marks, seeds and curves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.page.origin import command, origin_of
from graphrelu.lab.record.config import FOLD_SPLITS, Config
from graphrelu.lab.record.published import published
from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, NODE_DATASETS, TABLE
from graphrelu.lab.record.results import Result, kept_positions
from graphrelu.lab.render.tables import CompareRow, in_order, label, percent, price
from graphrelu.lab.stats.choice import fold_choices
from graphrelu.lab.stats.comparison import Scores, compared, relative_to
from graphrelu.lab.stats.decision import Decision

Plain: TypeAlias = dict[str, Any]
Cell: TypeAlias = tuple[str, str, str]  # dataset, backbone, what tells its settings from others'
Runs: TypeAlias = dict[Cell, dict[str, list[Result]]]  # cell -> variant -> runs
Leads: TypeAlias = dict[tuple[Cell, str], Decision]

SCORES = ("mean", "std", "best", "n")
CURVE_POINTS = 30
BAND = (10, 50, 90)  # percentiles
PROTOCOLS = {
    "folds": "ten folds",
    "gin_folds": "the GIN paper's protocol",
    "gin_paper": "the GIN paper's protocol, networks and budget",
}


def tables_of(
    results: Sequence[Result], source: str, decided: Sequence[CompareRow] = ()
) -> list[Plain]:
    """A table for the graphs of a record, and one for each protocol of its sets of graphs; errors,
    which are no shares, have tables of their own.

    In the table of one comparison the rows of the terminal say what is ``decided``."""
    parts: dict[str, list[Result]] = {}
    for result in results:
        config = result.config
        names = (source, PROTOCOLS.get(config.split), "errors" if config.metric == "mae" else None)
        parts.setdefault(", ".join(filter(None, names)), []).append(result)
    return [_table(part, name, decided) for name, part in parts.items()]


def runs_by_cell(results: Sequence[Result]) -> Runs:
    """The runs that are compared with each other: the same graph, backbone and settings.

    If the settings were chosen from a grid, each activation appears with its own choice.
    """
    chosen = fold_choices(results)
    kept = {config for _, configs in chosen.values() for config in configs.values()}
    cells: Runs = {}
    for result in results:
        config = result.config
        from_grid = (config.dataset, config.backbone, config.split) in chosen
        if from_grid and config not in kept:
            continue
        shared = config.shared_settings
        settings = "" if from_grid else json.dumps(shared, sort_keys=True)
        cell = (config.dataset, config.backbone, settings)
        cells.setdefault(cell, {}).setdefault(variant(config), []).append(result)
    position = in_order(*dict.fromkeys((*NODE_DATASETS, *GRAPH_DATASETS, *TABLE, *GRAPH_BACKBONES)))
    return dict(sorted(cells.items(), key=lambda item: position(item[0][:2])))


def variant(config: Config) -> str:
    """An activation as the paper spells it, with the options that differ from the default."""
    options = ", ".join(f"{name}={value}" for name, value in config.told_options)
    return f"{label(config.activation)} ({options})" if options else label(config.activation)


def leads_over_relu(scores: Mapping[Cell, Mapping[str, Scores]]) -> Leads:
    """Differences to ReLU. Holm's correction is over the activations if there is one cell, else
    over the cells of each activation."""
    relu = label("relu")
    families: dict[str, dict[tuple[Cell, str], tuple[Scores, Scores]]] = {}
    for cell, by_name in scores.items():
        for name in by_name:
            if name != relu and relu in by_name:
                family = families.setdefault(name if len(scores) > 1 else "", {})
                family[cell, name] = by_name[name], by_name[relu]
    return {key: lead for family in families.values() for key, lead in compared(family).items()}


def bands(runs: Sequence[Result]) -> dict[str, Plain]:
    """The percentiles of each curve over the seeds, up to the epoch that half of them reach."""
    found: dict[str, Plain] = {}
    for name in dict.fromkeys(name for run in runs for name in run.curves):
        curves = [(run.epochs_run, run.curves[name]) for run in runs if name in run.curves]
        curves = [(n, curve) for n, curve in curves if len(curve) > 1 and np.isfinite(curve).all()]
        if not curves:
            continue
        last = int(np.median([n for n, _ in curves])) - 1
        epochs = np.unique(np.linspace(0, last, CURVE_POINTS).round())
        lines = [
            np.interp(epochs, kept_positions(n, len(curve)), curve, right=np.nan)
            for n, curve in curves
        ]
        low, middle, high = (
            [float(f"{value:.4g}") for value in line]
            for line in np.nanpercentile(np.stack(lines), BAND, axis=0)
        )
        found[name] = {"epoch": epochs.tolist(), "low": low, "middle": middle, "high": high}
    return found


def by_class(runs: Sequence[Result], relu: Sequence[Result]) -> list[list[float | None]]:
    """The accuracy of each class in percent and its lead over ReLU's, paired by seed: means over
    the seeds that test the class."""
    beside = {(run.seed, k): a for run in relu for k, a in enumerate(run.class_accuracy or [])}
    found = []
    for k in range(min(len(run.class_accuracy or []) for run in runs)):
        shares = {run.seed: (run.class_accuracy or [])[k] for run in runs}
        own = {seed: share for seed, share in shares.items() if share is not None}
        leads = [a - b for seed, a in own.items() if (b := beside.get((seed, k))) is not None]
        means = (fmean(part) if part else None for part in (own.values(), leads))
        found.append([None if mean is None else round(100 * mean, 2) for mean in means])
    return found


def _table(results: Sequence[Result], name: str, decided: Sequence[CompareRow]) -> Plain:
    cells = runs_by_cell(results)
    scores = {
        cell: {name: {run.seed: run.score for run in runs} for name, runs in by_name.items()}
        for cell, by_name in cells.items()
    }
    is_error = results[0].config.metric == "mae"
    factor = -1 if is_error else 100
    leads = leads_over_relu(
        {cell: relative_to("ReLU", own) if is_error else own for cell, own in scores.items()}
    )
    titles = {cell[0]: label(cell[0]) for cell in cells}
    if len(set(titles.values())) < len(titles):  # two editions of a user's file
        titles = {name: name for name in titles}
    decisions = {row.activation: row.over_relu for row in decided}
    rows = []
    repeated = []
    for cell, by_name in cells.items():
        names = {"dataset": titles[cell[0]], "backbone": label(cell[1]) + _difference(cell, cells)}
        best = max(fmean(own.values()) for own in scores[cell].values())
        relu = by_name.get(label("relu"), [])
        for which in sorted(by_name, key=lambda which: _place(by_name[which][0].config)):
            runs = by_name[which]
            family = runs[0].config.activation
            lead = decisions[family] if decided else leads.get((cell, which))
            own = scores[cell][which]
            row = {
                **names,
                "activation": which,
                "family": family,
                "metric": runs[0].config.metric,
                **dict(zip(SCORES, percent(own, is_error), strict=True)),
                "highest": len(by_name) > 1 and fmean(own.values()) == best,
                "price": asdict(price(runs)),
                "classes": by_class(runs, [] if family == "relu" else relu),
                "paper": _paper(runs[0].config),
                "lead": None if lead is None else {**asdict(lead), "outcome": lead.outcome},
                "seeds": [[seed, factor * s] for seed, s in sorted(own.items())],
                "curves": bands(runs),
            }
            rows.append(row)
        configs = [runs[0].config for runs in by_name.values()]
        number = max(len(runs) for runs in by_name.values())
        settings = {
            which: {**runs[0].config.to_dict(), "dataset": None, "backbone": None}
            for which, runs in by_name.items()
        }
        repeated.append({**names, "command": command(configs, number), "settings": settings})
    return {"name": name, "rows": rows, "cells": repeated, "origin": origin_of(results)}


def _place(config: Config) -> tuple[int, str]:
    order = [*ACTIVATIONS, config.activation]
    return order.index(config.activation), variant(config)


def _paper(config: Config) -> list[float] | None:
    table = "graph_classification" if config.split in FOLD_SPLITS else "node_classification"
    other = config.metric != "accuracy" or config.feature_scale != 1
    if config.told_options or other or config.is_deep:
        return None
    found = published(table, config.dataset, config.backbone, config.activation)
    return None if found is None else [found.mean, found.std]


def _difference(cell: Cell, cells: Iterable[Cell]) -> str:
    """The settings that differ between cells of the same graph and backbone; may be empty."""
    others = [_flat(other) for other in cells if other[:2] == cell[:2] and other[2]]
    if len(others) < 2:
        return ""
    own = _flat(cell)
    values = {name: {str(other.get(name)) for other in others} for name in own}
    # What tells most cells apart comes first: on a phone the end is cut off.
    names = sorted((name for name in own if len(values[name]) > 1), key=lambda n: -len(values[n]))
    return f" ({', '.join(f'{name} {own[name]}' for name in names)})"


def _flat(cell: Cell) -> dict[str, Any]:
    """The settings of a cell, those of its backbone beside the others."""
    settings: dict[str, Any] = json.loads(cell[2])
    return settings.pop("backbone_options", {}) | settings
