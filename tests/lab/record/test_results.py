"""The record keeps every finished run, whatever happens to the process that writes it."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from dataclasses import MISSING, asdict, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import (
    COMMON,
    OWN,
    SET_SCORES,
    Look,
    Record,
    Result,
    Splits,
    kept_positions,
    look_numbers,
    thin,
)
from tests.lab import fake_engine

HELD = """
import os, signal, sys
from graphrelu.lab.record.results import Journal
with Journal(sys.argv[1]).exclusive():
    os.kill(os.getpid(), signal.SIGKILL)
"""
GCN = recipe("cora", "gcn", "relu")
GAT = recipe("cora", "gat", "grelu", activation_options={"steps": 10})
SPLITS = Splits(share=0.8, ratio=0.125, num_test=19)
BEGUN = Look("0a1b2c3d4e5f", "mutag", "gin", 0.5, SPLITS, "graphrelu compare mutag", {}, "today")


def make_result(config: Config = GCN, seed: int = 0, score: float = 0.75) -> Result:
    """A run as a GPU leaves it, with losses that no short decimal is equal to."""
    curves = {"train_loss": thin([1 / (1 + i) for i in range(200)])}
    own = fake_engine.make_result(config, seed, score)
    own = replace(own, epochs_run=200, val_loss=0.1 + 0.2, curves=curves)
    return replace(own, peak_memory=2**20)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "results" / "node.jsonl")


def test_round_trip(record: Record) -> None:
    results = [make_result(GCN, 0), make_result(GCN, 1, 0.25), make_result(GAT, 0, 1.0)]
    record.append(results[:1])
    record.append(results[1:])
    assert record.read() == Record(record.path).read() == results
    assert record.corrupt_lines == []
    plain = json.loads(record.path.read_text().splitlines()[2])
    assert plain.pop("event") == "finished"
    assert set(plain) == {field.name for field in fields(Result)}
    assert plain["config"] == GAT.to_dict()


def test_runs_of_a_batch_share_a_line(record: Record) -> None:
    results = [make_result(seed=seed, score=0.1 * seed) for seed in range(3)]
    record.append(results)
    record.append([*results[:1], replace(make_result(seed=3), note="another split")])
    first, second = map(json.loads, record.path.read_text().splitlines())
    assert (first["seed"], first["score"]) == ([0, 1, 2], [r.score for r in results])
    assert (first["note"], second["note"]) == (results[0].note, [results[0].note, "another split"])
    assert record.read()[:3] == results


def test_older_records_know_less(record: Record) -> None:
    """And they say what was begun, and more of each class."""
    record.append([make_result(seed=seed) for seed in range(2)])
    entry = json.loads(record.path.read_text())
    later = {field.name: field.default for field in fields(Result) if field.default is not MISSING}
    lines = [{name: entry[name] for name in entry if name not in later}]
    lines[0]["class_accuracy"] = [[0.5, None, 1.0], [0.5, 0.5, 1.0]]
    lines += [{"event": event, "seeds": [2]} for event in ("started", "released")]
    record.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    older = Record(record.path)
    for seed, found in enumerate(older.read()):
        assert str(found) == str(replace(make_result(seed=seed), **later))
    assert (older.left(GCN, range(3)), older.corrupt_lines) == ([2], [])


def test_without_curves(record: Record) -> None:
    """But for the scores that tell how soon a set of graphs is learned."""
    curves = {"train_loss": [1.0, 0.5], SET_SCORES: [0.25, 0.5]}
    Record(record.path, curves=False).append([replace(make_result(), curves=curves)])
    assert record.read()[0].curves == {SET_SCORES: [0.25, 0.5]}


def test_losses_that_are_not_finite(record: Record) -> None:
    odd = replace(make_result(), test_loss=math.inf, curves={"val_loss": [1.0, math.nan]})
    record.append([odd])
    assert "NaN" not in record.path.read_text()
    (found,) = record.read()
    assert math.isnan(found.test_loss)
    assert math.isnan(found.curves["val_loss"][1])


def test_of_duplicates_the_first_counts(record: Record) -> None:
    record.append([make_result(score=0.1), make_result(score=0.2)])
    record.append([make_result(score=0.3)])
    assert [result.score for result in record.read()] == [0.1]
    # Every part of a configuration makes another run.
    record.append([make_result(replace(GCN, lr=0.02), score=0.4)])
    assert [result.score for result in record.read()] == [0.1, 0.4]


@pytest.mark.parametrize("cut", [1, 2, 40, 700])
def test_a_torn_last_line(record: Record, cut: int) -> None:
    record.append([make_result(seed=0)])
    record.append([make_result(seed=1)])
    whole = record.path.read_bytes()
    record.path.write_bytes(whole[:-cut])
    torn = Record(record.path)
    assert [result.seed for result in torn.read()] == [0]
    assert torn.corrupt_lines == [2]
    assert record.path.read_bytes() == whole[:-cut]

    torn.append([make_result(seed=2)])
    assert record.path.read_bytes().startswith(whole[:-cut] + b"\n{")
    # Where only the newline was missing, nothing was lost.
    expected = [0, 1, 2] if cut == 1 else [0, 2]
    for reader in (torn, Record(record.path)):
        assert [result.seed for result in reader.read()] == expected
        assert reader.corrupt_lines == ([] if cut == 1 else [2])


NO_OBJECTS = (
    *(b"", b"{", b"[]", b"3", b'"event"', b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":"\xff"}'),
    *(b'{"a":1}\x00', b'\xef\xbb\xbf{"a":1}', b'{"a":' + 5_000 * b"9" + b"}"),
    b'{"a":' + 100_000 * b"[" + 100_000 * b"]" + b"}",
    100_000 * b'{"a":' + b"1" + 100_000 * b"}",
)
ODD: tuple[Any, ...] = (10**400, 1e151, "é\ud800", [[[]]], {"a": {}}, [1e308, -1e308])
NO_LOOKS: tuple[dict[str, Any], ...] = (
    *({"margin": -1}, {"pairs": {"grelu": 9}}, {"splits": []}, {"splits": {"share": 2}}),
    *({"splits": {"count": 0}}, {"splits": {"size": 1}}, {"more": 1}),
)


def test_lines_that_are_no_data_are_numbered(record: Record) -> None:
    """No JSON, or of fields of the wrong kind."""
    for seed in range(2):
        record.append([make_result(seed=seed)])
    first, last = record.path.read_bytes().splitlines()
    run = json.loads(last)
    damaged = [run | {name: value} for name in (*COMMON, *OWN) for value in ODD]
    damaged += [run | {name: [value]} for name in OWN for value in ODD]
    damaged += [run | {name: run[name] * 2} for name in OWN if name != "note"]
    damaged += [{key: run[key] for key in run if key != name} for name in (*COMMON, "score")]
    damaged += [run | {"config": run["config"] | {n: None}} for n in run["config"]]
    damaged += [run | {"epochs_run": [1]}, run | {"seconds": [None]}, run | {"score": [7]}]
    damaged += [run | {"score": [math.nan]}, run | {"test_loss": [math.nan]}]
    damaged += [run | {"more": [1]}, run | {"config": {"dataset": "cora"}}]
    damaged += [{}, {"event": "unheard of"}, {"event": "timed", "seconds": 1.0}]
    damaged += [{"event": "looked", **asdict(BEGUN), **damage} for damage in NO_LOOKS]
    lines = [*NO_OBJECTS, *(json.dumps(line).encode() for line in damaged)]
    record.path.write_bytes(b"\n".join([first, *lines, last]) + b"\n\xff")
    reader = Record(record.path)
    assert [result.seed for result in reader.read()] == [0, 1]
    assert reader.corrupt_lines == [*range(2, len(lines) + 2), len(lines) + 3]
    assert reader.looks(BEGUN.cell) == []
    reader.append([make_result(seed=2)])
    assert len(reader.read()) == 3
    assert len(reader.corrupt_lines) == len(lines) + 1


def test_what_is_not_written(record: Record) -> None:
    with record.exclusive(), pytest.raises(ValueError, match="JSON"):
        record.write("timed", [{"a": 1}, {"a": float("nan")}])
    assert not record.path.exists()


def test_what_is_left_of_a_cell(record: Record) -> None:
    record.append([make_result(GCN, 1)])
    assert record.left(GCN, [4, 1, 0, 4]) == [4, 0]
    assert record.left(GAT, [4, 1, 0, 4]) == [4, 1, 0]


def test_one_command_writes_at_a_time(record: Record) -> None:
    """The lock is the system's: it ends with the block, or with the process."""
    with record.exclusive():
        with pytest.raises(ValueError, match=r"^Another command is writing to .*node\.jsonl\.$"):
            Record(record.path).append([make_result()])
        with record.exclusive():
            record.append([make_result()])
    Record(record.path).append([make_result(seed=1)])
    assert len(record.read()) == 2
    killed = subprocess.run([sys.executable, "-c", HELD, str(record.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    record.append([make_result(seed=2)])


def test_thin() -> None:
    assert thin([]) == []
    assert thin([0.123456]) == [0.1235]
    assert thin(list(range(50))) == list(range(50))
    assert thin(list(range(99))) == list(range(0, 99, 2))
    positions = kept_positions(1000)
    assert (len(positions), positions[0], positions[-1]) == (50, 0, 999)
    assert {b - a for a, b in pairwise(positions)} <= {20, 21}
    assert kept_positions(51) == sorted(set(kept_positions(51)))
    assert kept_positions(10, at_most=4) == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [("accuracy", 0.5, 75.0), ("r2", -7.0, 1.5), ("mae", -7.0, 0.5), ("rmse", -7.0, 0.5)],
)
def test_scores_have_the_range_of_their_metric(metric: str, good: float, bad: float) -> None:
    config = replace(GCN, metric=metric)
    assert make_result(config, 0, good).score == good
    for score in (bad, float("nan"), float("-inf")):
        with pytest.raises(ValueError, match=r"^A score lies in \["):
            make_result(config, 0, score)


def looked(**pairs: str) -> Look:
    return replace(BEGUN, pairs=pairs)


def test_a_set_of_runs_is_one_look_and_each_question_has_its_own_count() -> None:
    looks = [BEGUN, looked(grelu="0-9", elu="0-9"), looked(grelu="0-19", elu="0-9")]
    assert look_numbers([BEGUN], {"grelu": "0-9"}) == (1, 1)
    assert look_numbers(looks, {"grelu": "0-9", "elu": "0-9"}) == (1, 1)
    assert look_numbers(looks, {"grelu": "0-19", "elu": "0-9"}) == (2, 1)
    # New to both, and new to the others alone.
    assert look_numbers(looks, {"grelu": "0-29", "elu": "0-29"}) == (3, 2)
    assert look_numbers(looks, {"grelu": "0-19", "elu": "0-9", "gelu": "0-9"}) == (2, 2)


def test_only_looks_that_are_new_are_written(record: Record) -> None:
    for look in (BEGUN, BEGUN, looked(grelu="0-9"), BEGUN, looked(grelu="0-9")):
        record.add_look(replace(look, date=f"day {record.lines}"))
    assert record.lines == 2
    wider = replace(looked(grelu="0-9"), margin=1.0)
    assert record.add_look(wider)[-1] == wider  # which `report` is to use
    again = Record(record.path)
    assert again.looks(BEGUN.cell) == record.looks(BEGUN.cell)
    assert again.looks("another cell") == []
    assert again.read() == again.corrupt_lines == []
