"""The figure of GReLU's leads over ReLU shows what the record says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphrelu.lab.record.results import Record
from graphrelu.lab.render import figures
from graphrelu.lab.render.tables import NodeRow, label, node_rows
from graphrelu.lab.reproduce import node

RESULTS = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def rows() -> list[NodeRow]:
    return node_rows(Record(RESULTS / "node.jsonl").read())


def test_figure_shows_the_record(rows: list[NodeRow]) -> None:
    found = [row for row in rows if row.over_relu is not None]
    with figures.drawing():
        figure = node.draw_leads(rows)
    for axis in figure.axes:
        points = [line for line in axis.lines if line.get_marker() == "o"]
        name = axis.get_title().split(",")[0]
        expected = [row.over_relu for row in found if label(row.dataset) == name]
        assert [line.get_xdata()[0] for line in points] == [lead.difference for lead in expected]
        filled = [line.get_markerfacecolor() == "black" for line in points]
        assert filled == [lead.differs for lead in expected]
        bars = [list(line.get_xdata()) for line in axis.lines if line.get_marker() == "None"][:-1]
        assert bars == [[lead.low, lead.high] for lead in expected]


def test_committed_figure_is_that_of_the_record(rows: list[NodeRow], tmp_path: Path) -> None:
    """Where this fails: make readme."""
    made = {path.name: path for path in node.write_leads(rows, tmp_path / "leads")}
    assert sorted(made) == ["leads.png", "leads.svg"]
    committed = (RESULTS / "leads.svg").read_text()
    fresh = made["leads.svg"].read_text()
    # Another version of the plotting package draws other bytes.
    version = r"Matplotlib v[\d.]+"
    if re.findall(version, committed) == re.findall(version, fresh):
        assert committed == fresh
    assert (RESULTS / "leads.png").stat().st_size > 1_000


def test_rows_without_pairs_are_an_error(rows: list[NodeRow], tmp_path: Path) -> None:
    alone = [row for row in rows if row.activation == "relu"]
    with pytest.raises(ValueError, match="runs of both GReLU and ReLU"):
        node.write_leads(alone, tmp_path / "leads")
