"""``graphrelu compare``: train each activation on one graph, and say which is better."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import torch
import typer

from graphrelu.lab import data as on_disk
from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS
from graphrelu.lab.cli.options import (
    INTERRUPTED,
    Device,
    Root,
    check_ending,
    check_runs,
    names,
    one_sentence,
)
from graphrelu.lab.data.fold_set import FoldSet as GraphSet
from graphrelu.lab.data.fold_set import load_fold_set
from graphrelu.lab.data.folds import NUM_FOLDS, fold_split
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.data.own_files import sha256
from graphrelu.lab.data.splits import Split, make_split
from graphrelu.lab.engine.fold_train import build_graph_model
from graphrelu.lab.engine.scores import TASKS
from graphrelu.lab.engine.train import build
from graphrelu.lab.models.backbones import NORMS
from graphrelu.lab.names import check_name
from graphrelu.lab.record import divergence, machine, output
from graphrelu.lab.record.config import FOLD_SPLITS, GIN_SPLITS, Config, Metric, SplitName
from graphrelu.lab.record.looks import Look
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    GRAPH_BACKBONES,
    GRAPH_DATASETS,
    NODE_DATASETS,
    compared,
    graph_cell,
    modern,
    recipe,
)
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import tables, terminal
from graphrelu.lab.stats import (
    FIRST_LOOK,
    MARGIN,
    Splits,
    check_margin,
    decide_at_look,
    decided,
    looks_until,
    measured,
    splits_of,
)

RUNS, MOST_RUNS = 10, 80
# Of a comparison on a deep network: a minute or two for a small graph on two cores.
DEFAULTS = {"epochs": 200, "patience": 20, "progress": "either"}
DEEP_SETTINGS = ("norm", "residual", "layers")
LABELS = {"classes": "classes", "labels": "labels, any number of each node", "values": "values"}

app = typer.Typer(add_completion=False)

DATASET = (
    f"{', '.join(on_disk.NAMES)}; your .npz, .pt, or edges.csv beside nodes.csv; pyg:CLASS/NAME; "
    "ogbn-NAME; csbm:NAME=VALUE,... (generated). Sets of graphs: "
    f"{', '.join(on_disk.GRAPH_NAMES)}; graphs:FILE.pt."
)
BACKBONE = f"{', '.join(BACKBONES)}, gin; for sets of graphs {', '.join(GRAPH_BACKBONES)}."
NAMES = f"Default: {','.join(compared())}; on the paper's graphs {','.join(ACTIVATIONS)}."
SEEDS = f"Seeds of each activation. Default: {RUNS}; with --until-decided at most {MOST_RUNS}."
UNTIL = f"Start with {FIRST_LOOK} seeds; double until GReLU's difference to ReLU is decided."
SPLIT = (
    "random (20 nodes per class, or 48 % of a small graph), full (60 / 20 / 20 %), masks. Default: "
    "masks if there are any, random on the paper's graphs. Sets of graphs: folds (default), "
    "gin_folds, gin_paper."
)
METRIC = (
    "Classes: accuracy, f1, rocauc; several labels: rocauc, f1; values: mae, r2. Default: the "
    "first, rocauc for two classes of nodes."
)
PATIENCE = "Epochs without a better validation score or loss before training stops; 0: never."


@app.command(
    help=f"{COMMANDS['compare']}\n\nEvery activation has the same seeds, splits and settings.",
    epilog="Example: graphrelu compare cora --backbone gat --runs 30 --json cora.json",
)
def compare(
    dataset: Annotated[str, typer.Argument(help=DATASET)] = "digits",
    backbone: Annotated[str, typer.Option(help=BACKBONE)] = "gcn",
    activations: Annotated[str | None, typer.Option(help=NAMES)] = None,
    runs: Annotated[int | None, typer.Option(help=SEEDS)] = None,
    margin: Annotated[float, typer.Option(help="Points that do not matter to you.")] = MARGIN,
    until_decided: Annotated[bool, typer.Option("--until-decided", help=UNTIL)] = False,
    device: Device = "auto",
    data: Root = None,
    json: Annotated[Path | None, typer.Option(help="Write table and scores here.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep runs here (.jsonl); the same command goes on.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page here (.html).")] = None,
    split: Annotated[str | None, typer.Option(help=SPLIT)] = None,
    metric: Annotated[str | None, typer.Option(help=METRIC)] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden units of each layer.")] = None,
    epochs: Annotated[int | None, typer.Option(help="The largest number of epochs.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 penalty.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate.")] = None,
    layers: Annotated[
        int | None, typer.Option(help="Convolutions. Default: 4, on the paper's graphs as there.")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="layer (default), batch or none.")] = None,
    residual: Annotated[bool | None, typer.Option(help="Linear skip connections.")] = None,
    patience: Annotated[int | None, typer.Option(help=PATIENCE)] = None,
    normalize_features: Annotated[
        bool | None, typer.Option(help="Features of a node sum to 1.")
    ] = None,
) -> None:
    settings: dict[str, Any] = {
        "split": split,
        "metric": metric,
        "hidden": hidden,
        "epochs": epochs,
        "lr": lr,
        "weight_decay": weight_decay,
        "dropout": dropout,
        "layers": layers,
        "norm": norm,
        "residual": residual,
        "patience": patience,
        "normalize_features": normalize_features,
    }
    from graphrelu.lab import engine

    kept = INTERRUPTED if out else "Interrupted, and nothing is kept; --out FILE keeps each run."
    scratch = None
    try:
        with one_sentence(kept):
            runs = (MOST_RUNS if until_decided else RUNS) if runs is None else runs
            check_runs(runs)
            check_margin(margin)
            where = engine.choose_device(device)
            _check_files(out, json, report)
            deep = wants_deep(dataset, settings)
            activations = activations or ",".join(compared() if deep else ACTIVATIONS)
            if until_decided and not {"relu", "grelu"} <= set(names(activations)):
                raise ValueError("until-decided needs relu and grelu among the activations.")
            graph, configs = prepare(
                dataset, backbone, names(activations), range(runs), root=data, deep=deep, **settings
            )
            screen = terminal.console()
            screen.print(terminal.headline(graph, configs[0], runs, until_decided))
            if out is None:
                scratch = Path(tempfile.mkdtemp(prefix="graphrelu-"))
            record = Record(scratch / "runs.jsonl" if scratch else Path(str(out)))
            given = {"backbone": backbone, "activations": activations, "margin": margin}
            given |= {"until_decided": until_decided or None, "data": data} | settings
            given |= {"device": None if device == "auto" else device}
            command = command_of(dataset, given)
            splits = asdict(splits_in(graph, configs[0]))
            record.add_look(Look.announced(configs[0], margin, splits, command))
            for look in looks_until(runs) if until_decided else [runs]:
                with terminal.progress_bar() as progress:
                    results = engine.run(
                        configs,
                        range(look),
                        record,
                        root=data,
                        graphs={configs[0].dataset: graph},
                        device=device,
                        progress=progress,
                    )
                found = decide_at_look(record, results)
                if decided(found.decisions):
                    break
            rows = tables.compare_rows(results, found.decisions)
            verdict = tables.verdict(rows)
            further = tables.going_on(verdict, command, record.path)
            if report is not None:
                repeat = f"{command} --runs {runs}"
                page.write(report, page.from_comparison(results, found, graph, record.path, repeat))
            screen.print(f"Split: {tables.split_rule(results)}.")
            screen.print("", terminal.compare_table(rows), "", sep="\n")
            notes = (terminal.compare_notes(rows), divergence.sentence(results))
            screen.print(*filter(None, notes), sep="\n")
            screen.print(verdict.sentence, style="bold")
            if further:
                screen.print(f"Go on with: {further}", soft_wrap=True)
            if json is not None:
                content = to_json(graph, results, rows, verdict.sentence, further, where)
                output.write_json(json, content)
            if report is not None:
                screen.print(f"Page: {report}", soft_wrap=True)
            if further:  # that record holds the look
                scratch = None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _check_files(record: Path | None, json: Path | None, report: Path | None) -> None:
    """Raise a ``ValueError`` unless each file can be written, and no two are the same."""
    files = [path for path in (record, json, report) if path is not None]
    for i, path in enumerate(files):
        if path.resolve() in [other.resolve() for other in files[:i]]:
            raise ValueError(f"{path} cannot be two of record, summary and page at once.")
    if record is not None:
        check_ending(output.check_record(record), ".jsonl", "a record")
    if report is not None:
        check_ending(output.check_file(report), ".html", "a page")
    if json is not None:
        output.check_file(json)


def command_of(dataset: str, options: Mapping[str, Any]) -> str:
    """``graphrelu compare`` with all options that are not ``None``."""
    words = ["graphrelu", "compare", dataset]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def wants_deep(dataset: str, settings: Mapping[str, Any]) -> bool:
    """Whether a comparison is on a deep network: on every graph and set of graphs but the paper's,
    and wherever a setting of deep networks is given; the paper's of graphs have layers, too. The
    protocol gin_paper has networks of its own."""
    if str(settings.get("split")).lower() == "gin_paper":
        return False
    of_deep = DEEP_SETTINGS[:2] if on_disk.holds_graphs(dataset) else DEEP_SETTINGS
    asked = any(settings.get(name) is not None for name in of_deep)
    return asked or dataset.lower() not in (*NODE_DATASETS, *GRAPH_DATASETS)


def prepare(
    dataset: str,
    backbone: str,
    activations: Iterable[str],
    seeds: Sequence[int],
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
    if on_disk.holds_graphs(dataset):
        return _prepare_graphs(dataset, backbone, activations, seeds, root, deep, settings)

    def cell(name: str, family: str, activation: str) -> Config:
        if not deep:
            return recipe(name, family, backbone, activation, **settings)
        return modern(name, backbone, activation, **{**DEFAULTS, **settings})

    # Once without the graph, to find a misspelt name before anything is downloaded.
    activations = [cell("any", "other", name).activation for name in activations]
    graph = on_disk.load(dataset, root)
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
    graphs = load_fold_set(dataset, root)
    if split in GIN_SPLITS and graphs.task != "classes":
        raise ValueError(f"The split {split} chooses an epoch by accuracy, so y must be classes.")
    metric = _metric(graphs, settings.get("metric"), deep)
    for seed in seeds:
        fold_split(graphs.strata, seed, split)
    name = identity(dataset, graphs)
    configs = [replace(config, dataset=name, metric=metric) for config in configs]
    build_graph_model(configs[0], graphs, 0)
    return graphs, configs


def _metric(graph: Graph | GraphSet, asked: Metric | None, deep: bool) -> Metric:
    """The metric that was asked for, if it fits the labels; else the usual one."""
    known: tuple[Metric, ...] = tuple(TASKS[graph.task].scores)
    if asked is None:
        binary = deep and isinstance(graph, Graph) and graph.num_classes == 2
        return "rocauc" if binary and "rocauc" in known else known[0]
    if asked not in known:
        raise ValueError(
            f"The metric {asked} does not fit {graph.name}, whose y holds {LABELS[graph.task]}; "
            f"known are {', '.join(known)}."
        )
    return asked


def identity(dataset: str, graph: Graph | GraphSet) -> str:
    """The graph's name; of files also their content: no record mixes two versions of them."""
    hashes = "".join(sha256(path)[:8] for path in on_disk.files_of(dataset))
    return f"{graph.name}@{hashes}" if hashes else graph.name


def splits_in(graph: Graph | GraphSet, config: Config) -> Splits:
    """The sizes of the splits of a comparison, and what they share."""

    def split(seed: int) -> Split:
        if isinstance(graph, GraphSet):
            return fold_split(graph.strata, seed, config.split)
        return make_split(graph, seed, config.split)

    known = splits_of(config, split(0).note)
    return measured(split, range(known.count or 10), int((graph.strata >= 0).sum()), known)


def to_json(
    graph: Graph | GraphSet,
    results: Sequence[Result],
    rows: Sequence[tables.CompareRow],
    verdict: str,
    command: str,
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
        "split": tables.split_rule(results),
        "verdict": verdict,
        "next": command,
        "table": tables.compare_cells(rows),
        "rows": [asdict(row) for row in rows],
        "configs": {result.config.activation: result.config.to_dict() for result in results},
        "runs": [{name: run[name] for name in run if name != "config"} for run in runs],
        **machine.surroundings(device),
    }
