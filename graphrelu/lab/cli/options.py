"""What the commands share: options, lists of names, and checks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DATA = "Folder of the datasets; else $GRAPHRELU_DATA, else a cache folder."
Device = Annotated[str, typer.Option(help="Where to train: auto, cpu or cuda.")]
Root = Annotated[Path | None, typer.Option("--data", help=DATA)]


def names(text: str) -> list[str]:
    """The names in a list such as ``cora, citeseer``: each once, in lower case except PyG's."""
    typed = (name.strip() for name in text.split(","))
    cased = (name if name.startswith("pyg:") else name.lower() for name in typed)
    found = list(dict.fromkeys(name for name in cased if name))
    if not found:
        raise ValueError(f"There are no names in the list {text!r}.")
    return found


def check_runs(runs: int) -> None:
    """Raise a ``ValueError`` unless there is something to run."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, not {runs}.")


def check_ending(path: Path, ending: str, what: str) -> None:
    """Raise a ``ValueError`` unless the name of a file to write has the ending of its kind."""
    if path.suffix != ending:
        raise ValueError(f"The name of {what} must end in {ending}, unlike {path}.")
