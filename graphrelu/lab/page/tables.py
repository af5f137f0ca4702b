"""The tables of the page, from runs: cells, leads, seeds and curves, and where they come from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any, TypeAlias

import numpy as np

from graphrelu.lab.models.activations import ACTIVATIONS
from graphrelu.lab.record import divergence
from graphrelu.lab.record.config import ERRORS, Config
from graphrelu.lab.record.recipes import GRAPH_BACKBONES, GRAPH_DATASETS, NODE_DATASETS, TABLE
from graphrelu.lab.record.results import SET_SCORES, Result, kept_positions
from graphrelu.lab.render.tables import amount, in_order, label, reading, row_of, shown
from graphrelu.lab.render.terminal import METRICS
from graphrelu.lab.stats import Decision, Scores, compared, over_relu, relative_to_relu, splits_of

Plain: TypeAlias = dict[str, Any]
Cell: TypeAlias = tuple[str, str, str]  # dataset, backbone, what tells its settings from others'
Runs: TypeAlias = dict[Cell, dict[str, list[Result]]]  # cell -> variant -> runs
Decisions: TypeAlias = Mapping[str, Decision]
Leads: TypeAlias = dict[tuple[Cell, str], Decision]

CURVE_POINTS = 30
BAND = (10, 50, 90)  # percentiles
PLANNED = (
    "Differences are paired by seed. The intervals of an activation share Holm's correction over "
    "all networks and graphs, except where a comparison was made on its own. Better or worse: the "
    "interval lies above or below 0. No difference that matters: it lies within the margin, 0.5 "
    "unless another was chosen."
)


def tables_of(
    results: Sequence[Result], source: str, decided: Mapping[str, Decisions] | None = None
) -> list[Plain]:
    """A table for a record; errors, which are no shares, have one of their own.

    ``decided`` are the decisions on comparisons, by the key of their cell. All other cells are
    those of a table whose runs were fixed beforehand."""
    parts: dict[str, list[Result]] = {}
    for result in results:
        name = f"{source}, errors" if result.config.metric in ERRORS else source
        parts.setdefault(name, []).append(result)
    return [_table(part, name, decided or {}) for name, part in parts.items()]


def runs_by_cell(results: Sequence[Result]) -> Runs:
    """The runs that are compared with each other: the same graph, backbone and settings."""
    cells: Runs = {}
    for result in results:
        config = result.config
        settings = json.dumps(config.shared_settings, sort_keys=True)
        cell = (config.dataset, config.backbone, settings)
        cells.setdefault(cell, {}).setdefault(config.variant, []).append(result)
    position = in_order(*dict.fromkeys((*NODE_DATASETS, *GRAPH_DATASETS, *TABLE, *GRAPH_BACKBONES)))
    return dict(sorted(cells.items(), key=lambda item: position(item[0][:2])))


def planned_leads(cells: Runs) -> Leads:
    """Differences to ReLU in a table whose runs were fixed beforehand: in one cell as in any
    comparison, else with Holm's correction over the cells of each activation."""
    found: Leads = {}
    families: dict[str, dict[Cell, tuple[Scores, Scores]]] = {}
    splits = {}
    for cell, by_name in cells.items():
        first = next(iter(by_name.values()))[0]
        splits[cell], is_error = splits_of(first.config, first.note), first.config.metric in ERRORS
        scores: dict[str, Scores] = {
            name: {run.seed: run.score for run in own} for name, own in by_name.items()
        }
        if len(cells) == 1:
            leads = over_relu(scores, splits[cell], looks=(None, None), is_error=is_error)
            return {(cell, name): lead for name, lead in leads.items()}
        if is_error:
            scores |= relative_to_relu(scores)
        for name in scores.keys() - {"relu"}:
            families.setdefault(name, {})[cell] = scores[name], scores.get("relu", {})
    for name, family in families.items():
        found |= {(cell, name): lead for cell, lead in compared(family, splits).items()}
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
        "diverged": divergence.sentence(results),
    }


def _table(results: Sequence[Result], name: str, decided: Mapping[str, Decisions]) -> Plain:
    cells = runs_by_cell(results)
    keys = {cell: next(iter(own.values()))[0].config.cell_key() for cell, own in cells.items()}
    leads = planned_leads({cell: own for cell, own in cells.items() if keys[cell] not in decided})
    for cell, key in keys.items():
        leads |= {(cell, which): lead for which, lead in decided.get(key, {}).items()}
    titles = {cell[0]: label(cell[0]) for cell in cells}
    if len(set(titles.values())) < len(titles):  # two editions of a user's file
        titles = {name: name for name in titles}
    rows, settings = [], []
    for cell, by_name in cells.items():
        names = {"dataset": titles[cell[0]], "backbone": label(cell[1]) + _difference(cell, cells)}
        rows += _rows(by_name, names, {which: leads.get((cell, which)) for which in by_name})
        configs = [runs[0].config for runs in by_name.values()]
        same = {"dataset": None, "backbone": None}  # the page names them
        settings.append({**names, "settings": {label_of(c): c.to_dict() | same for c in configs}})
    note = PLANNED
    if len(cells) == 1:
        note = reading({which: lead for (_, which), lead in leads.items()})
    origin = origin_of(results)
    return {"name": name, "rows": rows, "cells": settings, "note": note, "origin": origin}


def _rows(
    by_name: Mapping[str, list[Result]], names: Plain, leads: Mapping[str, Decision | None]
) -> list[Plain]:
    """The rows of a cell, in the order of the table of activations."""
    rows, position = [], in_order(*ACTIVATIONS)
    configs = {which: runs[0].config for which, runs in by_name.items()}
    place = {which: (position([c.activation]), label_of(c)) for which, c in configs.items()}
    for which in sorted(by_name, key=lambda which: place[which]):
        runs, config, lead = by_name[which], configs[which], leads[which]
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
                "classes": by_class(runs, [] if which == "relu" else by_name.get("relu", [])),
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


def _difference(cell: Cell, cells: Iterable[Cell]) -> str:
    """The settings that differ between cells of the same graph and backbone; may be empty."""
    alike = [json.loads(other[2]) for other in cells if other[:2] == cell[:2]]
    if len(alike) < 2:
        return ""
    own, *others = (
        s.pop("backbone_options", {}) | s.pop("training_options", {}) | s
        for s in (json.loads(cell[2]), *alike)
    )
    values = {name: {str(other.get(name)) for other in others} for name in own}
    # What tells most cells apart comes first: on a phone the end is cut off.
    names = sorted((name for name in own if len(values[name]) > 1), key=lambda n: -len(values[n]))
    return f" ({', '.join(f'{name} {own[name]}' for name in names)})"
