"""``graphrelu compare``: train each activation on one graph, and say which is better."""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import torch
import typer

from graphrelu.lab import data as on_disk
from graphrelu.lab import engine as training
from graphrelu.lab import page, render
from graphrelu.lab.cli import COMMANDS, Device, Root, check_ending, check_runs, names
from graphrelu.lab.data.graph import Graph, GraphSet
from graphrelu.lab.data.splits import GraphSplit, SetSplit
from graphrelu.lab.engine import split_for
from graphrelu.lab.engine.graph_training import build_network, network_of
from graphrelu.lab.engine.scores import TASKS
from graphrelu.lab.engine.train import build
from graphrelu.lab.errors import INTERRUPTED, check_name, one_sentence
from graphrelu.lab.models.backbones import NORMS
from graphrelu.lab.record.config import Config, Metric
from graphrelu.lab.record.machine import check_file, check_folder, surroundings, write_json
from graphrelu.lab.record.recipes import (
    ACTIVATIONS,
    BACKBONES,
    DEEP,
    DEEP_NETWORK,
    NETWORK,
    NODE_DATASETS,
    SET_BACKBONES,
    SETS,
    compared,
    modern,
    on_sets,
    recipe,
)
from graphrelu.lab.record.results import Look, Record, Result, check_record
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
GRAPH_SETTINGS = ("patience",)  # not of sets
SET_SETTINGS = ("target", "pooling", "head_layers", "rwse", "virtual_node", "batch_size")
SETTINGS = (
    *("split", "metric", "hidden", "epochs", "lr", "weight_decay", "dropout"),
    *(*DEEP_SETTINGS, *GRAPH_SETTINGS, *SET_SETTINGS),
)
SET_DEFAULTS = {"esol": {"layers": 6, "epochs": 40}}  # about 90 s on two cores
LONG = 600.0  # seconds
TRIED_EPOCHS, TRIED_RUNS = 3, 10
COMPARED_ON_SETS = ("relu", "gelu", "grelu")
LABELS = {"classes": "classes", "labels": "labels, any number at once", "values": "values"}

app = typer.Typer(add_completion=False, rich_markup_mode=None)

OTHERS = tuple(name for name in on_disk.NAMES if name not in NODE_DATASETS)
DATASET = (
    f"{', '.join(NODE_DATASETS)} (the paper's, with its settings); {', '.join(OTHERS)}; your "
    ".npz, .pt, or edges.csv beside nodes.csv; csbm:NAME=VALUE,... (generated). Sets of "
    f"graphs: {', '.join(on_disk.GRAPH_NAMES)}; your .csv of SMILES; graphs:FILE.pt; ogbg-NAME; "
    "sets:NAME=VALUE,... (generated). Either: pyg:CLASS/NAME."
)
NAMES = (
    f"Default: {','.join(compared())}; the paper's graphs {','.join(ACTIVATIONS)}; sets "
    f"{','.join(COMPARED_ON_SETS)}."
)
SPLIT = (
    "random (20 nodes per class, or 48 % of a small graph), full (60 / 20 / 20 %), masks. Sets: "
    "random (80 / 10 / 10 %), scaffold, folds (ten), column. Default: masks or column if there are "
    "any, but random on the paper's graphs."
)
METRIC = (
    "Classes: accuracy, f1, rocauc; labels: rocauc, f1, ap, accuracy; values: mae, r2, rmse. "
    "Default: the first; rocauc for two classes of nodes."
)


def _option(told: str) -> Any:
    return typer.Option(help=told)


def _default(name: str) -> str:
    """Of single graphs, of sets of graphs and of those that have their own, where these differ."""
    usual, of_sets = (DEEP | DEEP_NETWORK | DEFAULTS)[name], (SETS | NETWORK)[name]
    others = [] if of_sets == usual else [f"sets {of_sets}"]
    others += [f"{dataset} {own[name]}" for dataset, own in SET_DEFAULTS.items() if name in own]
    return f"Default: {'; '.join([str(usual), *others])}."


@app.command(
    help=f"{COMMANDS['compare']} Every activation has the same seeds, splits and settings.",
    epilog="Example: graphrelu compare cora --backbone gat --runs 30 --json cora.json",
)
def compare(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(help=DATASET)] = "digits",
    activations: Annotated[str | None, _option(NAMES)] = None,
    runs: Annotated[
        int | None,
        _option(f"Seeds. Default: {RUNS}; with --until-decided at most {MOST_RUNS}."),
    ] = None,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help=f"Start with {FIRST_LOOK} seeds; double until GReLU against ReLU is decided.",
        ),
    ] = False,
    margin: Annotated[float, _option("The largest difference that does not matter.")] = MARGIN,
    out: Annotated[Path | None, _option("Keep runs here (.jsonl), or continue them.")] = None,
    report: Annotated[Path | None, _option("Write a page here (.html).")] = None,
    json: Annotated[Path | None, _option("Write table and scores here.")] = None,
    data: Root = None,
    device: Device = "auto",
    engine: Annotated[
        str | None,
        _option("local, N processes, or ray. Default: local; sets on a CPU all cores."),
    ] = None,
    split: Annotated[str | None, _option(SPLIT)] = None,
    metric: Annotated[str | None, _option(METRIC)] = None,
    target: Annotated[
        str | None, _option("Columns of SMILES to predict. Default: all but smiles, split.")
    ] = None,
    backbone: Annotated[
        str, _option(f"{', '.join(BACKBONES)}, gin; sets: {', '.join(SET_BACKBONES)}.")
    ] = "gcn",
    layers: Annotated[int | None, _option(f"Convolutions. {_default('layers')}")] = None,
    hidden: Annotated[int | None, _option(f"Hidden units. {_default('hidden')}")] = None,
    norm: Annotated[str | None, _option(f"layer, batch or none. {_default('norm')}")] = None,
    residual: Annotated[bool | None, _option("Skip connections. Default: yes.")] = None,
    dropout: Annotated[float | None, _option(f"Dropout rate. {_default('dropout')}")] = None,
    pooling: Annotated[str | None, _option("Sets: mean, sum or max. Default: mean.")] = None,
    head_layers: Annotated[
        int | None, _option("Sets: layers after the pooling. Default: 2.")
    ] = None,
    rwse: Annotated[
        int | None, _option("Sets: steps of random-walk encodings. Default: 0.")
    ] = None,
    virtual_node: Annotated[
        bool | None, typer.Option("--virtual-node", help="Sets: add a node joined to all others.")
    ] = None,
    epochs: Annotated[int | None, _option(f"At most this many. {_default('epochs')}")] = None,
    patience: Annotated[
        int | None,
        _option("Single graphs: epochs to wait for progress; 0: forever. Default: 20."),
    ] = None,
    lr: Annotated[float | None, _option(f"Learning rate. {_default('lr')}")] = None,
    weight_decay: Annotated[
        float | None, _option(f"L2 penalty. {_default('weight_decay')}")
    ] = None,
    batch_size: Annotated[
        int | None, _option("Sets: graphs in a mini-batch. Default: 128.")
    ] = None,
) -> None:
    settings = {name: ctx.params[name] for name in SETTINGS}
    with one_sentence(INTERRUPTED if out else "Interrupted."):
        runs = (MOST_RUNS if until_decided else RUNS) if runs is None else runs
        check_runs(runs)
        check_margin(margin)
        where = training.choose_device(device)
        _check_files(out, json, report)
        deep = wants_deep(dataset, settings)
        usual = compared() if deep else ACTIVATIONS
        if on_disk.holds_graphs(dataset):
            usual = COMPARED_ON_SETS
        activations = activations or ",".join(usual)
        if until_decided and not {"relu", "grelu"} <= set(names(activations)):
            raise ValueError("until-decided needs relu and grelu among the activations.")
        if engine is not None:
            training.check_pool(engine)
        graph, configs = prepare(
            dataset, backbone, names(activations), range(runs), root=data, deep=deep, **settings
        )
        screen = render.console()
        screen.print(render.headline(graph, configs[0], runs, until_decided))
        if graph.note:
            screen.print(graph.note)
        record = Record(out or record_in_cache(graph.name))
        given = {"backbone": backbone, "activations": activations, "margin": margin}
        given |= {"until_decided": until_decided or None, "data": data} | settings
        given |= {"device": None if device == "auto" else device, "engine": engine}
        command = command_of(dataset, given)
        repeat = f"{command} --runs {runs}"
    go_on = f"Interrupted; continue with: {repeat} --out {shlex.quote(str(record.path))}"
    with one_sentence(INTERRUPTED if out else go_on):
        splits = splits_in(graph, configs[0])
        record.add_look(Look.announced(configs[0], margin, splits, command))
        how: dict[str, Any] = {"graphs": {configs[0].dataset: graph}, "device": device}
        pool = engine or pool_for(graph, where, runs * len(configs))
        left = sum(len(record.left(config, range(runs))) for config in configs)
        if left and pool != "ray":
            at_once = 1 if isinstance(graph, GraphSet) else min(runs, TRIED_RUNS)
            trial = partial(training.run, seeds=range(at_once), record=None, **how)
            seconds = seconds_of_a_run(trial, configs) * left
            if pool != "local":
                seconds /= min(int(pool), left)
            if seconds > LONG:
                screen.print(
                    f"This may take up to {seconds / 60:,.0f} minutes; fewer --runs, --epochs or "
                    "--activations shorten it."
                )
        for look in looks_until(runs) if until_decided else [runs]:
            with render.progress_bar() as progress:
                results = training.run(
                    configs, range(look), record, root=data, progress=progress, pool=pool, **how
                )
            found = decide_at_look(record, results)
            if decided(found.decisions):
                break
        rows = render.compare_rows(results, found.decisions)
        verdict = render.verdict(rows)
        further = render.going_on(verdict, command, record.path)
        if report is not None:
            page.write(report, page.from_comparison(results, found, graph, record.path, repeat))
        screen.print(f"Split: {render.split_rule(results)}.")
        screen.print("", render.compare_table(rows), "", sep="\n")
        notes = (render.compare_notes(rows), render.diverged(results))
        screen.print(*filter(None, notes), sep="\n")
        screen.print(verdict.sentence, style="bold")
        if further:
            screen.print(f"Continue with: {further}", soft_wrap=True)
        if json is not None:
            content = to_json(graph, results, rows, verdict.sentence, further, where)
            write_json(json, content)
        if report is not None:
            screen.print(f"Page: {report}", soft_wrap=True)
        if out is None:
            screen.print(f"Runs: {record.path}", soft_wrap=True)


def record_in_cache(name: str) -> Path:
    """A new record in the user's cache folder, for a comparison that names none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = check_folder(cache / "graphrelu" / "runs")
    folder.mkdir(parents=True, exist_ok=True)
    prefix = "".join(letter if letter.isalnum() else "-" for letter in name)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=folder)) / "runs.jsonl"


def seconds_of_a_run(
    trial: Callable[[Sequence[Config]], list[Result]], configs: Sequence[Config]
) -> float:
    """How long a run takes at most, by a few epochs of GReLU, which costs the most."""
    config = next((c for c in configs if c.activation == "grelu"), configs[-1])
    short = replace(config, epochs=min(config.epochs, TRIED_EPOCHS), patience=0)
    times = [run.seconds / (run.epochs_computed or short.epochs) for run in trial([short])]
    return min(times) * config.epochs


def _check_files(record: Path | None, json: Path | None, report: Path | None) -> None:
    """Raise a ``ValueError`` unless each file can be written, and no two are the same."""
    files = [path for path in (record, json, report) if path is not None]
    if len({path.resolve() for path in files}) < len(files):
        raise ValueError("The record, the summary and the page must be different files.")
    if record is not None:
        check_ending(check_record(record), ".jsonl", "a record")
    if report is not None:
        check_ending(check_file(report), ".html", "a page")
    if json is not None:
        check_file(json)


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
    """Whether a comparison is on a deep network: on every graph but the paper's, and wherever a
    setting of deep networks is given."""
    asked = any(settings.get(name) is not None for name in DEEP_SETTINGS)
    return asked or dataset.lower() not in NODE_DATASETS


def pool_for(graph: Graph | GraphSet, device: torch.device, runs: int) -> str:
    """Runs on small graphs share the cores of a CPU best as processes of one thread each."""
    cores = min(os.cpu_count() or 1, runs)
    side_by_side = isinstance(graph, GraphSet) and device.type == "cpu" and cores > 1
    return str(cores) if side_by_side else "local"


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
    network arguments of :func:`~graphrelu.lab.record.recipes.modern`, on a set of graphs those of
    :func:`~graphrelu.lab.record.recipes.on_sets`. The recipe decides what is ``None``, the graph on
    its split and metric; the norm ``"none"`` means no norm.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    is_set = on_disk.holds_graphs(dataset)
    for name in GRAPH_SETTINGS if is_set else SET_SETTINGS:
        if name in settings:
            what, option = ("a set of graphs" if is_set else "one graph"), name.replace("_", "-")
            raise ValueError(f"{dataset} is {what}, which takes no --{option}.")
    splits = get_args(SetSplit if is_set else GraphSplit)
    for name, choices in (("split", splits), ("metric", get_args(Metric))):
        if name in settings:
            settings[name] = check_name(name, settings[name], choices)
    if "norm" in settings:
        name = check_name("norm", settings["norm"], (*NORMS, "none"))
        settings["norm"] = None if name == "none" else name
    targets = [name.strip() for name in settings.pop("target", "").split(",") if name.strip()]
    if "rwse" in settings:
        settings["walks"] = settings.pop("rwse")
    if "batch_size" in settings:
        settings["training_options"] = {"batch_size": settings.pop("batch_size")}
    if is_set:
        settings = {**SET_DEFAULTS.get(dataset, {}), **settings}

    def cell(name: str, activation: str) -> Config:
        if is_set:
            return on_sets(name, backbone, activation, **settings)
        if deep:
            return modern(name, backbone, activation, **{**DEFAULTS, **settings})
        return recipe(name, backbone, activation, **settings)

    # Once without the graph, to find a misspelt name before anything is downloaded.
    configs = [cell("any", name) for name in activations]
    graph: Graph | GraphSet
    metric: Metric | None = None
    if is_set:
        network_of(configs[0])
        graph = on_disk.load_graphs(dataset, root, targets, settings.get("split"))
        own = "random" if graph.split is None else "column"
    else:
        graph = on_disk.load(dataset, root)
        if deep and graph.task == "classes" and graph.num_classes == 2:
            metric = "rocauc"
        # A graph that comes with splits has been compared on them; the paper's are split at random.
        has_masks = None not in (graph.train_mask, graph.val_mask, graph.test_mask)
        papers = not deep or dataset.lower() in NODE_DATASETS
        own = "masks" if has_masks and not papers else "random"
    settings.setdefault("split", own)
    settings["metric"] = _metric(graph, settings.get("metric"), metric)
    name = identity(dataset, graph)
    if targets:
        name = f"{','.join(targets)} of {name}"
    configs = [cell(name, config.activation) for config in configs]
    for seed in seeds:
        split_for(configs[0], graph, seed)
    # Finds widths that do not fit before the training.
    if isinstance(graph, GraphSet):
        build_network(configs[0], graph, 0)
    else:
        build(configs[0], graph, 0)
    return graph, configs


def _metric(graph: Graph | GraphSet, asked: Metric | None, usual: Metric | None) -> Metric:
    """The metric that was asked for, if it fits the labels; else the usual one."""
    known = tuple(TASKS[graph.task].scores)
    if asked is None:
        return usual or known[0]
    if asked not in known:
        raise ValueError(
            f"The metric {asked} does not fit {graph.name}, whose y holds {LABELS[graph.task]}; "
            f"choose from {', '.join(known)}."
        )
    return asked


def identity(dataset: str, graph: Graph | GraphSet) -> str:
    """The graph's name; of files also their content: no record mixes two versions of them."""
    contents = [path.read_bytes() for path in on_disk.files_of(dataset)]
    hashes = "".join(hashlib.sha256(content).hexdigest()[:8] for content in contents)
    return f"{graph.name}@{hashes}" if hashes else graph.name


def splits_in(graph: Graph | GraphSet, config: Config) -> Splits:
    """The sizes of the splits of a comparison, and what they share."""
    split = partial(split_for, config, graph)
    known = splits_of(config, split(0).note)
    return measured(split, range(known.count or 10), int((graph.strata >= 0).sum()), known)


def to_json(
    graph: Graph | GraphSet,
    results: Sequence[Result],
    rows: Sequence[render.CompareRow],
    verdict: str,
    command: str,
    device: torch.device,
) -> dict[str, Any]:
    """Everything about a comparison in plain JSON types; the rows are in percent, or errors, and
    ``table`` as they are shown. The command continues what is undecided."""
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
        "split": render.split_rule(results),
        "verdict": verdict,
        "next": command,
        "table": render.compare_cells(rows),
        "rows": [asdict(row) for row in rows],
        "configs": {result.config.activation: result.config.to_dict() for result in results},
        "runs": [{name: run[name] for name in run if name != "config"} for run in runs],
        **surroundings(device),
    }
