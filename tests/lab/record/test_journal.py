"""Lines of a record are standard JSON, of a length that can be read; others are not data."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrelu.lab.record import journal
from graphrelu.lab.record.journal import Journal, parse_line
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


def test_what_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST_LINE", 40)
    record = Journal(tmp_path / "record.jsonl")
    with record.exclusive():
        with pytest.raises(ValueError, match=r"record\.jsonl may have 40 bytes at most\.$"):
            record.write("timed", [{"a": 40 * "x"}])
        with pytest.raises(ValueError, match="JSON"):
            record.write("timed", [{"a": float("nan")}])
        record.write("timed", [{"a": 1}])
    assert record.news() == [b'{"event":"timed","a":1}']
    with pytest.raises(ValueError, match="at most, not 41"):
        parse_line(b'{"a":"' + 33 * b"x" + b'"}')
