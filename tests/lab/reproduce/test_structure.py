"""Where topology matters: the graphs, the rows, the page, and the effect itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrelu.lab.data import load
from graphrelu.lab.data.generated import parse
from graphrelu.lab.engine import run
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import structure
from graphrelu.lab.stats import compared
from tests.lab.fake_engine import made_up

# In points, on top of what all share.
LEADS = {"GReLU-A": 10, "GReLU-B": 1, "PReLU": 12}


def runs(seeds: int = 12) -> list[Result]:
    return made_up(structure.TABLE.wanted(), lambda place: LEADS.get(place[1], 0), range(seeds))


def test_cells() -> None:
    cells = list(structure.TABLE.wanted().values())
    assert len({cell.key() for cell in cells}) == len(cells) == 6 * 5 * 5
    assert None not in map(structure.TABLE.place, cells)
    assert len({parse(name).seed for name in structure.PLACES}) == len(structure.PLACES) == 25
    for name, (kind, degree, homophily) in structure.PLACES.items():
        model = parse(name)
        assert (model.name, model.degree, model.homophily) == (name, degree, homophily)
        assert (model.shift == 1, model.opposed == 1) == (kind == "mirrored", kind == "opposed")
    first = cells[0].dataset
    for names in (("csbm", "gcn", "relu"), (first, "gat", "relu"), (first, "gcn", "elu")):
        dataset, backbone, activation = names
        assert structure.TABLE.place(recipe(dataset, "other", backbone, activation)) is None


def test_topology_matters_where_the_region_must_be_known() -> None:
    """On a graph that the experiment does not have."""
    name = "csbm:homophily=1,shift=1,seed=3"
    scores = {}
    for letter, options in (("A", {}), ("B", {"topology": False})):
        config = recipe(*(name, "other", "gcn", "grelu"), hidden=16, activation_options=options)
        results = run([config], range(6), None, graphs={name: load(name)}, device="cpu")
        scores[letter] = {result.seed: result.score for result in results}
    lead = compared({0: (scores["A"], scores["B"])})[0]
    assert lead.outcome == "better"
    assert lead.difference > 3


def test_rows() -> None:
    rows = structure.TABLE.rows(runs())
    assert len(rows) == 150
    assert [(row["homophily"], row.name) for row in rows[:6]] == [
        *((0.0, name) for name in structure.ACTIVATIONS),
        (0.25, "GReLU-A"),
    ]
    assert list(dict.fromkeys(structure.panel_of(row) for row in rows)) == list(structure.PANELS)
    first, second, *_, prelu = rows[:5]
    assert first["behind_a"] is None
    assert second["behind_a"].difference == pytest.approx(9 * 1.055)
    assert second["behind_a"].outcome == "better"
    # The graphs and backbones, thirty together, are one family for each rival.
    errors = [row["behind_a"].error for row in rows if row.name == "GReLU-B"]
    assert min(errors) == pytest.approx(0.05 / 30)
    assert prelu["behind_a"].outcome == "worse"


def test_page_of_an_unfinished_record(tmp_path: Path) -> None:
    record = tmp_path / "structure.jsonl"
    Record(record).append(runs(seeds=1)[:1])  # A alone, on one graph
    text = structure.TABLE.render(record)[0].read_text()
    assert "| 2 | 0 | 60.0 |  |  |  |  |  |  |" in text
