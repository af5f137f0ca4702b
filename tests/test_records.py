"""The script that makes all records: what it starts."""

from pathlib import Path

import pytest

from scripts import records
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke


def test_its_commands_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    for name in records.EXPERIMENTS:
        done = invoke(*records.command(name, Path("records"), 2, "nan"))
        assert done.stderr == "seconds must be a positive number, not nan.\n"
