"""``graphrelu report``: a page for a browser from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS, check_ending
from graphrelu.lab.errors import one_sentence
from graphrelu.lab.record.machine import check_file
from graphrelu.lab.render import console

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(
    help=COMMANDS["report"], epilog="Example: graphrelu report results/node.jsonl -o node.html"
)
def report(
    records: Annotated[
        list[Path],
        typer.Argument(help="Files that compare --out or reproduce wrote (.jsonl)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")] = Path(
        "report.html"
    ),
) -> None:
    with one_sentence():
        if out.resolve() in [path.resolve() for path in records]:
            raise ValueError(f"{out} cannot be both a record and the page.")
        check_ending(check_file(out), ".html", "a page")
        page.write(out, page.from_records(records))
        console().print(f"Written: {out}.", soft_wrap=True)
