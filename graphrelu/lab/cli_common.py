"""What the commands share: their options' types, errors in one sentence, pages on the screen."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab import output, show
from graphrelu.lab.reproduce import PACKAGES, needed

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Engine = Annotated[str, typer.Option(help="local, or ray: a cluster's workers.")]
Root = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the datasets, else $GRAPHRELU_DATA or the cache."),
]


@contextmanager
def one_sentence(interrupted: str = "Interrupted.") -> Iterator[None]:
    """What is wrong with the input is said in one sentence on stderr, with the exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        print(output.sentence(error), file=sys.stderr)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        print(needed(error.name), file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise typer.Exit(130) from None


def show_page(written: Sequence[Path], *sentences: str) -> None:
    """The first of the files that were written, and where they are."""
    screen = show.console()
    screen.print(show.markdown(written[0].read_text(encoding="utf-8")))
    screen.print(*sentences, f"Written: {', '.join(map(str, written))}.", sep="\n")
