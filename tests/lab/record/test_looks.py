"""Looks on record: which look a set of runs is, and what is no look."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab.record.looks import Look, Splits, numbers
from graphrelu.lab.record.results import Record

SPLITS = Splits(share=0.8, ratio=0.125, num_test=19)
BEGUN = Look("0a1b2c3d4e5f", "mutag", "gin", 0.5, SPLITS, "graphrelu compare mutag", {}, "today")


def looked(**pairs: str) -> Look:
    return replace(BEGUN, pairs=pairs)


def test_a_set_of_runs_is_one_look_and_each_question_has_its_own_count() -> None:
    looks = [BEGUN, looked(grelu="0-9", elu="0-9"), looked(grelu="0-19", elu="0-9")]
    assert numbers([BEGUN], {"grelu": "0-9"}) == (1, 1)
    assert numbers(looks, {"grelu": "0-9", "elu": "0-9"}) == (1, 1)
    assert numbers(looks, {"grelu": "0-19", "elu": "0-9"}) == (2, 1)
    # New to both, and new to the others alone.
    assert numbers(looks, {"grelu": "0-29", "elu": "0-29"}) == (3, 2)
    assert numbers(looks, {"grelu": "0-19", "elu": "0-9", "gelu": "0-9"}) == (2, 2)


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    record = Record(tmp_path / "runs.jsonl")
    for look in (BEGUN, BEGUN, looked(grelu="0-9"), BEGUN, looked(grelu="0-9")):
        record.add_look(replace(look, date=f"day {record._journal.lines}"))
    assert record._journal.lines == 2
    wider = replace(looked(grelu="0-9"), margin=1.0)
    assert record.add_look(wider)[-1] == wider  # which `report` is to use
    again = Record(record.path)
    assert again.looks(BEGUN.cell) == record.looks(BEGUN.cell)
    assert again.looks("another cell") == []
    assert again.read() == again.corrupt_lines == []


@pytest.mark.parametrize(
    "damage",
    [
        {"margin": -1},
        {"pairs": {"grelu": 9}},
        {"splits": []},
        {"splits": {"share": 2}},
        {"splits": {"count": 0}},
        {"splits": {"size": 1}},
        {"more": 1},
    ],
)
def test_a_damaged_look_is_a_line_that_cannot_be_read(
    damage: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"event": "looked", **asdict(BEGUN), **damage}) + "\n")
    record = Record(path)
    assert (record.looks(BEGUN.cell), record.corrupt_lines) == ([], [1])
