"""The committed pages, tables and figures are those of the committed records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graphrelu.lab.reproduce.experiment import EXPERIMENTS, experiment
from graphrelu.lab.reproduce.graph import render_graphs
from graphrelu.lab.reproduce.tuning import render_tuned

RESULTS = Path(__file__).parents[3] / "results"


OTHERS = {"graph": render_graphs, "tuned": render_tuned}


@pytest.mark.parametrize("name", [*EXPERIMENTS, *OTHERS])
def test_page_is_that_of_the_record(name: str, tmp_path: Path) -> None:
    """Where this fails: python -m graphrelu.lab.reproduce NAME --render."""
    record = tmp_path / f"{name}.jsonl"
    if not (RESULTS / record.name).exists():  # no runs yet, and no page without them
        assert not list(RESULTS.glob(f"{name}.*"))
        return
    shutil.copy(RESULTS / record.name, record)
    render = OTHERS[name] if name in OTHERS else experiment(name).render
    for path in render(record):
        committed = RESULTS / path.relative_to(tmp_path)
        if path.suffix in (".md", ".csv"):
            assert committed.read_text() == path.read_text()
        else:  # another version of the plotting package draws other bytes
            assert committed.stat().st_size > 1_000
