"""The command line: it selects and shows, and decides nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

import graphrelu
from graphrelu.lab.errors import INTERRUPTIONS, exit_code, terminable

COMMANDS = {
    "compare": "Train each activation on your data, and say whether GReLU is better than ReLU.",
    "report": "Make a page for a browser from finished runs. Nothing is trained.",
    "reproduce": "Run the paper's experiments again, and some of our own.",
}
# The module of each command's ``app``; those of experiments depend on the command line, not the
# command line on them.
MODULES = {
    "compare": "graphrelu.lab.cli.compare",
    "report": "graphrelu.lab.cli.report",
    "reproduce": "graphrelu.lab.reproduce.command",
}
DATA = "Folder of the datasets; else $GRAPHRELU_DATA, else a cache folder."
Device = Annotated[str, typer.Option(help="Where to train: auto, cpu or cuda.")]
Root = Annotated[Path | None, typer.Option("--data", help=DATA)]
# By way of its subclass, as Typer has moved it from one module to another.
UsageError = cast(type[typer.BadParameter], typer.BadParameter.__base__)


class Commands(TyperGroup):
    """Imports the commands when one is called: their list need not wait for torch."""

    # Of Click's types, which some versions of Typer bring along under another name.
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        known: Any = typer.main.get_command(import_module(MODULES[str(name)]).app)
        return name, getattr(known, "commands", {name: known})[name], rest


app = typer.Typer(
    cls=Commands,
    name="graphrelu",
    epilog="Example: graphrelu compare digits",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,
)
for name, what in COMMANDS.items():
    app.command(name, help=what)(lambda: None)


def run(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code. A misused option gets a one-line error, too."""
    # PyG's own, when it is imported under a recent torch.
    warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)
    try:
        with terminable():
            return app(arguments, prog_name="graphrelu", standalone_mode=False) or 0
    except UsageError as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # the help, where nothing was asked for
            print(message)
        else:
            message = " ".join(message.split())
            print(message if message.endswith((".", "?")) else f"{message}.", file=sys.stderr)
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
    """Does GReLU help on your data? Compare activations with the same seeds and splits."""


def names(text: str) -> list[str]:
    """The names in a list such as ``cora, citeseer``: each once, in lower case except PyG's."""
    typed = (name.strip() for name in text.split(","))
    cased = (name if name.startswith("pyg:") else name.lower() for name in typed)
    found = list(dict.fromkeys(name for name in cased if name))
    if not found:
        raise ValueError(f"There are no names in the list {text!r}.")
    return found


def check_runs(runs: int) -> None:
    """Raise a ``ValueError`` unless there is something to run."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, not {runs}.")


def check_ending(path: Path, ending: str, what: str) -> None:
    """Raise a ``ValueError`` unless the name of a file to write has the ending of its kind."""
    if path.suffix != ending:
        raise ValueError(f"The name of {what} must end in {ending}, unlike {path}.")
