"""``graphrelu reproduce``: a command for each experiment, made from its table of options."""

from __future__ import annotations

from dataclasses import replace
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from graphrelu.lab.cli.shared import show_page
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import (
    COMMANDS,
    INTERRUPTED,
    Option,
    one_sentence,
    options_of,
    prepare,
)

EXAMPLE = "graphrelu reproduce node --datasets cora --backbones gcn --runs 30"
reproduce_app = typer.Typer(
    help="Run the paper's experiments again.", epilog=f"Example: {EXAMPLE}", no_args_is_help=True
)


def _hint(option: Option) -> Any:
    kind = option.kind if option.default is not None else option.kind | None
    return Annotated[kind, typer.Option(f"--{option.name}", help=option.help)]


def _add_command(name: str, what: str) -> None:
    def command(**given: Any) -> None:
        with one_sentence(INTERRUPTED):
            chosen, request = prepare(name, given)
            said = []
            if not given["render"]:
                with terminal.progress_bar() as progress:
                    said.append(chosen.collect(replace(request, progress=progress)))
            if given["render"] or chosen.has_page(request.out):
                show_page(chosen.render(request.out), *said)
            else:
                terminal.console().print(*said)

    # Typer reads the options of a command from the signature of its function.
    hints = {option.name: (_hint(option), option.default) for option in options_of(name)}
    command.__annotations__ = {name: hint for name, (hint, _) in hints.items()}
    command.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for name, (hint, default) in hints.items()
        ]
    )
    example = EXAMPLE if name == "node" else f"graphrelu reproduce {name} --quick"
    reproduce_app.command(name, help=f"{what[0].upper()}{what[1:]}.", epilog=f"Example: {example}")(
        command
    )


for name, what in COMMANDS.items():
    _add_command(name, what)
