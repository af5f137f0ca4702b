"""Options that several commands have, commands from tables of options, pages in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import DATA, DEVICE, Option

Device = Annotated[str, typer.Option(help=DEVICE.help)]
Root = Annotated[Path | None, typer.Option("--data", help=DATA.help)]


def add_command(
    app: typer.Typer,
    name: str,
    options: Sequence[Option],
    function: Callable[..., None],
    example: str,
) -> None:
    """Add a command with these options: Typer reads them from the signature of the function."""
    parameters = [
        Parameter(
            option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=_hint(option)
        )
        for option in options
    ]

    def command(**given: Any) -> None:
        function(**given)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command(name, help=function.__doc__, epilog=f"Example: {example}")(command)


def _hint(option: Option) -> Any:
    kind = option.kind if option.default is not None else option.kind | None
    flag = f"--{option.name.replace('_', '-')}"
    if option.kind is bool and option.default is None:
        flag = f"{flag}/--no-{flag[2:]}"
    found = typer.Argument if option.is_argument else typer.Option
    return Annotated[kind, found(*([] if option.is_argument else [flag]), help=option.help)]


def show_page(written: Sequence[Path], *sentences: str) -> None:
    """Print the first of the files that were written, and where all of them are."""
    screen = terminal.console()
    screen.print(terminal.markdown(written[0].read_text(encoding="utf-8")))
    screen.print(*sentences, f"Written: {', '.join(map(str, written))}.", sep="\n")
