"""Options that several commands have, and pages in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import DATA, DEVICE

Device = Annotated[str, typer.Option(help=DEVICE.help)]
Root = Annotated[Path | None, typer.Option("--data", help=DATA.help)]


def show_page(written: Sequence[Path], *sentences: str) -> None:
    """Print the first of the files that were written, and where all of them are."""
    screen = terminal.console()
    screen.print(terminal.markdown(written[0].read_text(encoding="utf-8")))
    screen.print(*sentences, f"Written: {', '.join(map(str, written))}.", sep="\n")
