"""The charts beside the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphrelu.lab.page import charts
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce.segments import SEGMENTS
from tests.lab.pages import cell, runs

ROOT = Path(__file__).parents[3]


def test_the_effect_of_segments_is_a_line_for_each_graph() -> None:
    lines = charts.segments_chart(Record(ROOT / "results" / "segments.jsonl").read())
    assert [line["name"] for line in lines] == ["Cora", "CiteSeer", "PubMed"]
    for line in lines:
        assert [point[0] for point in line["points"]] == list(SEGMENTS)
        assert all(low < mean < high for _, mean, low, high in line["points"])
    assert charts.segments_chart(runs(cell("digits", "gcn", "grelu"))) == []


def test_timings_are_told_apart() -> None:
    runtime = charts.timings(ROOT / "results" / "runtime.jsonl")
    assert (len(runtime["runtime"]) > 0, runtime["sizes"]) == (True, [])
    relu = [bar for panel in runtime["runtime"] for bar in panel["bars"] if bar["family"] == "relu"]
    assert {bar["relative"] for bar in relu} == {1}
    sizes = charts.timings(ROOT / "results" / "complexity.jsonl")
    assert (len(sizes["sizes"]) > 0, sizes["runtime"]) == (True, [])
    node = charts.timings(ROOT / "results" / "node.jsonl")
    assert node == {"runtime": [], "sizes": [], "sources": []}
    assert [source["command"] for source in sizes["sources"]] == ["graphrelu reproduce complexity"]


def test_speed_is_that_of_the_record() -> None:
    path = ROOT / "benchmarks" / "results" / "activation_cpu.json"
    record = json.loads(path.read_text())
    rows, drawn = record["rows"], charts.speeds(path)
    (panel,), (source,) = drawn["speed"], drawn["sources"]
    assert (source["name"], source["devices"]) == ("activation_cpu.json", [record["device"]])
    found = {bar["name"]: bar for bar in panel["bars"]}
    time, maxout = (rows[name]["forward_backward_ms"] for name in ("GReLU", "Maxout"))
    assert (found["GReLU"]["ms"], found["GReLU"]["floor"]) == (time, rows["GReLU"]["floor_ms"])
    assert found["GReLU"]["relative"] == pytest.approx(time / maxout)
    assert found["Maxout"]["floor"] is None
    assert "preparing the graph, once" not in found
