"""``graphrelu reproduce``: a command for each experiment, made from its table of options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from graphrelu.lab.cli.shared import add_command, show_page
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import (
    COMMANDS,
    INTERRUPTED,
    one_sentence,
    options_of,
    prepare,
)

EXAMPLE = "graphrelu reproduce node --datasets cora --backbones gcn --runs 30"
app = typer.Typer(
    help="Run the paper's experiments again, and some of our own.",
    epilog=f"Example: {EXAMPLE}",
    no_args_is_help=True,
    add_completion=False,
)


def _add_experiment(name: str, what: str) -> None:
    def run(**given: Any) -> None:
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

    run.__doc__ = f"{what[0].upper()}{what[1:]}."
    example = EXAMPLE if name == "node" else f"graphrelu reproduce {name} --quick"
    add_command(app, name, options_of(name), run, example)


for name, what in COMMANDS.items():
    _add_experiment(name, what)
