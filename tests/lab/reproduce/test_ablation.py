"""The ablation: its cells are the main table's, its claims follow the runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from graphrelu.grelu import VARIANTS, GReLU
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import ablation
from graphrelu.lab.reproduce.ablation import PRINTED, UNDECOMPOSED
from tests.lab.fake_engine import made_up

POINTS = {"GReLU-A": 2, "GReLU-B": 1, "GReLU-D": 0.5, "GReLU-E": 2, "SGC": -4}


def runs(seeds: int = 12) -> list[Result]:
    return made_up(ablation.cells("flickr"), lambda place: POINTS.get(place[1], 0), range(seeds))


def test_the_rows_are_the_papers() -> None:
    cells = {name: config for (_, name), config in ablation.cells("flickr").items()}
    assert len({config.key() for config in cells.values()}) == len(cells) == 11
    main = {config.activation: config for config in node_table(["flickr"], ["gcn"])}
    assert (cells["GReLU-A"], cells["ReLU"]) == (main["grelu"], main["relu"])
    for letter in VARIANTS:
        config = cells[f"GReLU-{letter}"]
        options = dict(config.activation_options)
        options.pop("gamma_max", None)  # on record; a constant of the library
        model = GNN("gcn", 5, config.hidden, 3, config.activation, activation_options=options)
        expected = GReLU.variant(letter, config.hidden, dropout=0.2)  # as labels are few
        assert str(model.acts[0]) == str(expected)
        for name in ("K", "topology", "bias", "node_wise", "channel_wise", "mode"):
            assert getattr(model.acts[0], name) == getattr(expected, name), letter
    assert dict(cells[PRINTED].activation_options) == {"mode": "paper"}
    assert (cells["SGC"].backbone, cells["SGC"].activation) == ("sgc", "none")


def test_claims_follow_the_runs() -> None:
    found = {o.claim: o for o in ablation.observations(ablation.TABLE.rows(runs()))}
    assert len(found) == len(ablation.CLAIMS) + 1
    assert found["GReLU-A > GReLU-B"].outcome == "holds"
    assert found["GReLU-A > GReLU-B"].paper == "+1.0 points"
    assert found["GReLU-A > GReLU-B"].ours.startswith("+1.1 [+1.0, +1.1] points over 12 seeds")
    assert found["GReLU-C > GReLU-D"].outcome == "does not hold"
    assert found["GReLU-A > GReLU-E"].outcome == "does not hold"  # they are equal
    assert found[f"GReLU-A > {UNDECOMPOSED}"].paper == "no figure"
    nothing = ablation.observations([])
    assert {(o.outcome, o.ours) for o in nothing} == {("not measured yet", "")}
    few = ablation.observations(ablation.TABLE.rows(runs(seeds=1)))
    assert {o.outcome for o in few} == {"undecided"}


def test_overfitting_is_read_off_the_losses(tmp_path: Path) -> None:
    results = []
    for result in runs():
        if result.config.activation == "undecomposed":
            loss = math.nan if result.seed == 3 else 1.0 + result.seed / 1000
            result = replace(result, test_loss=loss)
        results.append(result)
    found = ablation.observations(ablation.TABLE.rows(results))[-1]
    assert found.outcome == "holds"
    assert found.ours == "+0.31 [+0.30, +0.31] nats over 11 seeds"
    Record(tmp_path / "a.jsonl").append(results)
    page = ablation.TABLE.render(tmp_path / "a.jsonl")[0].read_text()
    assert "| undecomposed | 0.50 | nan | nan |" in page
