"""Why GReLU helps on sets of graphs: the runs, their order, and what the page says of a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphrelu.lab.data.generated import ColouredGraphs
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.sets import (
    EPOCHS,
    FEW,
    GENERATED,
    HELD_OUT,
    LONGER,
    MORE,
    TABLE,
)
from graphrelu.lab.reproduce.table import Request
from tests.lab.fake_engine import made_up


def test_the_runs() -> None:
    wanted = TABLE.wanted()
    assert len({config.key() for config in wanted.values()}) == len(wanted) == 73
    for name, (label, nodes) in GENERATED.items():
        model = ColouredGraphs.parse(name)
        assert (model.label, model.nodes, model.name) == (label, nodes, name)
    assert len({ColouredGraphs.parse(name).seed for name in GENERATED}) == len(GENERATED) == 10
    by_name = {name: config for (cell, name), config in wanted.items() if cell[2] == "whole"}
    assert by_name.keys() == FEW.keys() | LONGER.keys() | MORE.keys()
    assert by_name["ReLU, 4 x"].epochs == by_name["GReLU-A, 4 x"].epochs == 4 * EPOCHS
    hasty = replace(by_name["ReLU"], epochs=4 * EPOCHS + 1)
    assert TABLE.place(hasty) is None


def test_seeds(tmp_path: Path) -> None:
    plan = TABLE.plan(Request(5, tmp_path / "sets.jsonl"))
    assert {len(seeds) for config, seeds in plan.items() if config.dataset in HELD_OUT} == {10}
    assert sum(map(len, plan.values())) == 415
    quick = TABLE.plan(Request(2, tmp_path / "sets.jsonl", quick=True))
    assert [TABLE.place(config)[1] for config in quick] == list(FEW)


def test_page_of_an_unfinished_record(tmp_path: Path) -> None:
    """ReLU alone, on one set."""
    record, relu = tmp_path / "sets.jsonl", dict([*TABLE.wanted().items()][:1])
    Record(record).append(made_up(relu, lambda place: 0, range(1)))
    assert "ahead of ReLU by not measured yet." in TABLE.render(record)[0].read_text()
