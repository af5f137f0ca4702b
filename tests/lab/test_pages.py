"""The committed pages, tables and figures are those of the committed records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graphrelu.lab.experiment import EXPERIMENTS, experiment
from graphrelu.lab.graph_reproduce import render_graphs

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("name", [*EXPERIMENTS, "graph"])
def test_page_is_that_of_the_record(name: str, tmp_path: Path) -> None:
    """Where this fails: python -m graphrelu.lab.reproduce NAME --render."""
    record = tmp_path / f"{name}.jsonl"
    shutil.copy(RESULTS / record.name, record)
    render = render_graphs if name == "graph" else experiment(name).render
    for path in render(record):
        committed = RESULTS / path.relative_to(tmp_path)
        if path.suffix in (".md", ".csv"):
            assert committed.read_text() == path.read_text()
        else:  # another version of the plotting package draws other bytes
            assert committed.stat().st_size > 1_000
