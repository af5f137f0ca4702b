"""SIGTERM ends a command as Ctrl-C does: what it began is given back, and a sentence says so."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """SIGTERM: a scheduler, or a person, asks the process to end.

    No KeyboardInterrupt, of which Typer makes an exit code of its own.
    """


INTERRUPTIONS = (KeyboardInterrupt, Terminated)


@contextmanager
def terminable() -> Iterator[None]:
    """In here SIGTERM raises :class:`Terminated`, unless somebody else has a use for it."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def exit_code(error: BaseException) -> int:
    """As a shell counts: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
