"""Commands that repeat what was run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from graphrelu.lab.page import origin
from graphrelu.lab.record.recipes import modern, recipe
from graphrelu.lab.record.results import Record
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke
from tests.lab.pages import NAMES, cell


def test_command_repeats_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    configs = [modern("digits", "sage", name, norm=None, epochs=7) for name in NAMES]
    words = shlex.split(str(origin.command(configs, 3)))
    assert invoke(*words[1:], "--out", "again.jsonl").exit_code == 0
    again = [result.config for result in Record("again.jsonl").read()]
    assert list(dict.fromkeys(again)) == configs
    assert origin.command([cell("my@1234", "gcn", "relu")], 3) is None
    assert origin.command([cell("digits", "gcn", "relu")], 3) is None  # the paper's network
    papers = [recipe("cora", "citation", "gcn", name) for name in NAMES]
    assert str(origin.command(papers, 3)).startswith("graphrelu compare cora --backbone gcn ")
    variant = cell("cora", "gcn", "grelu", activation_options={"K": 3})
    assert origin.command([variant], 3) is None
