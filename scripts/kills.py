"""A hundred kills: an experiment is ended at random moments and begun again; its table stays.

``python scripts/kills.py`` ends ``graphrelu reproduce segments --quick`` by SIGKILL and SIGTERM in
turns, until its record is complete, and then begins another. Every table, and every run on record,
must be that of a process that nobody disturbed. What it needs is imported once: each start is a
fork.
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
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
CODES = {  # what a process may end with that was sent a signal; 0 where it had just finished
    signal.SIGKILL: (-signal.SIGKILL, 0),
    signal.SIGTERM: (128 + signal.SIGTERM, -signal.SIGTERM, 0),
}
TIMES = ("seconds", "date")  # all that may differ between two runs of the same seed


class Difference(Exception):
    """Something that a kill must not change."""


@dataclass
class Tally:
    """What was done, and what was found on the way."""

    signals: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    tables: int = 0
    torn: int = 0
    parts: int = 0

    @property
    def kills(self) -> int:
        return self.signals.total()


def start(folder: Path) -> int:
    """The experiment in a process of its own, which writes to ``folder``; returns its number."""
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
        record = str(folder / "segments.jsonl")
        options = ["--quick", "--runs", str(RUNS), "--device", "cpu", "--out", record]
        code = cli.run(["reproduce", "segments", *options])
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


def kill(pid: int, number: signal.Signals, folder: Path, tally: Tally) -> None:
    """Ends the process, and looks at what it leaves behind."""
    os.kill(pid, number)
    code = ended(pid, time.monotonic() + 60)
    tally.signals[number.name] += 1
    tally.moments[moment(folder / "segments.jsonl", pid)] += 1
    if code not in CODES[number]:
        raise Difference(f"{number.name} ended it with {code}: {(folder / 'err').read_text()}")
    tally.codes[code] += 1
    said = (folder / "err").read_text()
    # The short form where the command had not begun its work, or was done with it.
    if said not in ((INTERRUPTED + "\n", "Interrupted.\n") if code > 0 else ("",)):
        raise Difference(f"{number.name} made it say {said!r}.")


def moment(record: Path, pid: int) -> str:
    """What the process was at, as the record tells."""
    events = [event for event in lines(record) if event is not None]
    own = [event for event in events if event.get("pid") == pid]
    if not own:
        return "before its first batch"
    if own[-1]["event"] == "released":  # by SIGTERM
        return "in a batch"
    key = own[-1]["config"]
    mine = [e["seed"] for e in events if e["event"] == "finished" and e["config"] == key]
    finished = {seed for seeds in mine for seed in seeds}
    return "after a batch" if set(own[-1]["missing"]) <= finished else "in a batch"


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
    pages = {name: (folder / name).read_bytes() for name in ("segments.md", "segments.csv")}
    events = [event for event in lines(folder / "segments.jsonl") if event is not None]
    runs = [
        {name: value for name, value in event.items() if name not in TIMES}
        for event in events
        if event["event"] == "finished"
    ]
    return pages, sorted(runs, key=lambda run: json.dumps((run["config"], run["seed"])))


def cycle(
    folder: Path, most: int, longest: float, chance: random.Random, tally: Tally
) -> tuple[dict[str, bytes], list[Any]]:
    """Kills, ``most`` at most, until the experiment is complete; returns its outcome."""
    while True:
        pid = start(folder)
        patience = chance.uniform(0, longest) if tally.kills < most else 600
        code = ended(pid, time.monotonic() + patience)
        if code == 0:
            break
        if code is not None:
            raise Difference(f"It ended with {code}: {(folder / 'err').read_text()}")
        kill(pid, SIGNALS[tally.kills % len(SIGNALS)], folder, tally)
    record = Record(folder / "segments.jsonl")
    record.read()
    if not record.path.read_bytes().endswith(b"\n"):
        raise Difference(f"The last line of {record.path} is torn.")
    tally.torn += len(record.corrupt_lines)
    tally.parts += len(list(folder.rglob("*.part")))
    return outcome(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
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
        expected = cycle(Path(name, "undisturbed"), 0, 0.0, chance, tally)
        took = time.monotonic() - began
        print(f"Undisturbed: {len(expected[1])} runs in {took:.1f} s.", flush=True)
        try:
            while tally.kills < options.kills:
                folder, before = Path(name, f"cycle{tally.tables}"), tally.kills
                found = cycle(folder, options.kills, took / 2, chance, tally)
                for what, ours, theirs in zip(("table", "record"), found, expected, strict=True):
                    if ours != theirs:
                        raise Difference(f"After {tally.kills} kills the {what} is another one.")
                tally.tables += 1
                print(f"Table {tally.tables}: the same, kills: {tally.kills - before}.", flush=True)
        except Difference as error:
            print(error, file=sys.stderr)
            return 1
    for title, counts in (("signals", tally.signals), ("moments", tally.moments)):
        print(f"{title}: {', '.join(f'{key} {n}' for key, n in counts.most_common())}")
    print(f"exit codes: {', '.join(f'{key} ({n})' for key, n in tally.codes.most_common())}")
    print(f"torn lines, each ended by the next writer: {tally.torn}")
    print(f"unfinished files left behind: {tally.parts}")
    print(f"{tally.kills} kills, {tally.tables} tables, all as undisturbed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
