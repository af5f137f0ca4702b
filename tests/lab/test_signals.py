"""SIGTERM is an interruption, where a command runs and nowhere else."""

from __future__ import annotations

import signal
import threading

import pytest

from graphrelu.lab.signals import Terminated, exit_code, terminable

pytestmark = pytest.mark.usefixtures("own_signals")


def test_sigterm_raises_where_a_command_runs() -> None:
    with pytest.raises(Terminated), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert (exit_code(KeyboardInterrupt()), exit_code(Terminated())) == (130, 143)


def test_somebody_elses_sigterm_is_left_alone() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with terminable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


def test_other_threads_cannot_have_signals() -> None:
    passed: list[bool] = []

    def work() -> None:
        with terminable():
            passed.append(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert passed == [True]
