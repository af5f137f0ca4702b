"""Why GReLU helps on sets of graphs: the runs, their order, and what the page says of a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphrelu.lab.data.generated_sets import ColouredGraphs
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce.sets import (
    EPOCHS,
    FEW,
    GENERATED,
    HELD_OUT,
    RIVALS,
    SUMS,
    TABLE,
)
from graphrelu.lab.reproduce.table import Place, Request
from tests.lab.fake_engine import made_up


def points(place: Place) -> float:
    """GReLU and the virtual node lead where the label is that of the whole graph."""
    (_, _, label, *_), name = place
    return 8 if label == "whole" and name in ("GReLU-A", "virtual node") else 0


def runs(seeds: int) -> list[Result]:
    found = made_up(TABLE.wanted(), points, range(seeds))
    note, curve = "80 / 10 / 10 % of every class, at random", [0.5, 0.6]
    return [replace(run, note=note, curves={"val": curve}) for run in found]


def test_the_runs() -> None:
    wanted = TABLE.wanted()
    assert len({config.key() for config in wanted.values()}) == len(wanted) == 73
    for name, (label, nodes) in GENERATED.items():
        model = ColouredGraphs.parse(name)
        assert (model.label, model.nodes, model.name) == (label, nodes, name)
    assert len({ColouredGraphs.parse(name).seed for name in GENERATED}) == len(GENERATED) == 10
    by_name = {name: config for (cell, name), config in wanted.items() if cell[2] == "whole"}
    assert by_name.keys() == RIVALS.keys() - SUMS.keys()
    assert by_name["ReLU, 4 x"].epochs == by_name["GReLU-A, 4 x"].epochs == 4 * EPOCHS
    hasty = replace(by_name["ReLU"], epochs=4 * EPOCHS + 1)
    assert TABLE.place(hasty) is None


def test_what_matters_most_is_run_first(tmp_path: Path) -> None:
    plan = TABLE.plan(Request(5, tmp_path / "sets.jsonl"))
    names = [TABLE.places[config][1] for config in plan]
    assert list(dict.fromkeys(names)) == list(RIVALS)
    assert {len(seeds) for config, seeds in plan.items() if config.dataset in HELD_OUT} == {10}
    assert sum(map(len, plan.values())) == 415
    quick = TABLE.plan(Request(2, tmp_path / "sets.jsonl", quick=True))
    assert [TABLE.places[config][1] for config in quick] == list(FEW)


def test_page(tmp_path: Path) -> None:
    record = tmp_path / "sets.jsonl"
    Record(record, curves=False).append(runs(seeds=6))
    written = TABLE.render(record)
    assert [path.suffix for path in written] == [".md", ".csv", ".png", ".svg"]
    text = " ".join(written[0].read_text().split())
    assert "| whole | 15 | 51.7 | +8.2" in text
    assert "both GReLU and the virtual node on 3 of these sets, GReLU alone on 0," in text
    assert "the virtual node on 0 of these sets, GReLU alone on 0, the virtual node alone" in text
    assert "ahead of ReLU by +0.0" in text


def test_page_of_an_unfinished_record(tmp_path: Path) -> None:
    record = tmp_path / "sets.jsonl"
    Record(record).append(runs(seeds=1)[:1])  # ReLU alone, on one set
    assert "ahead of ReLU by not measured yet." in TABLE.render(record)[0].read_text()
