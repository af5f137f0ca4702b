"""Records of timings and looks: what counts, what is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrelu.lab.record.entries import Entries, origin


def test_the_first_of_the_same_identity_counts(tmp_path: Path) -> None:
    record = Entries(tmp_path / "deep" / "record.jsonl", "timed", ("name", "size"))
    assert record.read() == []
    record.append([{"name": "a", "size": 1, "seconds": 2.0}, {"name": "a", "size": 2}])
    record.append([{"name": "a", "size": 1, "seconds": 9.0}])
    assert record.read() == [{"name": "a", "size": 1, "seconds": 2.0}, {"name": "a", "size": 2}]


def test_other_lines_are_not_data(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    lines = ('{"event":"finished","name":1}', "[1]", '{"event":"timed"}', '{"name":2}', "{torn")
    path.write_text("\n".join(lines))
    record = Entries(path, "timed", ("name",))
    with pytest.raises(ValueError, match=r"record\.jsonl has nothing to draw yet"):
        record.required()
    record.append([{"name": 3}])
    assert record.required() == [{"name": 3}]


def test_nan_is_refused(tmp_path: Path) -> None:
    record = Entries(tmp_path / "record.jsonl", "timed", ("name",))
    with pytest.raises(ValueError, match="JSON"):
        record.append([{"name": 1, "seconds": float("nan")}])
    assert record.read() == []


def test_origin() -> None:
    entries = [
        {"device": "b", "versions": {"torch": "2"}},
        {"device": "a", "versions": {"torch": "2"}},
    ]
    assert origin(entries, "x", "timing") == "Made from `x`: 2 timings (a, b; torch 2)."
    assert origin(entries[:1], "x", "timing") == "Made from `x`: 1 timing (b; torch 2)."
