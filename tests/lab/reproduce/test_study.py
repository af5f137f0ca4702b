"""The study that chose the default, and the table of deep networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu import GReLU
from graphrelu.lab.record.config import CONSTANTS, FEW_LABELS
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import deep, study
from graphrelu.lab.reproduce.experiment import Request
from graphrelu.lab.reproduce.study import FULL, Candidate, Cell
from tests.lab import fake_engine
from tests.lab.fake_engine import make_result

ROOT = Path(__file__).parents[3]
SEEDS = range(study.FIRST_SEED, study.FIRST_SEED + 8)
Lead = Callable[[Cell, Candidate], float]


def runs(lead: Lead, late: bool = True) -> list[Result]:
    """Made-up validation scores, in points above ReLU's, with a little noise."""
    found = []
    for (cell, name), config in study.TABLE.wanted().items():
        for seed in SEEDS if late or not cell.is_late else ():
            noise = 0.0002 * (1 + seed * 7 % 11)  # no two are alike
            points = 100 * noise if name is None else 150 * noise + lead(cell, name)
            found.append(replace(make_result(config, seed, 0.5), val_score=0.5 + points / 100))
    return found


def deep_runs() -> list[Result]:
    """Two cells, of a graph that chose and of one that confirms."""
    points = {"ReLU": 0.0, "GELU": 0.1, "GReLU-B": 1.0, "GReLU": 3.0}
    return [
        make_result(cell.config(*deep.ACTIVATIONS[name]), seed, 0.5 + (lead + seed % 3 / 100) / 100)
        for cell in (deep.Cell("squirrel", "gcn", 4), deep.Cell("actor", "gat", 4))
        for name, lead in points.items()
        for seed in range(10)
    ]


def test_cells_have_the_same_settings_for_all() -> None:
    for table, number, names in ((study.TABLE, 22, 7), (deep.TABLE, 31, 6)):
        cells = table.wanted()
        assert len(cells) == len(set(cells.values())) == number * names
        same = {"activation": "any", "activation_options": ()}
        for cell in {cell for cell, _ in cells}:
            own = [config for (of, _), config in cells.items() if of == cell]
            assert len({replace(config, **same) for config in own}) == 1
        assert {place: table.place(config) for place, config in cells.items()} == {
            place: place for place in cells
        }
        first = next(iter(cells))[0]
        assert table.place(first.config("grelu", {"scale": 5.0})) is None
        assert table.place(first.config("elu", {})) is None
    assert sum(cell.is_late for cell in {cell for cell, _ in study.TABLE.wanted()}) == 10


def test_the_rule() -> None:
    """The highest mean, no dropout by default in a tie, and nobody harmed."""

    def lead(cell: Cell, name: Candidate) -> float:
        form, dropout = name
        if form == "full matrix":
            return 9.0 if cell.dataset != "photo" else -2.0  # harms
        if form == "diagonal":
            return 1.0 if cell.regime == FULL else 0.5 + 5 * dropout
        return 0.5

    ranked = study.choices(study.leads(runs(lead)))
    best = ranked[0]
    assert (best.form, best.few_dropout, best.full_dropout) == ("diagonal", 0.2, 0.0)
    assert (best.few, best.full) == (pytest.approx(1.55, abs=0.1), pytest.approx(1.05, abs=0.1))
    assert best.harmed == ()
    assert ranked[-1].form == "full matrix"
    assert set(ranked[-1].harmed) == {"Photo GCN 4", "Photo SAGE 4", "Photo GAT 4"}

    for more, dropout in ((0.3, 0.0), (0.5, 0.2)):  # half of it in the mean

        def better(cell: Cell, name: Candidate, more: float = more) -> float:
            return lead(cell, name) + more * (name == ("diagonal", 0.2) and cell.regime == FULL)

        best = study.choices(study.leads(runs(better)))[0]
        assert (best.form, best.few_dropout, best.full_dropout) == ("diagonal", 0.2, dropout)


def test_test_scores_choose_nothing() -> None:
    made = runs(lambda cell, name: float(name[1]))
    wild = [replace(run, score=0.01 * (i % 100)) for i, run in enumerate(made)]
    assert study.choices(study.leads(wild)) == study.choices(study.leads(made))


def test_without_tests_the_means_are_the_same() -> None:
    made = runs(lambda cell, name: float(name[1]), late=False)
    tested, alone = study.leads(made), study.leads(made, test="none")
    for name, own in alone.items():
        assert own.keys() == tested[name].keys()
        for cell, found in own.items():
            assert found.difference == pytest.approx(tested[name][cell].difference)
            assert found.outcome == "undecided"


def test_in_haste(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the embedded graph: early cells, then the finalists in the others."""
    fake_engine.only_fakes(tmp_path, monkeypatch)
    monkeypatch.setattr(study, "FORMS", {"diagonal": study.FORMS["diagonal"]})
    monkeypatch.setattr(study, "DROPOUTS", (0.0, 0.2))
    monkeypatch.setattr(study, "POLICIES", [(0.0, 0.0), (0.2, 0.0)])
    out = tmp_path / "study.jsonl"
    said = study.collect(Request(runs=2, out=out, quick=True, device="cpu"))
    made = Record(out).read()
    late = {run.config.activation for run in made if run.config.backbone == "gat"}
    assert late == {"relu", "grelu"}
    assert said == f"{len(made)} of these {len(made)} runs are in {out}."
    assert "In haste" in study.render(out)[0].read_text()


def test_the_default_is_what_the_rule_chooses() -> None:
    """From the committed record."""
    chosen = study.choices(study.leads(Record(ROOT / "results" / "study.jsonl").read()))[0]
    assert chosen.cells == 22
    default = study.candidates()[chosen.form, chosen.full_dropout]
    assert default == CONSTANTS == {name: getattr(GReLU(4), name) for name in CONSTANTS}
    assert {"dropout": chosen.few_dropout} == FEW_LABELS
