"""The command line: it selects and shows, and decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

import graphrelu
from graphrelu.lab import compare as comparison
from graphrelu.lab import data as on_disk
from graphrelu.lab.cli import pages
from graphrelu.lab.cli.common import Device, Root, check_files, one_sentence, show_page
from graphrelu.lab.cli.reproduce import reproduce_app
from graphrelu.lab.engine.signals import INTERRUPTIONS, exit_code, terminable
from graphrelu.lab.record import divergence, output
from graphrelu.lab.record.recipes import ACTIVATIONS, BACKBONES, COMPARED, GRAPH_BACKBONES
from graphrelu.lab.render import show, tables
from graphrelu.lab.render.verdict import verdict
from graphrelu.lab.reproduce.experiment import check_runs, standing
from graphrelu.lab.reproduce.node import INTERRUPTED
from graphrelu.lab.reproduce.typed import names

app = typer.Typer(
    name="graphrelu",
    epilog="Example: graphrelu compare digits",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(reproduce_app, name="reproduce")
app.command(epilog="Example: graphrelu report results/node.jsonl -o node.html")(pages.report)

Dataset = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(on_disk.NAMES)}; a path to a .npz or .pt file; "
        f"pyg:CLASS/NAME, a dataset of PyG's; or csbm:NAME=VALUE,..., a generated graph."
    ),
]
# By way of its subclass, as Typer has moved it from one module to another.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)


def run(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code. A misused option costs one sentence, too."""
    try:
        with terminable():
            return app(arguments, prog_name="graphrelu", standalone_mode=False) or 0
    except UsageError as error:
        message = " ".join(error.format_message().split())
        if message:  # there is none where the help was shown instead
            print(f"{message.rstrip('.')}.", file=sys.stderr)
        return 2
    except (*INTERRUPTIONS, typer.Abort) as error:
        print("Interrupted.", file=sys.stderr)
        return exit_code(error)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"graphrelu {graphrelu.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Does GReLU help on this graph? Activations compared on the same seeds and splits."""


@app.command(epilog="Example: graphrelu compare cora --backbone gat --runs 30 --json cora.json")
def compare(
    dataset: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(on_disk.NAMES)}; of many graphs {', '.join(on_disk.GRAPH_NAMES)}; "
            f"a path to a .npz or .pt file; pyg:CLASS/NAME, a dataset of PyG's; "
            f"or csbm:NAME=VALUE,..., a generated graph."
        ),
    ] = "digits",
    backbone: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(BACKBONES)}; of deep networks also gin; of many graphs "
            f"{', '.join(GRAPH_BACKBONES)}."
        ),
    ] = "gcn",
    activations: Annotated[
        str | None,
        typer.Option(
            help=f"Names, by commas; unless told {', '.join(COMPARED)}, on the paper's graphs "
            f"{', '.join(ACTIVATIONS)}."
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Seeds per activation.")] = 10,
    split: Annotated[
        str,
        typer.Option(
            help="random: few labels; full: 60 % of them; or masks: the graph's own. Of many "
            "graphs folds, or gin_folds: the GIN paper's protocol."
        ),
    ] = "random",
    metric: Annotated[str, typer.Option(help="accuracy, f1 or rocauc.")] = "accuracy",
    device: Device = "auto",
    data: Root = None,
    json: Annotated[Path | None, typer.Option(help="Write everything to this file.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Record of runs (.jsonl), to continue or to begin.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page (.html) to look at to this file.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep trained models in this folder.")] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Convolutions, else 4; on the paper's graphs the paper's network."),
    ] = None,
    norm: Annotated[str | None, typer.Option(help="layer, batch or none, else layer.")] = None,
    residual: Annotated[
        bool | None,
        typer.Option("--residual/--no-residual", help="A linear skip around each convolution."),
    ] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden units.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs at most.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="L2 penalty.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Epochs until training stops early; 0 for never.")
    ] = None,
    normalize_features: Annotated[
        bool | None,
        typer.Option("--normalize-features/--no-normalize-features", help="Rows that sum to 1."),
    ] = None,
) -> None:
    """Compare activations on a graph: the same seeds, splits and settings for each."""
    from graphrelu.lab import engine

    kept = INTERRUPTED if out else "Interrupted, and nothing is kept; --out FILE keeps each run."
    with one_sentence(kept):
        check_runs(runs)
        where = engine.choose_device(device)
        check_files(out, json, report, save)
        settings = {
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
        deep = comparison.wants_deep(dataset, settings)
        activations = activations or ",".join(COMPARED if deep else ACTIVATIONS)
        graph, configs = comparison.prepare(
            dataset, backbone, names(activations), range(runs), root=data, deep=deep, **settings
        )
        screen = show.console()
        screen.print(show.headline(graph, configs[0], runs))
        with pages.record_of_comparison(out, report) as record:
            with show.progress_bar() as progress:
                results = engine.run(
                    configs,
                    range(runs),
                    record,
                    root=data,
                    graphs={configs[0].dataset: graph},
                    device=device,
                    save=save,
                    progress=progress,
                )
            if not results:  # another process is at all of them
                raise ValueError(f"{out} has no finished runs yet; look again later.")
            rows = tables.compare_rows(results)
            sentence = verdict(rows)
            if report is not None and record is not None:
                options = {"backbone": backbone, "activations": activations, "runs": runs}
                pages.report_comparison(
                    report, results, graph, record.path, sentence, dataset, options | settings
                )
        screen.print(f"Split: {comparison.split_rule(results)}.")
        screen.print("", show.compare_table(rows), "", sep="\n")
        screen.print(*filter(None, (show.COMPARE_NOTES, divergence.sentence(results))), sep="\n")
        screen.print(sentence, style="bold")
        if out is not None and len(results) < len(configs) * runs:
            screen.print(standing(len(results), len(configs) * runs, out), soft_wrap=True)
        if json is not None:
            output.write_json(json, comparison.to_json(graph, results, rows, sentence, where))
        if report is not None:
            screen.print(f"Page: {report}", soft_wrap=True)


@app.command(epilog="Example: graphrelu inspect citeseer --out results/quick/inspect-citeseer")
def inspect(
    dataset: Dataset = "digits",
    model: Annotated[
        Path | None, typer.Option(help="A file of compare --save, instead of training.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="To train, else gcn.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="To train with, else 0.")] = None,
    pairs: Annotated[int, typer.Option(help="Random pairs of a node and a channel.")] = 1_000,
    out: Annotated[
        Path | None,
        typer.Option(help="Prefix of the files, else results/quick/inspect-DATASET."),
    ] = None,
    device: Device = "auto",
    data: Root = None,
) -> None:
    """Draw and classify the functions that GReLU has learned on a graph."""
    from graphrelu.lab.reproduce import inspection

    with one_sentence():
        prefix = out or inspection.default_prefix(dataset)
        record = inspection.record_of(output.check_record(prefix.with_name(f"{prefix.name}.jsonl")))
        if model is None:
            looks = inspection.inspect_trained(
                record, dataset, backbone or "gcn", [seed or 0], pairs, root=data, device=device
            )
        elif backbone is None and seed is None:
            looks = inspection.inspect_saved(
                record, dataset, model, pairs, root=data, device=device
            )
        else:
            raise ValueError("A saved model has its own backbone and seed; leave them out.")
        page, *others = inspection.write(looks, record.path)
        show_page([page, record.path, *others])


@app.command("observations", epilog="Example: graphrelu observations --results results")
def observe(
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
) -> None:
    """What the paper observes, held against the records: one line for each claim."""
    from graphrelu.lab.reproduce import observations

    with one_sentence():
        show_page(observations.render(results))


@app.command("data", epilog="Example: graphrelu data --data ~/datasets")
def survey(data: Root = None) -> None:
    """What is there of the datasets known by name, what is missing, what was altered."""
    with one_sentence():
        root = on_disk.data_root(data)
        if root.exists() and not root.is_dir():
            raise ValueError(f"{root} is not a folder.")
        statuses = on_disk.survey(data)
        screen = show.console()
        screen.print(f"Datasets in {root}", soft_wrap=True)
        screen.print("", show.data_table(statuses), "", sep="\n")
        if any(status.missing for status in statuses):
            screen.print(
                "What is missing is downloaded when it is first used, if that is possible."
            )
        for status in statuses:
            for what, files in (("missing", status.missing), ("altered", status.altered)):
                if files:
                    where = f" in {status.folder}" if status.folder else ""
                    screen.print(
                        f"{status.name}: {what}{where}: {', '.join(files)}", soft_wrap=True
                    )
    if any(status.altered for status in statuses):
        raise typer.Exit(1)
