"""The script that makes all records: what it starts, and when it stops."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphrelu.lab.reproduce import command
from graphrelu.lab.reproduce.table import Request
from scripts import records


def test_experiments_are_known() -> None:
    for name, runs, only in records.EXPERIMENTS.values():
        request = command.request_of(name, runs, only=only, seconds=1)
        assert command.experiment(name).chosen(request)


def test_a_process_goes_round_until_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Path] = []

    def collect(request: Request) -> str:
        asked.append(request.out)
        return (
            "2 of these 2 runs are there." if len(asked) > 2 else "1; the same command continues."
        )

    table = SimpleNamespace(runs=1, quick_runs=1, collect=collect)
    monkeypatch.setattr(command, "experiment", lambda name: table)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    records.work(["tuned", "graph"], tmp_path, 60)
    assert asked == [tmp_path / "tuned.jsonl", tmp_path / "graph.jsonl"] * 2
    records.work(["graph"], tmp_path, 0.5)
    assert len(asked) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "graph: no time left"


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["records.py", "graphs"])
    with pytest.raises(SystemExit, match="2"):
        records.main()
    assert "names must be some of deep, strong, citation" in capsys.readouterr().err
