"""The script that makes all records: what it starts."""

import sys
from pathlib import Path

import pytest

from scripts import records
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke


def test_its_commands_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    for arguments in records.commands(list(records.EXPERIMENTS), Path("records"), 2):
        done = invoke(*arguments, "--seconds", "nan")
        assert done.stderr == "seconds must be a positive number, not nan.\n"


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["records.py", "graphs"])
    with pytest.raises(SystemExit, match="2"):
        records.main()
    assert "names must be some of deep, strong, citation" in capsys.readouterr().err
