"""SIGTERM ends a command as Ctrl-C does: it cleans up, and says so in a sentence."""

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
_RAISES = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


class _Holding:
    """How many :func:`held` blocks the main thread is in, the signal that waits for the end, and
    the signal that has raised its exception."""

    depth = 0
    waiting: int | None = None
    raised: int | None = None


@contextmanager
def kept() -> Iterator[None]:
    """After the block the signals do what they did before it: ``ray.init`` takes SIGTERM over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _RAISES}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python does not know
                signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises :class:`Terminated`, and both it and Ctrl-C wait where they are
    :func:`held`, unless other code handles them already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with kept():
        for number in _RAISES:
            if signal.getsignal(number) in _DEFAULTS:
                signal.signal(number, _interrupt)
        try:
            yield
        finally:
            _Holding.raised = None


@contextmanager
def held() -> Iterator[None]:
    """Inside, the first interruption of :func:`terminable` waits for the end, the second does not.

    For calls that cannot be left at any moment: torch's vmap keeps a state that an exception
    in the wrong place leaves inconsistent, and later fails with another error.

    An interruption that fell into the callback of a weak reference was printed and lost there. The
    next block raises it again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _Holding.depth == 0 and _Holding.raised is not None:
        raise _RAISES[signal.Signals(_Holding.raised)]
    _Holding.depth += 1
    try:
        yield
    finally:
        _Holding.depth -= 1
        if _Holding.depth == 0 and _Holding.waiting is not None:
            number, _Holding.waiting = _Holding.waiting, None
            raise _RAISES[signal.Signals(number)]


def exit_code(error: BaseException) -> int:
    """As in a shell: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _Holding.depth > 0 and _Holding.waiting is None:
        _Holding.waiting = number
    else:
        _Holding.raised = number
        raise _RAISES[signal.Signals(number)]
