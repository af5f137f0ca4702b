"""The commands as Typer shows them; two of them are made from tables of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab import page
from graphrelu.lab.cli import COMMANDS
from graphrelu.lab.cli.compare import compare, options
from graphrelu.lab.record import output
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce import command
from graphrelu.lab.reproduce import observations as claims
from graphrelu.lab.reproduce.command import INTERRUPTED, Option, one_sentence
from graphrelu.lab.reproduce.experiment import check_ending

RESULTS = Path("results")
BENCHMARKS = Path("benchmarks/results")
REPRODUCE_NODE = "graphrelu reproduce node --datasets cora --backbones gcn --runs 30"

Device = Annotated[str, typer.Option(help=command.DEVICE.help)]
Root = Annotated[Path | None, typer.Option("--data", help=command.DATA.help)]

app = typer.Typer(add_completion=False)
experiments = typer.Typer(
    help=COMMANDS["reproduce"], epilog=f"Example: {REPRODUCE_NODE}", no_args_is_help=True
)
app.add_typer(experiments, name="reproduce")


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
    """The records of runs and timings, but for those of functions and of the study: these have
    pages of their own."""

    def belongs(path: Path) -> bool:
        with path.open("rb") as file:
            holds_looks = file.readline().startswith(b'{"event":"inspected"')
        return not holds_looks and path.stem != "study"

    runs = [path for path in sorted(RESULTS.glob("*.jsonl")) if belongs(path)]
    return runs + sorted(BENCHMARKS.glob("activation_*.json"))


@app.command(
    help=COMMANDS["observations"], epilog="Example: graphrelu observations --results results"
)
def observations(
    results: Annotated[
        Path, typer.Option(help="Folder with the records of graphrelu reproduce.")
    ] = RESULTS,
) -> None:
    with one_sentence():
        _show(claims.render(results))


def _show(written: Sequence[Path], *sentences: str) -> None:
    """Print the first of the files that were written, and where all of them are."""
    screen = terminal.console()
    screen.print(terminal.markdown(written[0].read_text(encoding="utf-8")))
    screen.print(*sentences, f"Written: {', '.join(map(str, written))}.", sep="\n")


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


def _add_experiment(name: str, what: str) -> None:
    def run(**given: Any) -> None:
        with one_sentence(INTERRUPTED):
            chosen, request = command.prepare(name, given)
            said = []
            if not given["render"]:
                with terminal.progress_bar() as progress:
                    said.append(chosen.collect(replace(request, progress=progress)))
            if given["render"] or chosen.has_page(request.out):
                _show(chosen.render(request.out), *said)
            else:
                terminal.console().print(*said)

    example = REPRODUCE_NODE if name == "node" else f"graphrelu reproduce {name} --quick"
    told = f"{what[0].upper()}{what[1:]}."
    _add(experiments, name, told, command.options_of(name), run, example)


_add(
    app,
    "compare",
    f"{COMMANDS['compare']}\n\nEvery activation has the same seeds, splits and settings.",
    options(),
    compare,
    "graphrelu compare cora --backbone gat --runs 30 --json cora.json",
)
for _name, _what in command.COMMANDS.items():
    _add_experiment(_name, _what)
