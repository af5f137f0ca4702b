"""What ``graphrelu compare`` trains: one graph, one backbone, several activations, and the same
settings for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import torch

from graphrelu.lab import data
from graphrelu.lab.data.folds import NUM_FOLDS, fold_split
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.graph_set import GraphSet
from graphrelu.lab.data.own_files import sha256
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.fold_train import build_graph_model
from graphrelu.lab.engine.scores import TASKS
from graphrelu.lab.engine.train import build
from graphrelu.lab.models.backbones import NORMS
from graphrelu.lab.record import machine
from graphrelu.lab.record.config import FOLD_SPLITS, GIN_SPLITS, Config, Metric, SplitName
from graphrelu.lab.record.recipes import (
    GRAPH_DATASETS,
    NODE_DATASETS,
    check_name,
    graph_cell,
    modern,
    recipe,
)
from graphrelu.lab.record.results import Result
from graphrelu.lab.render.tables import CompareRow, Verdict, compare_cells
from graphrelu.lab.stats import Splits, measured, splits_of

# Of a comparison on a deep network: a minute or two for a small graph on two cores.
DEFAULTS = {"epochs": 200, "patience": 20, "progress": "either"}
DEEP_SETTINGS = ("norm", "residual", "layers")
MEANING = {"classes": "classes", "labels": "labels, any number of each node", "values": "values"}


def wants_deep(dataset: str, settings: Mapping[str, Any]) -> bool:
    """Whether a comparison is on a deep network: on every graph and set of graphs but the paper's,
    and wherever a setting of deep networks is given; the paper's of graphs have layers, too. The
    protocol gin_paper has networks of its own."""
    if str(settings.get("split")).lower() == "gin_paper":
        return False
    names = DEEP_SETTINGS[:2] if data.holds_graphs(dataset) else DEEP_SETTINGS
    asked = any(settings.get(name) is not None for name in names)
    return asked or dataset.lower() not in (*NODE_DATASETS, *GRAPH_DATASETS)


def prepare(
    dataset: str,
    backbone: str,
    activations: Iterable[str],
    seeds: Iterable[int],
    *,
    root: str | Path | None = None,
    deep: bool = False,
    **settings: Any,
) -> tuple[Graph | GraphSet, list[Config]]:
    """Load a graph or a set of graphs, and make the configuration of each activation.

    ``settings`` are the same for every activation: fields of :class:`Config`, and in a ``deep``
    network arguments of :func:`~graphrelu.lab.record.recipes.modern`. The recipe decides what is
    ``None``, the graph on its split and metric; the norm ``"none"`` means no norm.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, choices in (("split", SplitName), ("metric", Metric)):
        if name in settings:
            settings[name] = check_name(name, settings[name], get_args(choices))
    if "norm" in settings:
        name = check_name("norm", settings["norm"], (*NORMS, "none"))
        settings["norm"] = None if name == "none" else name
    if data.holds_graphs(dataset):
        return _prepare_graphs(dataset, backbone, activations, list(seeds), root, deep, settings)

    def cell(name: str, family: str, activation: str) -> Config:
        if not deep:
            return recipe(name, family, backbone, activation, **settings)
        return modern(name, backbone, activation, **{**DEFAULTS, **settings})

    # Once without the graph, to find a misspelt name before anything is downloaded.
    activations = [cell("any", "other", name).activation for name in activations]
    graph = data.load(dataset, root)
    # A graph that comes with splits has been compared on them; the paper's are split at random.
    has_masks = None not in (graph.train_mask, graph.val_mask, graph.test_mask)
    own = deep and has_masks and dataset.lower() not in NODE_DATASETS
    settings.setdefault("split", "masks" if own else "random")
    settings["metric"] = _metric(graph, settings.get("metric"), deep)
    for seed in seeds:
        make_split(graph, seed, settings["split"])
    configs = [cell(identity(dataset, graph), graph.family, name) for name in activations]
    build(configs[0], graph, 0)  # finds a width that the heads cannot share before the training
    return graph, configs


def _metric(graph: Graph | GraphSet, asked: Metric | None, deep: bool) -> Metric:
    """The metric that was asked for, if it fits the labels; else the usual one."""
    known: tuple[Metric, ...] = tuple(TASKS[graph.task].scores)
    if asked is None:
        binary = deep and isinstance(graph, Graph) and graph.num_classes == 2
        return "rocauc" if binary and "rocauc" in known else known[0]
    if asked not in known:
        raise ValueError(
            f"The metric {asked} does not fit {graph.name}, whose y holds {MEANING[graph.task]}; "
            f"known are {', '.join(known)}."
        )
    return asked


def _prepare_graphs(
    dataset: str,
    backbone: str,
    activations: Iterable[str],
    seeds: Sequence[int],
    root: str | Path | None,
    deep: bool,
    settings: dict[str, Any],
) -> tuple[GraphSet, list[Config]]:
    for name in ("patience", "normalize_features"):
        if name in settings:
            raise ValueError(f"{dataset} is a set of graphs, whose training takes no {name}.")
    split = settings.get("split", "random")
    split = "folds" if split == "random" else split
    if split not in FOLD_SPLITS:
        known = ", ".join(FOLD_SPLITS)
        raise ValueError(f"{dataset} is a set of graphs, whose splits are {known}, not {split}.")
    settings["split"] = split
    for name in DEEP_SETTINGS[:2]:
        if name in settings and not deep:
            raise ValueError(f"The networks of the split {split} take no {name}.")
    cell = modern if deep else graph_cell
    configs = [cell(dataset, backbone, name, **settings) for name in activations]
    if split in GIN_SPLITS and len(seeds) % NUM_FOLDS:
        raise ValueError(
            f"runs must be a multiple of {NUM_FOLDS} for the split {split}, which chooses an "
            f"epoch for all folds, not {len(seeds)}."
        )
    graphs = data.load_graphs(dataset, root)
    if split in GIN_SPLITS and graphs.task != "classes":
        raise ValueError(f"The split {split} chooses an epoch by accuracy, so y must be classes.")
    metric = _metric(graphs, settings.get("metric"), deep)
    for seed in seeds:
        fold_split(graphs.strata, seed, split)
    name = identity(dataset, graphs)
    configs = [replace(config, dataset=name, metric=metric) for config in configs]
    build_graph_model(configs[0], graphs, 0)
    return graphs, configs


def splits_in(graph: Graph | GraphSet, config: Config) -> Splits:
    """The sizes of the splits of a comparison, and what they share."""

    def split(seed: int) -> Split:
        if isinstance(graph, GraphSet):
            return fold_split(graph.strata, seed, config.split)
        return make_split(graph, seed, config.split)

    known = splits_of(config, split(0).note)
    return measured(split, range(known.count or 10), int((graph.strata >= 0).sum()), known)


def split_rule(results: Sequence[Result]) -> str:
    """How the nodes were split."""
    notes = list(dict.fromkeys(result.note for result in results))
    return notes[0] if len(notes) == 1 else f"{notes[0]}, and {len(notes) - 1} more"


def to_json(
    graph: Graph | GraphSet,
    results: Sequence[Result],
    rows: Sequence[CompareRow],
    verdict: Verdict,
    command: str | None,
    device: torch.device,
) -> dict[str, Any]:
    """Everything about a comparison in plain JSON types; the rows are in percent, or errors, and
    ``table`` as they are shown. The command goes on with what is undecided."""
    config = results[0].config
    runs = [{"activation": r.config.activation, **r.to_dict()} for r in results]
    return {
        "dataset": config.dataset,
        **({"graphs": graph.num_graphs} if isinstance(graph, GraphSet) else {}),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "task": graph.task,
        "classes": graph.num_classes,
        "backbone": config.backbone,
        "metric": config.metric,
        "split": split_rule(results),
        "verdict": verdict.sentence,
        "next": command,
        "table": compare_cells(rows),
        "rows": [asdict(row) for row in rows],
        "configs": {result.config.activation: result.config.to_dict() for result in results},
        "runs": [{name: run[name] for name in run if name != "config"} for run in runs],
        "device": machine.device_name(device),
        "versions": machine.environment(),
        "commit": machine.commit(),
        "date": machine.now(),
    }


def identity(dataset: str, graph: Graph | GraphSet) -> str:
    """The graph's name; of files also their content: no record mixes two versions of them."""
    files = data.files_of(dataset)
    if not files:
        return graph.name
    return f"{graph.name}@{''.join(sha256(path)[:8] for path in files)}"
