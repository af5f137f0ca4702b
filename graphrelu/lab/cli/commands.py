"""The commands as Typer shows them; one of them is made from a table of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS
from graphrelu.lab.cli.compare import compare, options
from graphrelu.lab.cli.options import Option, Root, check_ending, one_sentence
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


def _add(
    to: typer.Typer,
    name: str,
    what: str,
    options: Sequence[Option],
    function: Callable[..., None],
    example: str,
) -> None:
    """Add a command with these options: Typer reads them from the signature of the function."""

    def run(**given: Any) -> None:
        function(**given)

    hints = {option.name: _hint(option) for option in options}
    run.__annotations__ = hints
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name]
            )
            for one in options
        ]
    )
    to.command(name, help=what, epilog=f"Example: {example}")(run)


def _hint(option: Option) -> Any:
    kind = option.kind if option.default is not None else option.kind | None
    if option.is_argument:
        return Annotated[kind, typer.Argument(help=option.help)]
    flag = f"--{option.name.replace('_', '-')}"
    if option.kind is bool and option.default is None:
        flag = f"{flag}/--no-{flag[2:]}"
    return Annotated[kind, typer.Option(flag, help=option.help)]


_add(
    app,
    "compare",
    f"{COMMANDS['compare']}\n\nEvery activation has the same seeds, splits and settings.",
    options(),
    compare,
    "graphrelu compare cora --backbone gat --runs 30 --json cora.json",
)
