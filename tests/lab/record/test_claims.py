"""Several processes share a record: nothing runs twice, and what was interrupted is repeated."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab.record.results import Batch, Record
from tests.lab.record.test_results import GAT, GCN, make_result

SPAWN = multiprocessing.get_context("spawn")
CELLS = [GCN, GAT]
SEEDS = range(40)


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def work(path: Path, barrier: Barrier) -> None:
    """Do whatever is left, in batches of three, one result at a time."""
    record = Record(path)
    barrier.wait()
    while batches := record.plan(CELLS, SEEDS, batch_size=3):
        for batch in batches:
            if record.claim(*batch):
                for seed in batch.missing:
                    record.append([make_result(batch.config, seed)])


def die_in_a_batch(path: Path, pipe: Connection) -> None:
    record = Record(path)
    assert record.claim(GCN, [7, 3, 5, 1])
    record.append([make_result(GCN, 3)])
    pipe.send("ready")
    signal.pause()


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "node.jsonl")


@pytest.fixture
def edit(record: Record) -> Callable[..., None]:
    """Changes the last line of the record, as another process would have written it."""

    def change(**fields: Any) -> None:
        lines = entries(record.path)
        lines[-1] |= fields
        record.path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return change


def test_two_processes_run_everything_once(record: Record) -> None:
    barrier = SPAWN.Barrier(2)
    workers = [SPAWN.Process(target=work, args=(record.path, barrier)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    lines = entries(record.path)  # each is whole
    started = [line for line in lines if line["event"] == "started"]
    finished = [line for line in lines if line["event"] == "finished"]
    assert {line["pid"] for line in started} <= {worker.pid for worker in workers}

    once = Counter((cell.activation, seed) for cell in CELLS for seed in SEEDS)
    assert once == Counter(
        (line["config"]["activation"], seed) for line in finished for seed in line["seed"]
    )
    assert once == Counter(
        (line["config"]["activation"], seed) for line in started for seed in line["seeds"]
    )
    assert len(record.read()) == 80
    assert record.corrupt_lines == []


def test_a_killed_batch_comes_back_as_it_was_composed(record: Record) -> None:
    ours, theirs = SPAWN.Pipe()
    worker = SPAWN.Process(target=die_in_a_batch, args=(record.path, theirs))
    worker.start()
    try:
        assert ours.recv() == "ready"
        fresh = [Batch(GCN, (0, 2), (0, 2)), Batch(GCN, (4, 6), (4, 6))]
        assert record.plan([GCN], range(8), 2) == fresh
        assert not record.claim(GCN, [5])
        assert not record.claim(GCN, [0, 3])
    finally:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    # Dead, though its parent has not asked after it yet.
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    interrupted = Batch(GCN, (7, 3, 5, 1), (7, 5, 1))
    assert record.plan([GCN], range(8), 2) == [interrupted, *fresh]
    worker.join()
    assert record.plan([GCN], range(8), 2) == [interrupted, *fresh]

    # Only the seeds that are asked for; the composition stays.
    assert record.plan([GCN], [1, 3], 2) == [Batch(GCN, (7, 3, 5, 1), (1,))]
    assert record.claim(*interrupted)
    assert record.plan([GCN], range(8), 2) == fresh
    record.append([make_result(GCN, 5)])
    record.release(GCN, interrupted.missing)
    assert record.plan([GCN], range(8), 2) == [Batch(GCN, (7, 3, 5, 1), (7, 1)), *fresh]
    record.append([make_result(GCN, seed) for seed in (0, 1, 2, 4, 6, 7)])
    assert record.plan([GCN], range(8), 2) == []


def test_a_plan(record: Record) -> None:
    record.append([make_result(GCN, 1)])
    plan = record.plan([GAT, GCN, GAT], [4, 3, 2, 1, 0, 4], batch_size=3)
    assert plan == [
        Batch(GAT, (4, 3, 2), (4, 3, 2)),
        Batch(GAT, (1, 0), (1, 0)),
        Batch(GCN, (4, 3, 2), (4, 3, 2)),
        Batch(GCN, (0,), (0,)),
    ]
    with pytest.raises(ValueError, match=r"^A batch has one run or more, not 0\.$"):
        record.plan([GCN], [0], 0)


def test_a_claim_is_all_or_nothing(record: Record) -> None:
    assert record.claim(GCN, [0, 1])
    before = record.path.read_bytes()
    assert not Record(record.path).claim(GCN, [1, 2])
    assert not record.claim(GCN, [0, 1])
    assert record.path.read_bytes() == before
    assert record.claim(GAT, [1, 2])
    record.append([make_result(GCN, 0), make_result(GCN, 1)])
    assert not record.claim(GCN, [1])
    assert record.claim(GCN, [1, 2], missing=[2])
    for missing in ([], [3]):
        with pytest.raises(ValueError, match="are not some of the batch"):
            record.claim(GCN, [1, 2], missing)


def test_a_released_batch_keeps_its_composition(record: Record) -> None:
    record.claim(GCN, [2, 0, 1])
    record.claim(GAT, [0])
    assert record.plan([GCN, GAT], range(3), 9) == [Batch(GAT, (1, 2), (1, 2))]
    record.release(GCN, [2, 0, 1])
    assert Record(record.path).plan([GCN], range(3), 1) == [Batch(GCN, (2, 0, 1), (2, 0, 1))]
    assert record.claim(GCN, [2, 0, 1])


def test_the_number_of_a_dead_process_may_be_in_use_again(
    record: Record, edit: Callable[..., None]
) -> None:
    record.claim(GCN, [0, 1])
    (line,) = entries(record.path)
    assert line["pid"] == os.getpid()
    assert Record(record.path).plan([GCN], [0, 1], 2) == []
    if line["start"] is not None:
        edit(start=line["start"] - 1)
        assert Record(record.path).plan([GCN], [0, 1], 2) == [Batch(GCN, (0, 1), (0, 1))]
    # Where the system does not tell when a process started, its number has to do.
    edit(start=None)
    assert Record(record.path).plan([GCN], [0, 1], 2) == []
    edit(pid=2**22 + 1)
    assert Record(record.path).plan([GCN], [0, 1], 2) == [Batch(GCN, (0, 1), (0, 1))]


def test_another_host_is_given_half_an_hour(record: Record, edit: Callable[..., None]) -> None:
    record.claim(GCN, [0, 1])
    for minutes, alive in ((29, True), (31, False), (-5, True)):
        date = datetime.now(timezone.utc) - timedelta(minutes=minutes)
        edit(host="elsewhere", pid=2**22 + 1, date=date.isoformat())
        assert Record(record.path).claim(GCN, [1]) == (not alive)
