"""Stands in for the training: scores are a formula, and no model is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphrelu.lab.data import named
from graphrelu.lab.engine import PreparedCells, Trained, split_for
from graphrelu.lab.errors import DataError
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Batch, Result
from graphrelu.lab.stats import MARGIN, Decision, Outcome

# In thousandths, on top of a score that all share; a bit more for each seed, as ties are slow.
LEADS = {"relu": 0, "lrelu": -1, "elu": 6, "prelu": 4, "maxout": -12, "grelu": 8}
LEADS |= {"gelu": 5, "silu": -2}


def score(activation: str, seed: int) -> float:
    return (800 + 7 * (seed % 5) + LEADS[activation] * (1 + seed / 100)) / 1000


def make_result(config: Config, seed: int, value: float, note: str = "at random") -> Result:
    return Result(
        config=config,
        seed=seed,
        score=value,
        val_score=value,
        best_epoch=10,
        epochs_run=20,
        train_loss=0.5,
        val_loss=float("nan"),
        test_loss=0.7,
        curves={"train_loss": [1.0, 0.5]},
        seconds=0.25,
        device="no device",
        versions={"torch": "0"},
        date="2026-11-01T00:00:00+00:00",
        commit=None,
        note=note,
        calibration_error=0.05,
        parameters=1_000,
        diverged=False,
        epochs_computed=25,
    )


def made_up(
    cells: Mapping[Any, Config],
    points: Callable[[Any], float],
    seeds: Sequence[int] = range(12),
) -> list[Result]:
    """Runs whose score depends on their place; they grow a bit with the seed, as ties are slow."""
    return [
        make_result(config, seed, (50 + seed % 5 + points(place) * (1 + seed / 100)) / 100)
        for place, config in cells.items()
        for seed in seeds
    ]


def lead(difference: float, reach: float | None = 0.5, n: int = 30, **changes: Any) -> Decision:
    """A difference with its interval and the word that follows; without a reach it has neither."""
    low = high = std = p = None
    outcome: Outcome = "undecided"
    if reach is not None:
        low, high, std, p = difference - reach, difference + reach, 1.0, 0.5
        if max(-low, high) < MARGIN:
            outcome = "no difference"
        elif low > 0 or high < 0:
            outcome, p = "better" if low > 0 else "worse", 0.01
    made = Decision(
        difference, low, high, std, p, n, MARGIN, outcome, None, 0.025, 1, "over random splits"
    )
    return replace(made, **changes)


def train(cells: PreparedCells, batch: Batch, seed: Any, report: Any) -> Iterator[Trained]:
    """In place of :meth:`PreparedCells.train`."""
    config, seeds = batch
    notes = {seed: split_for(config, cells.graph(config), seed).note for seed in seeds}
    report(seeds, 5)
    results = [make_result(config, s, score(config.activation, s), notes[s]) for s in seeds]
    yield Trained(batch, results, None)


def only_fakes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder the current one: without datasets, network or training in this process."""

    def offline(*arguments: object) -> Path:
        raise DataError("There is no network.")

    monkeypatch.setattr(PreparedCells, "train", train)
    monkeypatch.setattr(named, "open_dataset", offline)
    monkeypatch.setenv("GRAPHRELU_DATA", str(folder / "data"))
    monkeypatch.chdir(folder)
    return folder


def invoke(*arguments: object) -> Any:
    """The command line, its output kept; Typer is not needed for the rest of this file."""
    from typer.testing import CliRunner

    from graphrelu.lab import cli

    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def reproduce(arguments: Sequence[str]) -> int:
    """The exit code of ``graphrelu reproduce``."""
    from graphrelu.lab import cli

    return cli.run(["reproduce", *arguments])
