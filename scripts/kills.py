"""A hundred kills: an experiment is ended at random moments and begun again; its table stays.

``python scripts/kills.py`` ends ``graphrelu reproduce segments --quick`` by SIGKILL and SIGTERM in
turns, until its record is complete, and then begins another; or ``graphrelu compare``, or a pool of
processes, or a Ray cluster (``--what``). Every table, and every run on record, must
be that of a process that nobody disturbed. What it needs is imported once: each start is a fork.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401
import sklearn.datasets  # noqa: F401
import torch

from graphrelu.lab import cli
from graphrelu.lab.record.machine import commit
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce import experiment
from graphrelu.lab.reproduce.command import INTERRUPTED

RUNS, EPOCHS = 2, 10
REPRODUCE = ["reproduce", "segments", "--quick", "--runs", str(RUNS)]
WORK = {  # the arguments of `graphrelu`
    "reproduce": REPRODUCE,
    "compare": ["compare", "--runs", str(RUNS), "--epochs", str(EPOCHS)],
    "processes": [*REPRODUCE, "--engine", "2"],
    "ray": [*REPRODUCE, "--engine", "ray"],
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
CODES = {  # what a process may end with that was sent a signal; 0 where it had just finished
    signal.SIGKILL: (-signal.SIGKILL, 0),
    signal.SIGTERM: (128 + signal.SIGTERM, -signal.SIGTERM, 0),
}
RECORD = "record.jsonl"
TABLES = (".md", ".csv")
TIMES = ("seconds", "date")  # all that may differ between two runs of the same seed


class Difference(Exception):
    """Something that a kill must not change."""


@dataclass
class Tally:
    """What was done, and what was found on the way."""

    signals: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    tables: int = 0
    torn: int = 0
    parts: int = 0

    @property
    def kills(self) -> int:
        return self.signals.total()


def start(folder: Path, arguments: Sequence[str]) -> int:
    """``graphrelu`` in a process of its own, which writes to ``folder``; returns its number."""
    folder.mkdir(exist_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
            with (folder / name).open("w") as file:
                os.dup2(file.fileno(), stream.fileno())
        code = cli.run([*arguments, "--device", "cpu", "--out", str(folder / RECORD)])
        sys.stdout.flush()
    except BaseException:  # as an interpreter does at its end
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, deadline: float) -> int | None:
    """The exit code of a process, ``None`` if it still runs at the deadline."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def kill(pid: int, number: signal.Signals, errors: Path, what: str, tally: Tally) -> None:
    """Ends the process, and looks at what it leaves behind."""
    os.kill(pid, number)
    code = ended(pid, time.monotonic() + 60)
    said = errors.read_text()
    if what == "processes" and number is signal.SIGKILL:
        said = ""  # what is said then, of semaphores, comes from Python's own helper
    tally.signals[number.name] += 1
    tally.codes[str(code)] += 1
    if what == "ray" and code == 1 and "SIGTERM received" in said:
        return  # said by Ray, while its cluster starts
    if code not in CODES[number]:
        raise Difference(f"{number.name} ended it with {code}: {said}")
    # The short form where the command had not begun its work, or was done with it.
    expected = (INTERRUPTED, "Interrupted.") if code > 0 else ("",)
    before, _, last = said.rstrip("\n").rpartition("\n")
    # Before it Ray says more, and Python where the signal fell into a callback.
    may_say_more = what == "ray" or before.startswith("Exception ignored in")
    if last not in expected or (before and not may_say_more):
        raise Difference(f"{number.name} made it say {said!r}.")


def lines(record: Path) -> list[dict[str, Any] | None]:
    """The events on record; ``None`` for a line that is not whole."""
    found: list[dict[str, Any] | None] = []
    for line in record.read_bytes().splitlines() if record.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append(None)
    return found


def outcome(folder: Path) -> tuple[dict[str, bytes], list[Any]]:
    """The tables as they were written, and all runs but for the time that they took."""
    pages = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in TABLES}
    runs = [
        {name: value for name, value in event.items() if name not in TIMES}
        for event in lines(folder / RECORD)
        if event is not None and event["event"] == "finished"
    ]
    return pages, sorted(runs, key=lambda run: json.dumps((run["config"], run["seed"])))


def cycle(
    folder: Path, what: str, most: int, longest: float, chance: random.Random, tally: Tally
) -> tuple[dict[str, bytes], list[Any]]:
    """Kills, ``most`` at most, until the experiment is complete; returns its outcome."""
    while True:
        pid = start(folder, WORK[what])
        patience = chance.uniform(0, longest) if tally.kills < most else 600
        code = ended(pid, time.monotonic() + patience)
        if code == 0:
            break
        if code is not None:
            raise Difference(f"It ended with {code}: {(folder / 'err').read_text()}")
        kill(pid, SIGNALS[tally.kills % len(SIGNALS)], folder / "err", what, tally)
    record = Record(folder / RECORD)
    record.read()
    if not record.path.read_bytes().endswith(b"\n"):
        raise Difference(f"The last line of {record.path} is torn.")
    tally.torn += len(record.corrupt_lines)
    tally.parts += len(list(folder.rglob("*.part")))
    return outcome(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--what", choices=WORK, default="reproduce", help="is killed")
    parser.add_argument("--kills", type=int, default=100, help="in all (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    options = parser.parse_args(arguments)
    os.environ.pop("GRAPHRELU_DATA", None)  # embedded data
    experiment.QUICK_EPOCHS = EPOCHS
    torch.set_num_threads(1)
    commit()  # found out once, for all processes
    chance, tally = random.Random(options.seed), Tally()
    with tempfile.TemporaryDirectory(prefix="graphrelu-kills-") as name:
        began = time.monotonic()
        expected = cycle(Path(name, "undisturbed"), options.what, 0, 0.0, chance, tally)
        took = time.monotonic() - began
        print(f"Undisturbed: {len(expected[1])} runs in {took:.1f} s.", flush=True)
        try:
            while tally.kills < options.kills:
                folder, before = Path(name, f"cycle{tally.tables}"), tally.kills
                found = cycle(folder, options.what, options.kills, took / 2, chance, tally)
                for of, ours, theirs in zip(("table", "record"), found, expected, strict=True):
                    if ours != theirs:
                        raise Difference(f"After {tally.kills} kills the {of} is another one.")
                tally.tables += 1
                print(f"Table {tally.tables}: the same, kills: {tally.kills - before}.", flush=True)
        except Difference as error:
            print(error, file=sys.stderr)
            return 1
    print(f"signals: {', '.join(f'{key} {n}' for key, n in tally.signals.most_common())}")
    print(f"exit codes: {', '.join(f'{key} ({n})' for key, n in tally.codes.most_common())}")
    print(f"torn lines, each ended by the next writer: {tally.torn}")
    print(f"unfinished files left behind: {tally.parts}")
    print(f"{tally.kills} kills, {tally.tables} tables, all as undisturbed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
