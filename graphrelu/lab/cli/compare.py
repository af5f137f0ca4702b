"""``graphrelu compare``: train each activation on one graph, and say which is better."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab import data as on_disk
from graphrelu.lab import page
from graphrelu.lab.cli.options import (
    INTERRUPTED,
    Device,
    Root,
    check_ending,
    check_runs,
    names,
    one_sentence,
    standing,
)
from graphrelu.lab.prepare import prepare, split_rule, splits_in, to_json, wants_deep
from graphrelu.lab.record import divergence, output
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, GRAPH_BACKBONES, compared
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import tables, terminal
from graphrelu.lab.render.loggers import TensorBoard
from graphrelu.lab.render.tables import going_on, verdict
from graphrelu.lab.stats import (
    FIRST_LOOK,
    MARGIN,
    announce,
    check_margin,
    decide_at_look,
    decided,
    looks_until,
)

RUNS, MOST_RUNS = 10, 80
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
    log: Annotated[Path | None, typer.Option(help="Folder of curves for TensorBoard.")] = None,
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
    """Train each activation on a graph, and say whether GReLU is better than ReLU there."""
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
            _check_files(out, json, report, log)
            board = None if log is None else _board(log)
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
            command = page.compare_command(dataset, given)
            announce(record, configs[0], margin, splits_in(graph, configs[0]), command)
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
                if not results:  # another process is at work on all of them
                    raise ValueError(f"{out} has no finished runs yet; look again later.")
                judged = decide_at_look(record, results)
                rows = tables.compare_rows(results, judged.decisions)
                if decided(judged.decisions):
                    break
            found = verdict(rows)
            further = going_on(found, judged.command, record.path)
            if board is not None:
                for result in results:
                    board.write(result)
            if report is not None:
                repeat = f"{command} --runs {runs}"
                content = page.from_comparison(results, judged, graph, record.path, repeat)
                page.write(report, content)
            screen.print(f"Split: {split_rule(results)}.")
            screen.print("", terminal.compare_table(rows), "", sep="\n")
            notes = (terminal.compare_notes(rows), divergence.sentence(results))
            screen.print(*filter(None, notes), sep="\n")
            screen.print(found.sentence, style="bold")
            if further:
                screen.print(f"Go on with: {further}", soft_wrap=True)
            if out is not None and len(results) < len(configs) * look:
                screen.print(standing(len(results), len(configs) * look, out), soft_wrap=True)
            if json is not None:
                output.write_json(json, to_json(graph, results, rows, found, further, where))
            if report is not None:
                screen.print(f"Page: {report}", soft_wrap=True)
            if further:  # that record holds the look
                scratch = None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _board(folder: Path) -> TensorBoard:
    try:
        return TensorBoard(folder)
    except ImportError as error:
        raise MachineError(str(error)) from error


def _check_files(
    record: Path | None,
    json: Path | None,
    report: Path | None,
    log: Path | None,
) -> None:
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
    if log is not None:
        output.check_folder(log)
