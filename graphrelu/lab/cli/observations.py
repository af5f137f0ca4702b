"""``graphrelu observations``: the paper's claims, held against the records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.cli.shared import show_page
from graphrelu.lab.reproduce import observations as claims
from graphrelu.lab.reproduce.command import one_sentence

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: graphrelu observations --results results")
def observations(
    results: Annotated[
        Path, typer.Option(help="Folder with the records of graphrelu reproduce.")
    ] = Path("results"),
) -> None:
    """Check each claim of the paper against the recorded runs, a line for each claim."""
    with one_sentence():
        show_page(claims.render(results))
