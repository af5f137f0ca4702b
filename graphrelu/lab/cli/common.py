"""What the commands share: their options' types, errors in one sentence, pages on the screen."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.engine.signals import INTERRUPTIONS, exit_code
from graphrelu.lab.record import output
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.render import show
from graphrelu.lab.reproduce.node import PACKAGES, needed

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Engine = Annotated[str, typer.Option(help="local, or ray: a cluster's workers.")]
Root = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the datasets, else $GRAPHRELU_DATA or the cache."),
]


@contextmanager
def one_sentence(interrupted: str = "Interrupted.") -> Iterator[None]:
    """What is wrong with the input, or the machine, is said in one sentence on stderr, with the
    exit code 2; an interruption has the code of its signal."""
    try:
        yield
    except (ValueError, OSError, MachineError) as error:
        print(output.sentence(error), file=sys.stderr)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(needed(error.name), file=sys.stderr)
        raise typer.Exit(2) from None
    except INTERRUPTIONS as error:
        print(interrupted, file=sys.stderr)
        raise typer.Exit(exit_code(error)) from None


def check_files(
    record: Path | None, json: Path | None, report: Path | None, save: Path | None
) -> None:
    """Whether all that a comparison is to write can be written, each to a file of its own."""
    if json is not None and record is not None and json.resolve() == record.resolve():
        raise ValueError(f"{json} cannot be the record and the summary at once.")
    if report is not None and report.resolve() in (f.resolve() for f in (json, record) if f):
        raise ValueError(f"{report} cannot be the page and another file at once.")
    if record is not None:
        output.check_record(record)
    for file in (json, report):
        if file is not None:
            output.check_file(file)
    if save is not None:
        output.check_folder(save)


def show_page(written: Sequence[Path], *sentences: str) -> None:
    """The first of the files that were written, and where they are."""
    screen = show.console()
    screen.print(show.markdown(written[0].read_text(encoding="utf-8")))
    screen.print(*sentences, f"Written: {', '.join(map(str, written))}.", sep="\n")
