"""What the commands share: lists of names, checks of files, and errors of one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from graphrelu.lab.record import output
from graphrelu.lab.record.machine import MachineError
from graphrelu.lab.signals import INTERRUPTIONS, exit_code

# A package that may be missing -> the extra that installs it.
PACKAGES = {"scipy": "lab", "sklearn": "lab", "matplotlib": "lab", "ray": "ray"}
INTERRUPTED = "Interrupted; repeat the command to continue."


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


@contextmanager
def one_sentence(interrupted: str = "Interrupted.") -> Iterator[None]:
    """An error of the input or the machine becomes one sentence and exit code 2; an interruption
    ends with the exit code of the signal."""
    try:
        yield
    except (ValueError, OSError, MachineError) as error:
        message, code = output.sentence(error), 2
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        extra = PACKAGES[error.name]
        message, code = f'This needs {error.name}: pip install "graphrelu[{extra}]".', 2
    except INTERRUPTIONS as error:
        message, code = interrupted, exit_code(error)
    else:
        return
    print(message, file=sys.stderr)
    raise SystemExit(code)
