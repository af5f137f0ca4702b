"""The command line: it selects and shows, and decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

import graphrelu
from graphrelu.lab import data as on_disk
from graphrelu.lab.cli import compare
from graphrelu.lab.cli.report import report
from graphrelu.lab.cli.reproduce import reproduce_app
from graphrelu.lab.cli.shared import Device, Root, add_command, show_page
from graphrelu.lab.engine.signals import INTERRUPTIONS, exit_code, terminable
from graphrelu.lab.record import output
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import one_sentence

app = typer.Typer(
    name="graphrelu",
    epilog="Example: graphrelu compare digits",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
EXAMPLE = "graphrelu compare cora --backbone gat --runs 30 --json cora.json"
add_command(app, "compare", compare.options(), compare.compare, EXAMPLE)
app.command(epilog="Example: graphrelu report results/node.jsonl -o node.html")(report)
app.add_typer(reproduce_app, name="reproduce")

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
    except SystemExit as stop:
        return int(stop.code or 0)
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
    """Does GReLU help on this graph? Compare activations on the same seeds and splits."""


@app.command(epilog="Example: graphrelu inspect citeseer --out results/quick/inspect-citeseer")
def inspect(
    dataset: Annotated[str, typer.Argument(help=compare.DATASET)] = "digits",
    model: Annotated[
        Path | None, typer.Option(help="A model that compare --save kept; else one is trained.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Backbone to train; else gcn.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed to train with; else 0.")] = None,
    pairs: Annotated[
        int, typer.Option(help="How many random pairs of a node and a channel to classify.")
    ] = 1_000,
    out: Annotated[
        Path | None,
        typer.Option(help="Start of the names of the files; else results/quick/inspect-DATASET."),
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
    """Check each claim of the paper against the records, one line for each."""
    from graphrelu.lab.reproduce import observations

    with one_sentence():
        show_page(observations.render(results))


@app.command("data", epilog="Example: graphrelu data --data ~/datasets")
def survey(data: Root = None) -> None:
    """List the known datasets: which are there, which are missing, which were altered."""
    with one_sentence():
        root = on_disk.data_root(data)
        if root.exists() and not root.is_dir():
            raise ValueError(f"{root} is not a folder.")
        statuses = on_disk.survey(data)
        screen = terminal.console()
        screen.print(f"Datasets in {root}", soft_wrap=True)
        screen.print("", terminal.data_table(statuses), "", sep="\n")
        if any(status.missing for status in statuses):
            screen.print("A missing dataset is downloaded when it is first used, if possible.")
        for status in statuses:
            for what, files in (("missing", status.missing), ("altered", status.altered)):
                if files:
                    where = f" in {status.folder}" if status.folder else ""
                    screen.print(
                        f"{status.name}: {what}{where}: {', '.join(files)}", soft_wrap=True
                    )
    if any(status.altered for status in statuses):
        raise typer.Exit(1)
