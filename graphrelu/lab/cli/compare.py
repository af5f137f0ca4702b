"""``graphrelu compare``: train each activation on one graph, and say which is better."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from graphrelu.lab import data as on_disk
from graphrelu.lab import page
from graphrelu.lab.prepare import prepare, split_rule, splits_in, to_json, wants_deep
from graphrelu.lab.record import divergence, output
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, GRAPH_BACKBONES, compared
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import tables, terminal
from graphrelu.lab.render.loggers import TensorBoard
from graphrelu.lab.render.verdict import going_on, verdict
from graphrelu.lab.reproduce.command import DATA, DEVICE, INTERRUPTED, Option, names, one_sentence
from graphrelu.lab.reproduce.experiment import check_ending, check_runs, standing
from graphrelu.lab.stats.decision import FIRST_LOOK, MARGIN, check_margin, decided, looks_until
from graphrelu.lab.stats.judge import begin, judge

DATASET = (
    f"The graph: {', '.join(on_disk.NAMES)}; a file of yours (.npz, .pt, or edges.csv beside "
    "nodes.csv); pyg:CLASS/NAME for a dataset of PyG; ogbn-NAME for one of OGB; "
    "csbm:NAME=VALUE,... for a generated graph."
)
RUNS, MOST_RUNS = 10, 80
FILES = (
    Option("json", "Write the table and all scores to this file, as JSON.", Path),
    Option(
        "out",
        "Keep every finished run in this file (.jsonl). The same command continues from it.",
        Path,
    ),
    Option("report", "Write the result as a page for a browser to this file (.html).", Path),
    Option("log", "Write the training curves to this folder, for TensorBoard.", Path),
)
SETTINGS = (
    Option(
        "split",
        "Which nodes train, validate and test. random: 20 training nodes per class, or 48 % "
        "of a small graph; full: 60 / 20 / 20 %; masks: those of the graph. By default masks "
        "if the graph has them, else random; on the paper's graphs random. For sets of graphs "
        "folds (default), gin_folds (the GIN paper's protocol) or gin_paper (also the GIN paper's "
        "networks).",
    ),
    Option(
        "metric",
        "The test score. For classes accuracy, f1 or rocauc; for several labels of a node rocauc "
        "or f1; for values mae or r2. By default the first, but rocauc for two classes of nodes.",
    ),
    Option("hidden", "Hidden units of each layer.", int),
    Option("epochs", "The largest number of epochs.", int),
    Option("lr", "Learning rate.", float),
    Option("weight_decay", "Weight decay (L2 penalty).", float),
    Option("dropout", "Dropout rate.", float),
    Option(
        "layers",
        "Number of convolutions. By default 4, on the paper's graphs as in the paper.",
        int,
    ),
    Option("norm", "Normalisation after each convolution: layer (default), batch or none."),
    Option("residual", "Add a linear skip connection to each convolution.", bool),
    Option(
        "patience",
        "Epochs with neither a better validation score nor a lower validation loss before training "
        "stops; 0: never.",
        int,
    ),
    Option("normalize_features", "Scale the features of each node to sum to 1.", bool),
)


def options() -> list[Option]:
    """All options of the command."""
    known = f"{','.join(compared())}, on the paper's graphs {','.join(ACTIVATIONS)}"
    return [
        Option(
            "dataset",
            f"{DATASET} Or a set of graphs: {', '.join(on_disk.GRAPH_NAMES)}; graphs:FILE.pt for a "
            "list of PyG Data of yours.",
            default="digits",
            is_argument=True,
        ),
        Option(
            "backbone",
            f"The convolution: {', '.join(BACKBONES)}; gin, but not on the paper's graphs; for "
            f"sets of graphs {', '.join(GRAPH_BACKBONES)}.",
            default="gcn",
        ),
        Option("activations", f"Names, separated by commas. By default {known}."),
        Option(
            "runs",
            f"How many seeds to train each activation with. By default {RUNS}; with "
            f"--until-decided the most, by default {MOST_RUNS}.",
            int,
        ),
        Option(
            "margin", "The largest difference in points that does not matter to you.", float, MARGIN
        ),
        Option(
            "until_decided",
            f"Start with {FIRST_LOOK} seeds, and double them until GReLU's difference to ReLU is "
            "decided.",
            bool,
            False,
        ),
        DEVICE,
        DATA,
        *FILES,
        *SETTINGS,
    ]


def compare(
    dataset: str,
    backbone: str,
    activations: str | None,
    runs: int | None,
    margin: float,
    until_decided: bool,
    device: str,
    data: Path | None,
    json: Path | None,
    out: Path | None,
    report: Path | None,
    log: Path | None,
    **settings: Any,
) -> None:
    """Train each activation on a graph, and say whether GReLU is better than ReLU there."""
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
            begin(record, configs[0], margin, splits_in(graph, configs[0]), command)
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
                judged = judge(record, results)
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
