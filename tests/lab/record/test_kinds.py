"""Records whose fields are of the wrong kind: none of them is data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from graphrelu.lab import page
from graphrelu.lab.record import kinds
from graphrelu.lab.record.results import KINDS, LATER, OWN, Record
from tests.lab.record.lines import ODD, runs

RUNS = runs()


def written(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_numbers() -> None:
    for value in (0, -1, 0.5, 1e150):
        assert kinds.number(value)
    for value in (True, "1", None, 1e151, 10**400, float("inf"), float("nan"), [1]):
        assert not kinds.number(value)
    assert kinds.whole(2**62)
    for value in (True, 1.0, 2**63, "1"):
        assert not kinds.whole(value)
    assert kinds.text("é")
    for value in (1, None, "\ud800"):
        assert not kinds.text(value)


def test_every_field_of_a_run(tmp_path: Path) -> None:
    path, entry = tmp_path / "record.jsonl", RUNS[0]
    assert len(Record(written(path, entry)).read()) == 1
    for name, kind in KINDS.items():
        wrong = [value for value in ODD if not kind(value)]
        assert len(wrong) > 5, name
        if name in OWN:
            wrong = [*([value] for value in wrong), *(v for v in ODD if not isinstance(v, list))]
            wrong += [[], entry[name] * 2]
        if name == "note":  # one for all runs of a line is a text, not a list
            wrong = [value for value in wrong if not isinstance(value, str)]
        lines = [entry | {name: value} for value in wrong]
        if name not in LATER:
            lines.append({key: value for key, value in entry.items() if key != name})
        record = Record(written(path, *lines))
        assert record.read() == []
        assert len(record.corrupt_lines) == len(lines)
    for name, value in entry["config"].items():
        wrong = [v for v in ODD if v is None or type(v) is not type(value)]
        if isinstance(value, float):
            wrong.remove(0)
            wrong = [v for v in wrong if not kinds.number(v)]
        configs = ({"config": entry["config"] | {name: v}} for v in wrong)
        assert Record(written(path, *(entry | config for config in configs))).read() == [], name


def test_curves_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for changes in ({"epochs_run": [1]}, {"epochs_run": [-5]}):
        assert Record(written(path, RUNS[0] | changes)).read() == []


def test_numbers_that_cannot_be_reckoned_with(tmp_path: Path) -> None:
    """What the fuzzer found: the percentiles of such curves are infinite, and no page is made."""
    path = tmp_path / "record.jsonl"
    (seed,) = RUNS[0]["seed"]
    steep = RUNS[0] | {"seed": [seed + 1], "curves": [{"train_loss": [1e308, -1e308]}]}
    record = Record(written(path, RUNS[0], steep))
    assert [result.seed for result in record.read()] == [seed]
    assert record.corrupt_lines == [2]


def test_records_written_twice_and_together(tmp_path: Path) -> None:
    """Each twice, between lines that are no data."""
    noise = [{"event": "unheard of"}, {"event": "timed", "seconds": 1.0}, {}]
    path = written(tmp_path / "record.jsonl", *RUNS, *noise, *RUNS)
    assert len(Record(path).read()) == 4
    text = page.render(page.from_records([path]))
    assert "record.jsonl: " in text
