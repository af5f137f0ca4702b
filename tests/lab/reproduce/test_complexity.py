"""Time against size: what is measured, exponents that are known, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab.reproduce import complexity
from graphrelu.lab.reproduce.complexity import Point, Sweep
from graphrelu.lab.reproduce.experiment import Request
from tests.lab.fake_engine import invoke

TINY = (
    Sweep("edges", 40, 4_000, 3, nodes=20, channels=1),
    Sweep("segments", 1, 4, 3, nodes=20, edges=40, channels=3),
    Sweep("heads", 1, 2, 2, nodes=20, edges=40),
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setitem(complexity.SWEEPS, "quick", TINY)
    return tmp_path / "complexity.jsonl"


def test_points() -> None:
    found = list(complexity.points(TINY))
    assert found[:3] == [Point("edges", n, "grelu", 20, n, 1, 2) for n in (40, 400, 4_000)]
    assert found[3:6] == [Point("segments", k, "grelu", 20, 40, 3, k) for k in (1, 2, 4)]
    assert [(p.value, p.what, p.channels) for p in found[6:]] == [
        (heads, what, 8 * heads) for heads in (1, 2) for what in ("grelu", "gcn+grelu", "gat")
    ]


@pytest.mark.parametrize("device", complexity.SWEEPS)
def test_two_decades(device: str) -> None:
    """The sizes of both devices, and in haste: the largest is a hundred times the smallest."""
    sweeps = {sweep.axis: sweep for sweep in complexity.SWEEPS[device]}
    assert list(sweeps) == list(complexity.AXES)
    for axis in ("edges", "nodes", "channels"):
        assert sweeps[axis].last == 100 * sweeps[axis].first
    for axis in ("segments", "heads"):
        assert (sweeps[axis].first, sweeps[axis].last) == (1, 16)


def test_the_command(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["complexity", "--quick", "--runs", "2", "--device", "cpu", "--out", str(tiny)]
    shown = invoke("reproduce", *arguments)
    assert shown.stdout.startswith("This takes about ")
    assert f"12 of these 12 timings are in {tiny}." in "".join(shown.stdout.splitlines())
    entries = [json.loads(line) for line in tiny.read_text().splitlines()]
    for entry in entries:
        assert len(entry["repeats"]) == 2
        assert min(entry["repeats"]) <= entry["seconds"] <= max(entry["repeats"])
        assert (entry["preparation"] is None) == (entry["what"] == "gat")
        assert entry.keys() >= {"device", "versions", "commit", "date", "steps", "diffusion"}

    def fails(*arguments: object) -> None:
        raise AssertionError("nothing is to be measured")

    monkeypatch.setattr(complexity, "measure", fails)
    assert invoke("reproduce", *arguments).exit_code == 0  # what is on record is not repeated
    paths = [tiny.with_suffix(ending) for ending in (".md", ".csv", ".png", ".svg")]
    assert all(path.stat().st_size > 0 for path in paths)
    assert len(tiny.with_suffix(".csv").read_text().splitlines()) == 1 + 5


def test_only_what_is_missing_is_measured(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Point] = []

    def measure(point: Point, repeats: int, device: torch.device) -> dict[str, Any]:
        asked.append(point)
        return {"seconds": 1.0, "repeats": [1.0] * repeats, "preparation": None}

    monkeypatch.setattr(complexity, "measure", measure)
    late = Request(1, tiny, quick=True, device="cpu", seconds=1e-9)
    assert complexity.collect(late) == (
        f"0 of these 12 timings are in {tiny}; the same command continues."
    )
    request = Request(1, tiny, quick=True, device="cpu")
    complexity.collect(request)
    lines = tiny.read_text().splitlines(keepends=True)
    of_another_default = lines[6].replace('"steps":10', '"steps":5')
    assert of_another_default != lines[6]
    tiny.write_text("".join([*lines[:4], lines[5], of_another_default, *lines[7:]]))
    asked.clear()
    complexity.collect(request)
    wanted = list(complexity.points(TINY))
    assert asked == [wanted[4], wanted[6]]


def test_what_is_measured_is_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is prepared before the clock starts, and every gradient is computed."""
    from graphrelu import graph as graph_module

    prepared: list[int] = []
    whole = graph_module.prepare
    monkeypatch.setattr(graph_module, "prepare", lambda *a: (prepared.append(1), whole(*a))[1])
    gradients: list[int] = []
    grad = torch.autograd.grad

    def counted(out: Any, leaves: list[Any], *rest: Any) -> Any:
        gradients.append(len(leaves))
        return grad(out, leaves, *rest)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    found = complexity.measure(Point("nodes", 30, "grelu", 30, 60, 4, 2), 3, torch.device("cpu"))
    assert len(prepared) == 1
    assert gradients == [4] * 4  # x and three parameters; a first call and three timed ones
    assert len(found["repeats"]) == 3


def test_random_graph_is_undirected() -> None:
    edges = complexity.random_graph(10, 30, torch.device("cpu"))
    assert edges.shape == (2, 30)
    assert torch.equal(edges[:, :15], edges[:, 15:].flip(0))


def entry(axis: str, value: int, seconds: float, what: str = "grelu") -> dict[str, Any]:
    return {
        "axis": axis,
        "value": value,
        "what": what,
        "device": "no device",
        **dict.fromkeys(complexity.SIZES, 1),
        "seconds": seconds,
        "repeats": [seconds],
        "preparation": None if what == "gat" else 0.5,
        "diffusion": "power",
        "steps": 10,
        "versions": {"torch": "0"},
        "commit": None,
        "date": "2026-11-01",
    }


def test_the_page(tmp_path: Path) -> None:
    entries = [entry("edges", 10**n, 10.0**n / 1e6) for n in (6, 4, 5)]
    entries += [entry("heads", m, m / 1e3, "gat") for m in (1, 2)]
    entries += [entry("heads", 1, 2e-3), entry("nodes", 7, 1.0)]  # one point is no sweep
    sweeps = complexity.sweeps_of(entries)
    assert [[e["value"] for e in sweep] for sweep in sweeps] == [[10**4, 10**5, 10**6], [1, 2]]
    complexity.record_of(tmp_path / "x.jsonl").append(entries)
    page = complexity.render(tmp_path / "x.jsonl")[0].read_text()
    assert "Made from `x.jsonl`: 7 timings (no device; torch 0)." in page
    assert (
        r"| directed edges \|E\| | GReLU | 10,000 | 1,000,000 | 1.00 | [1.00, 1.00] | 10 | 1e+03 |"
        " 100 | 0.001 | 0.5 |"
    ) in page
    assert "| heads | GAT layer |\n| ---: | ---: |\n| 1 | 1 |\n| 2 | 2 |\n" in page
