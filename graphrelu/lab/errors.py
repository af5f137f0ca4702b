"""What ends a command early, told in one sentence: a misspelt name, data that cannot be used, a
machine that fails, a package that is missing, or an interruption."""

from __future__ import annotations

import difflib
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Kinds: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

# A package that may be missing -> the extra that installs it.
PACKAGES = {"scipy": "lab", "sklearn": "lab", "matplotlib": "lab", "ray": "ray"}
INTERRUPTED = "Interrupted; repeat the command to continue."


def check_name(what: str, name: str, known: Iterable[str]) -> str:
    """The known name, without regard to case."""
    names = {candidate.lower(): candidate for candidate in known}
    if name.lower() in names:
        return names[name.lower()]
    listed = ", ".join(names.values()) or "none"
    raise ValueError(f"There is no {what} {name!r}{hint(name, names)}; choose from {listed}.")


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name in brackets, or nothing."""
    names = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


class DataError(ValueError):
    """A dataset that cannot be used; the message is one sentence for the user."""


def require(holds: bool | Tensor, sentence: str) -> None:
    """Raise a :class:`DataError` with this sentence unless the condition holds."""
    if not holds:
        raise DataError(sentence)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, for use inside a sentence."""
    text = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


@contextmanager
def as_data_error(fault: str, remedy: str = "", kinds: Kinds = Exception) -> Iterator[None]:
    """Inside, an error of these kinds becomes a :class:`DataError`: ``fault (reason)remedy.``"""
    try:
        yield
    except DataError:
        raise
    except kinds as error:
        raise DataError(f"{fault} ({first_line(error)}){remedy}.") from error


class MachineError(RuntimeError):
    """What a machine failed at, in one sentence: there is nothing wrong with the input."""


# SIGTERM ends a command as Ctrl-C does: it cleans up, and says so.
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


def sentence(error: Exception) -> str:
    """An error in one line, for people."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}."
    return " ".join(str(error).split())


@contextmanager
def one_sentence(interrupted: str = "Interrupted.") -> Iterator[None]:
    """An error of the input or the machine becomes one sentence and exit code 2; an interruption
    ends with the exit code of the signal."""
    try:
        yield
    except (ValueError, OSError, MachineError) as error:
        message, code = sentence(error), 2
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
