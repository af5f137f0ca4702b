"""A run whose loss becomes NaN is marked, and the runs beside it do not notice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import data
from graphrelu.lab.engine import run
from graphrelu.lab.engine.graph_training import Training
from graphrelu.lab.engine.train import SeedBatch
from graphrelu.lab.page import origin_of
from graphrelu.lab.record.divergence import sentence
from graphrelu.lab.record.recipes import on_sets, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.render import price
from graphrelu.lab.reproduce import files
from tests.lab.engine.test_train import blocks
from tests.lab.fake_engine import invoke, make_result
from tests.lab.molecule_sets import ring_set

ROW, SEEDS = 1, range(4)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From the given step on, the parameters of one of the runs are NaN."""
    descend = SeedBatch.descend

    def spoilt(batch: SeedBatch, step: int) -> torch.Tensor:
        if int(batch.step) >= step:
            with torch.no_grad():
                for value in batch.parameters.values():
                    value[ROW] = torch.nan
        return descend(batch)

    return lambda step: monkeypatch.setattr(SeedBatch, "descend", partialmethod(spoilt, step))


def facts(result: Result) -> str:
    """All but the time that it took; as text, as NaN is not equal to itself."""
    return str(replace(result, seconds=0.0, date=""))


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("activation", ["relu", "grelu"])
def test_the_other_seeds_do_not_notice(
    activation: str, step: int, tmp_path: Path, spoil: Callable[..., None]
) -> None:
    config = recipe("blocks", "gcn", activation, hidden=4, epochs=12)
    options: dict[str, Any] = {"graphs": {"blocks": blocks()}, "device": "cpu"}
    expected = run([config], SEEDS, None, **options)
    spoil(step)
    record = Record(tmp_path / "runs.jsonl")
    run([config], SEEDS, record, **options)
    found = record.read()
    assert [result.diverged for result in found] == [seed == ROW for seed in SEEDS]
    for own, undisturbed in zip(found, expected, strict=True):
        assert (facts(own) == facts(undisturbed)) == (own.seed != ROW)
    lost = found[ROW]
    assert lost.best_epoch <= step
    # Half of the epochs are given to every run; after that, a loss that is NaN is not waited for.
    assert lost.epochs_run == config.epochs // 2 + 1
    assert math.isfinite(lost.test_loss)
    assert not any(result.diverged for result in expected)


def test_a_run_on_a_set_of_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = on_sets("rings", "gcn", "grelu", hidden=4, epochs=3, split="column", metric="ap")
    step = Training.step

    def spoilt(self: Training, *arguments: Any) -> torch.Tensor:
        if self.seed == ROW:
            for value in self.model.parameters():
                value.data.fill_(torch.nan)
        return step(self, *arguments)

    monkeypatch.setattr(Training, "step", spoilt)
    found = run([config], SEEDS, None, graphs={"rings": ring_set()}, device="cpu")
    assert [result.diverged for result in found] == [seed == ROW for seed in SEEDS]
    assert all(0 <= result.score <= 1 for result in found)


def test_tables_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., None]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "load", lambda name, root=None: blocks())
    spoil(2)
    command = ["compare", "blocks", "--epochs", 6, "--hidden", 4, "--runs", 4]
    shown = invoke(*command, "--activations", "relu,grelu", "--json", "a.json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    rows = [line.split() for line in shown.stdout.splitlines() if line.startswith(("ReLU", "GRe"))]
    assert [row[3] for row in rows[:2]] == ["4†", "4†"]
    expected = (
        "† 2 of 8 runs diverged, to a loss that is not finite (seed 1 of blocks gcn relu 4 x 4, "
        "seed 1 of blocks gcn grelu 4 x 4); the best epoch before that counts."
    )
    assert expected in " ".join(shown.stdout.split())
    content = json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert [row["diverged"] for row in content["rows"]] == [1, 1]


def test_the_sentence_is_on_every_page() -> None:
    config = recipe("cora", "gcn", "relu")
    sound = [make_result(config, seed, 0.5) for seed in range(8)]
    assert sentence(sound) == origin_of(sound)["diverged"] == ""
    assert "diverged" not in files.provenance(sound, Path("node.jsonl"))
    lost = [replace(result, diverged=True) for result in sound]
    said = sentence(lost)
    assert said.startswith("† 8 of 8 runs diverged, ")
    assert "seed 4 of cora gcn relu and 3 more);" in said
    assert origin_of(lost)["diverged"] == said
    assert files.provenance(lost, Path("node.jsonl")).endswith(f"\n\n{said}\n")
    # A record that does not say is not taken for none.
    older = [replace(result, diverged=None) for result in sound]
    assert sentence(older) == "Whether these runs diverged is not recorded."
    assert sentence([*sound, *older[:1]]) == "Whether 1 of these runs diverged is not recorded."


def test_stopped_runs_count_with_the_epochs_that_they_were_computed() -> None:
    settings: dict[str, Any] = {"hidden": 4, "epochs": 60, "patience": 2, "lr": 0.1}
    config = recipe("blocks", "gcn", "relu", **settings)
    found = run([config], range(6), None, graphs={"blocks": blocks()}, device="cpu")
    ran = [result.epochs_run for result in found]
    assert len(set(ran)) > 1  # else this tests nothing
    assert {result.epochs_computed for result in found} == {max(ran)}
    seconds = sum(result.seconds for result in found)
    assert price(found).seconds_per_epoch == pytest.approx(seconds / len(ran) / max(ran))
