"""Lines of a record are standard JSON, of a length that can be read; others are not data."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrelu.lab.record import journal
from graphrelu.lab.record.entries import Entries, origin
from graphrelu.lab.record.journal import parse_line
from graphrelu.lab.record.results import Record


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"3", b'"event"', b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":"\xff"}'),
        *(b'{"a":1}\x00', b'\xef\xbb\xbf{"a":1}', b'{"a":' + 5_000 * b"9" + b"}"),
        b'{"a":' + 100_000 * b"[" + 100_000 * b"]" + b"}",
        100_000 * b'{"a":' + b"1" + 100_000 * b"}",
    ],
)
def test_what_is_not_a_line(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_line(line)
    path = tmp_path / "record.jsonl"
    path.write_bytes(line + b"\n" + line)
    record = Record(path)
    assert record.read() == []
    assert record.corrupt_lines == ([] if line == b"" else [1, 2])
    assert Entries(path, "timed", ("a",)).read() == []


def test_lines_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST_LINE", 40)
    entries = Entries(tmp_path / "record.jsonl", "timed", ("a",))
    with pytest.raises(ValueError, match=r"record\.jsonl may have 40 bytes at most\.$"):
        entries.append([{"a": 40 * "x"}])
    assert entries.read() == []
    entries.append([{"a": 1}])
    with entries.path.open("ab") as file:
        file.write(b'{"event":"timed","a":"' + 40 * b"x" + b'"}\n')
    assert entries.read() == [{"a": 1}]
    assert Record(entries.path).read() == []


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
    entries = [{"device": device, "versions": {"torch": "2"}} for device in "ba"]
    assert origin(entries, "x", "timing") == "Made from `x`: 2 timings (a, b; torch 2)."
    assert origin(entries[:1], "x", "timing") == "Made from `x`: 1 timing (b; torch 2)."
