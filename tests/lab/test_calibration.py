"""The study that chose the default: its rule, and that only validation nodes decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from graphrelu.calibration import Calibration
from graphrelu.lab import calibration
from graphrelu.lab.experiment import Request
from graphrelu.lab.options import module_arguments
from graphrelu.lab.recipes import node_table
from graphrelu.lab.results import Record, Result
from tests.helpers import ROOT
from tests.lab.fake_engine import make_result

SEEDS = range(calibration.FIRST_SEED, calibration.FIRST_SEED + 15)
BEST, SECOND = "smooth shift", "smooth shift, twice"
WORSE = "smooth shift, gate 2"
EARLY = ("cheb", "gcn", "sage", "arma", "appnp")


def runs(
    lead: Callable[[str, str], float],
    dataset: str,
    backbones: tuple[str, ...] = EARLY,
    names: tuple[str, ...] = ("relu", *calibration.CANDIDATES),
) -> list[Result]:
    """Made-up runs: the points that a candidate is ahead of ReLU in validation accuracy."""
    made = []
    cells = calibration.cells(dataset, backbones)
    for name in names:
        for config in cells[name]:
            for seed in SEEDS:
                points = 0.0 if name == "relu" else lead(name, config.backbone)
                result = make_result(config, seed, 0.5)
                made.append(replace(result, val_score=0.7 + points / 100 + seed % 3 / 100))
    return made


def test_candidates_spell_out_every_constant() -> None:
    for options in calibration.CANDIDATES.values():
        assert {field.name for field in fields(Calibration)} == options.keys() - {"shrinkage"}
    for name in calibration.ROUND:
        options = calibration.CANDIDATES[name]
        assert isinstance(module_arguments(tuple(options.items()))["calibration"], Calibration)
    assert len({tuple(options.items()) for options in calibration.CANDIDATES.values()}) == 38
    assert module_arguments((("K", 3),)) == {"K": 3}
    one = module_arguments((("temperature", 2.0),))["calibration"]
    assert one == Calibration(temperature=2.0)


def test_the_default_is_what_the_record_chooses() -> None:
    results = Record(ROOT / "results" / "calibration.jsonl").read()
    name = calibration.chosen(calibration.validation(results))
    assert name is not None
    assert Calibration(**calibration.CANDIDATES[name]) == Calibration()


def test_relu_is_the_main_tables() -> None:
    cells = calibration.cells("cora", EARLY)
    assert cells["relu"] == node_table(["cora"], EARLY, ["relu"])
    shared = {replace(c, activation="relu", activation_options=()) for c in cells["damped"]}
    assert shared == set(cells["relu"])


def test_what_harms_somewhere_is_not_chosen() -> None:
    def lead(name: str, backbone: str) -> float:
        if name == WORSE:
            return -0.6 if backbone == "arma" else 5.0
        return {BEST: 1.0, SECOND: 0.9, "smooth, upper": 3.0}.get(name, 0.1)

    early = [run for dataset in calibration.DATASETS for run in runs(lead, dataset)]
    scores = calibration.validation(early)
    assert calibration.figures(scores)[WORSE]["cora", "arma"].mean == pytest.approx(-0.6)
    assert calibration.contenders(scores)[:2] == [BEST, SECOND]
    assert WORSE not in calibration.contenders(scores)
    assert "smooth, upper" not in calibration.contenders(scores)  # of an earlier round
    assert (calibration.untried(scores), calibration.chosen(scores)) == (BEST, None)

    def late(name: str, _: str) -> float:
        return {BEST: -0.7, SECOND: 0.0}[name]

    tried: list[Result] = []
    for name, following in ((BEST, SECOND), (SECOND, None)):
        for dataset in calibration.DATASETS:
            tried += runs(late, dataset, ("gat",), ("relu", name))
        scores = calibration.validation([*early, *tried])
        assert calibration.untried(scores) == following
    assert calibration.chosen(scores) == SECOND
    scores["citeseer", "gcn"].pop(WORSE)
    assert calibration.chosen(scores) is None  # a candidate has not run


def test_where_all_harm_the_least_harm_is_chosen() -> None:
    gcn, sage = ("cora", "gcn"), ("cora", "sage")
    figure = calibration.Figure
    found = {
        "a": {gcn: figure(3.0, 0.1), sage: figure(-2.0, 0.1)},
        "b": {gcn: figure(-1.0, 0.1)},
        "noisy": {gcn: figure(0.2, 0.1), sage: figure(-0.9, 1.0)},
        "beyond chance": {gcn: figure(0.2, 0.1), sage: figure(-0.9, 0.5)},
        "harmless": {gcn: figure(0.0, 0.1), sage: figure(-0.4, 0.2)},
    }
    assert calibration.ranked(found) == ["harmless", "noisy", "beyond chance", "b", "a"]


def test_test_accuracy_chooses_nothing() -> None:
    def lead(name: str, _: str) -> float:
        return {"damped": 1.0, "smooth, upper": 0.9}.get(name, 0.1)

    made = runs(lead, "cora")
    wild = [replace(result, score=(result.seed % 7) / 7) for result in made]
    assert calibration.validation(wild) == calibration.validation(made)


def test_page(tmp_path: Path) -> None:
    def lead(name: str, _: str) -> float:
        return {BEST: 1.0, SECOND: 0.9}.get(name, 0.1)

    record = Record(tmp_path / "calibration.jsonl")
    backbones = (*EARLY, "gat")
    for dataset in calibration.DATASETS:
        record.append(runs(lead, dataset, backbones))
    page, csv = calibration.render(record.path)
    text = page.read_text()
    assert f"The rule chooses **{BEST}**." in text
    assert f"| **{BEST}** | yes | +1.00 | 24 |" in text
    assert "In haste" not in text
    assert "| ReLU | 71.0 (15) |" in text
    assert csv.read_text().splitlines()[0].startswith("candidate,dataset,backbone,mean,n,over_relu")
    with pytest.raises(ValueError, match="has no runs of the calibration"):
        calibration.render(tmp_path / "none.jsonl")


def test_collect_in_haste(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates for real, on the embedded graph."""
    monkeypatch.delenv("GRAPHRELU_DATA", raising=False)
    monkeypatch.setattr(calibration, "ROUND", (WORSE, BEST))
    monkeypatch.setattr(calibration, "QUICK_EPOCHS", 3)
    out = tmp_path / "calibration.jsonl"
    assert calibration.collect(Request(runs=2, out=out, quick=True)).startswith("6 of these 6 runs")
    results = Record(out).read()
    assert {result.seed for result in results} == {1000, 1001}
    assert "In haste" in calibration.render(out)[0].read_text()
