"""``graphrelu report``: a page for a browser from finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS
from graphrelu.lab.cli.options import Root, check_ending, one_sentence
from graphrelu.lab.record import output
from graphrelu.lab.render import console

RESULTS = Path("results")
RECORDS = "Files that compare --out or reproduce wrote (.jsonl). By default all in results/."

app = typer.Typer(add_completion=False)


@app.command(
    help=COMMANDS["report"], epilog="Example: graphrelu report results/node.jsonl -o node.html"
)
def report(
    records: Annotated[list[Path] | None, typer.Argument(help=RECORDS)] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")] = Path(
        "report.html"
    ),
    data: Root = None,
) -> None:
    with one_sentence():
        paths = records or _of_runs(RESULTS)
        if not paths:
            raise ValueError(f"There are no records in {RESULTS}/; name one to show.")
        if out.resolve() in [path.resolve() for path in paths]:
            raise ValueError(f"{out} cannot be both a record and the page.")
        check_ending(output.check_file(out), ".html", "a page")
        page.write(out, page.from_records(paths, data))
        console().print(f"Written: {out}.", soft_wrap=True)


def _of_runs(folder: Path) -> list[Path]:
    """The records of runs, but for the study's: not those of times."""
    events = tuple(b'{"event":"%s"' % event for event in (b"finished", b"looked", b"started"))

    def has_runs(path: Path) -> bool:
        with path.open("rb") as file:
            return path.stem != "study" and file.readline().startswith(events)

    return [path for path in sorted(folder.glob("*.jsonl")) if has_runs(path)]
