"""Records whose fields are of the wrong kind: none of them is data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from graphrelu.lab import page
from graphrelu.lab.record import kinds
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import COMMON, OWN, Record, together
from tests.lab.fake_engine import make_result

CONFIGS = [recipe("cora", "citation", "gcn", name) for name in ("relu", "grelu")]
RUNS = [make_result(config, seed, 0.5) for config in CONFIGS for seed in range(2)]
LINES = [{"event": "finished", **entry} for run in RUNS for entry in together([run])]
ODD: tuple[Any, ...] = (10**400, 1e300, "é\ud800", [[[]]], {"a": {}}, [1e308, -1e308])


def written(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_values_fit_their_types() -> None:
    for kind, good, wrong in (
        (float, (0, -1, 0.5, 1e150), (True, "1", None, 1e151, 10**400, float("nan"), [1])),
        (int, (0, -1, 2**62), (True, 1.0, 2**63, "1", None)),
        (str, ("", "é"), (1, None, "\ud800", ["a"])),
        (bool, (True, False), (0, 1, "true", None)),
        (Literal["a", "b"], ("a", "b"), ("c", None, 1)),
    ):
        assert all(kinds.fits(kind, value) for value in good)
        assert not any(kinds.fits(kind, value) for value in wrong)


def test_every_field_of_a_run(tmp_path: Path) -> None:
    path, entry = tmp_path / "record.jsonl", json.loads(json.dumps(LINES[0]))
    assert len(Record(written(path, entry)).read()) == 1
    lines = [entry | {name: value} for name in (*COMMON, *OWN) for value in ODD]
    lines += [entry | {name: [value]} for name in OWN for value in ODD]
    lines += [entry | {name: entry[name] * 2} for name in OWN if name != "note"]
    lines += [{key: entry[key] for key in entry if key != name} for name in (*COMMON, "score")]
    lines += [entry | {"config": entry["config"] | {n: None}} for n in entry["config"]]
    lines += [entry | {"epochs_run": [1]}, entry | {"seconds": [None]}, entry | {"more": [1]}]
    record = Record(written(path, *lines))
    assert record.read() == []
    assert len(record.corrupt_lines) == len(lines)


def test_records_written_twice_and_together(tmp_path: Path) -> None:
    """Each twice, between lines that are no data."""
    noise = [{"event": "unheard of"}, {"event": "timed", "seconds": 1.0}, {}]
    path = written(tmp_path / "record.jsonl", *LINES, *noise, *LINES)
    assert len(Record(path).read()) == 4
    text = page.render(page.from_records([path]))
    assert "record.jsonl: " in text
