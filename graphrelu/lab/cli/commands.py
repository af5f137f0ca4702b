"""The commands as Typer shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS
from graphrelu.lab.cli.compare import compare
from graphrelu.lab.cli.options import Root, check_ending, one_sentence
from graphrelu.lab.record import output
from graphrelu.lab.render import terminal

RESULTS = Path("results")
BENCHMARKS = Path("benchmarks/results")

app = typer.Typer(add_completion=False)


@app.command(
    help=COMMANDS["report"], epilog="Example: graphrelu report results/node.jsonl -o node.html"
)
def report(
    records: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files that compare --out or reproduce wrote (.jsonl), or a benchmark (.json). "
            "By default all in results/."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")] = Path(
        "report.html"
    ),
    graph: Annotated[
        list[str] | None,
        typer.Option(
            help="Your graph, as compare was given it, to draw it on the page. Datasets that are "
            "known by name need not be given. May be repeated."
        ),
    ] = None,
    data: Root = None,
) -> None:
    with one_sentence():
        paths = records or _committed()
        if not paths:
            raise ValueError(f"There are no records in {RESULTS}/; name one to show.")
        if out.resolve() in [path.resolve() for path in paths]:
            raise ValueError(f"{out} cannot be a record and the page at once.")
        check_ending(output.check_file(out), ".html", "a page")
        page.write(out, page.from_records(paths, data, graph or []))
        terminal.console().print(f"Written: {out}.", soft_wrap=True)


def _committed() -> list[Path]:
    """The records of runs, but for the study's, and those of benchmarks."""

    def belongs(path: Path) -> bool:
        with path.open("rb") as file:
            others = (b'{"event":"timed"', b'{"event":"inspected"')
            return path.stem != "study" and not file.readline().startswith(others)

    runs = [path for path in sorted(RESULTS.glob("*.jsonl")) if belongs(path)]
    return runs + sorted(BENCHMARKS.glob("activation_*.json"))


app.command(
    "compare",
    help=f"{COMMANDS['compare']}\n\nEvery activation has the same seeds, splits and settings.",
    epilog="Example: graphrelu compare cora --backbone gat --runs 30 --json cora.json",
)(compare)
