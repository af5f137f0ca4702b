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
from pathlib import Path
from typing import Any

import matplotlib.pyplot  # noqa: F401
import sklearn.datasets  # noqa: F401
import torch

from graphrelu.lab import cli
from graphrelu.lab.errors import INTERRUPTED
from graphrelu.lab.record.machine import commit
from graphrelu.lab.reproduce import table

RUNS, EPOCHS = 2, 10
REPRODUCE = ["reproduce", "segments", "--quick", "--runs", str(RUNS)]
WORK = {  # the arguments of `graphrelu`
    "reproduce": REPRODUCE,
    "compare": ["compare", "--runs", str(RUNS), "--epochs", str(EPOCHS)],
    "processes": [*REPRODUCE, "--engine", "2"],
    "ray": [*REPRODUCE, "--engine", "ray"],
}
CODES = {  # what a process may end with that was sent a signal; 0 where it had just finished
    signal.SIGKILL: (-signal.SIGKILL, 0),
    signal.SIGTERM: (128 + signal.SIGTERM, -signal.SIGTERM, 0),
}
TIMES = ("seconds", "date")  # all that may differ between two runs of the same seed


class Difference(Exception):
    """Something that a kill must not change."""


def start(folder: Path, what: str) -> int:
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
        code = cli.run([*WORK[what], "--device", "cpu", "--out", str(folder / "record.jsonl")])
        sys.stdout.flush()
    except BaseException:  # as an interpreter does at its end
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code of a process, ``None`` if it still runs after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def kill(pid: int, number: signal.Signals, what: str, errors: Path) -> None:
    """Ends the process, and looks at its exit code and at what it says."""
    os.kill(pid, number)
    code = ended(pid, 60)
    said = errors.read_text()
    if what == "processes" and number is signal.SIGKILL:
        said = ""  # what is said then, of semaphores, comes from Python's own helper
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


def outcome(folder: Path) -> tuple[dict[str, bytes], list[Any]]:
    """The tables as they were written, and all runs but for the time that they took."""
    pages = {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".md", ".csv")}
    runs = []
    for line in (folder / "record.jsonl").read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # torn, and ended by the next writer
            continue
        if event["event"] == "finished":
            runs.append({name: value for name, value in event.items() if name not in TIMES})
    return pages, sorted(runs, key=lambda run: json.dumps((run["config"], run["seed"])))


def cycle(
    folder: Path, what: str, most: int, longest: float, chance: random.Random, done: Counter[str]
) -> tuple[dict[str, bytes], list[Any]]:
    """Kills until the experiment is complete, ``most`` in all; returns its outcome."""
    while True:
        pid = start(folder, what)
        kills = done.total()
        code = ended(pid, chance.uniform(0, longest) if kills < most else 600)
        if code == 0:
            return outcome(folder)
        if code is not None:
            raise Difference(f"It ended with {code}: {(folder / 'err').read_text()}")
        number = list(CODES)[kills % len(CODES)]
        done[number.name] += 1
        kill(pid, number, what, folder / "err")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--what", choices=WORK, default="reproduce", help="is killed")
    parser.add_argument("--kills", type=int, default=100, help="in all (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    options = parser.parse_args()
    os.environ.pop("GRAPHRELU_DATA", None)  # embedded data
    table.QUICK_EPOCHS = EPOCHS
    torch.set_num_threads(1)
    commit()  # found out once, for all processes
    chance, done, tables = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="graphrelu-kills-") as name:
        began = time.monotonic()
        expected = cycle(Path(name, "undisturbed"), options.what, 0, 0.0, chance, done)
        took = time.monotonic() - began
        print(f"Undisturbed: {len(expected[1])} runs in {took:.1f} s.", flush=True)
        try:
            while done.total() < options.kills:
                folder = Path(name, f"cycle{tables}")
                found = cycle(folder, options.what, options.kills, took / 2, chance, done)
                for of, ours, theirs in zip(("table", "record"), found, expected, strict=True):
                    if ours != theirs:
                        raise Difference(f"After {done.total()} kills the {of} is another one.")
                tables += 1
                print(f"Table {tables}: the same after {done.total()} kills.", flush=True)
        except Difference as error:
            print(error, file=sys.stderr)
            return 1
    signals = ", ".join(f"{name} {count}" for name, count in done.items())
    print(f"{done.total()} kills ({signals}), {tables} tables, all as undisturbed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
