"""SIGTERM is an interruption, where a command runs and nowhere else."""

from __future__ import annotations

import signal
import threading
import weakref

import pytest

from graphrelu.lab.errors import Terminated, exit_code, held, kept, terminable

pytestmark = pytest.mark.usefixtures("own_signals")


def test_sigterm_raises_where_a_command_runs() -> None:
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert (exit_code(KeyboardInterrupt()), exit_code(Terminated())) == (130, 143)


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_waits_where_it_is_held(number: int, error: type[BaseException]) -> None:
    passed: list[str] = []

    def work() -> None:
        with held():
            with held():
                signal.raise_signal(number)
                passed.append("inner")
            passed.append("outer")

    with terminable():
        with pytest.raises(error):
            work()
        with held():  # nothing waits any more
            passed.append("again")
    assert passed == ["inner", "outer", "again"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_does_not_wait() -> None:
    passed: list[str] = []

    def work() -> None:
        with terminable(), held():
            signal.raise_signal(signal.SIGINT)
            passed.append("first")
            signal.raise_signal(signal.SIGINT)
            passed.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    with terminable(), held():
        passed.append("another command")
    assert passed == ["first", "another command"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_the_callback_of_a_weak_reference_is_not_lost() -> None:
    def interrupted(_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        graph = {1}
        reference = weakref.ref(graph, interrupted)
        del graph  # Python prints what the callback raises, and goes on
        passed.append(reference() is None)
        with held():
            passed.append(False)

    passed: list[bool] = []
    with pytest.raises(Terminated), terminable():
        work()
    with terminable(), held():
        passed.append(True)
    assert passed == [True, True]


def test_signals_are_as_before_where_somebody_takes_them_over() -> None:
    with terminable():
        with kept():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)


def test_somebody_elses_sigterm_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with terminable():
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


def test_other_threads_cannot_have_signals() -> None:
    passed: list[bool] = []

    def work() -> None:
        with terminable(), held():
            passed.append(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert passed == [True]
