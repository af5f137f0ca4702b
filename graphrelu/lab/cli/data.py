"""``graphrelu data``: which datasets are there."""

from __future__ import annotations

import typer

from graphrelu.lab import data as on_disk
from graphrelu.lab.cli.shared import Root
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce.command import one_sentence

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: graphrelu data --data ~/datasets")
def survey(data: Root = None) -> None:
    """List the known datasets: which are there, which are missing, which were altered."""
    with one_sentence():
        root = on_disk.data_root(data)
        if root.exists() and not root.is_dir():
            raise ValueError(f"{root} is not a folder.")
        statuses = on_disk.survey(data)
        screen = terminal.console()
        screen.print(f"Datasets in {root}", soft_wrap=True)
        screen.print("", terminal.data_table(statuses), "", sep="\n")
        if any(status.missing for status in statuses):
            screen.print("A missing dataset is downloaded when it is first used, if possible.")
        for status in statuses:
            for what, files in (("missing", status.missing), ("altered", status.altered)):
                if files:
                    where = f" in {status.folder}" if status.folder else ""
                    screen.print(
                        f"{status.name}: {what}{where}: {', '.join(files)}", soft_wrap=True
                    )
    if any(status.altered for status in statuses):
        raise typer.Exit(1)
