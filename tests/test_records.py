"""The script that makes all records: what it starts, and what it takes out of them."""

import sys
from pathlib import Path

import pytest

from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.command import parser
from scripts import records
from tests.lab.fake_engine import make_result
from tests.lab.faults import cell


def test_experiments_are_known() -> None:
    for arguments in records.EXPERIMENTS.values():
        assert parser().parse_args([*arguments, "--seconds", "1"]).seconds == 1


def test_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path / "node.jsonl")
    configs = {name: cell(name) for name in ("relu", "grelu")}
    assert record.claim(configs["grelu"], [0, 1])
    record.append([make_result(config, 0, 0.5) for config in configs.values()])
    arguments = ["--folder", str(tmp_path), "--forget", "grelu,maxout"]
    monkeypatch.setattr(sys, "argv", ["records.py", *arguments])
    assert records.main() == 0
    (left,) = Record(tmp_path / "node.jsonl").read()
    assert left.config == configs["relu"]
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["records.py", "--only", "graphs"])
    with pytest.raises(SystemExit, match="2"):
        records.main()
    assert "--only must be some of graph, tuned" in capsys.readouterr().err
