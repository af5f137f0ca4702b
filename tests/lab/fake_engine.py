"""Stands in for the engine: scores are a formula, and no model is trained."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import graphrelu.lab
from graphrelu.lab import engine
from graphrelu.lab.data import DataError, pyg
from graphrelu.lab.engine import Progress, check_pool, load_dataset
from graphrelu.lab.engine.cells import split_for
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.results import Result
from graphrelu.lab.stats import MARGIN, Decision, Outcome

__all__ = ["check_pool", "load_dataset"]  # of the real one
__path__ = [str(Path(graphrelu.lab.__path__[0], "engine"))]  # its submodules are the real ones

# In thousandths, on top of a score that all share; a bit more for each seed, as ties are slow.
LEADS = {"relu": 0, "lrelu": -1, "elu": 6, "prelu": 4, "maxout": -12, "grelu": 8}
LEADS |= {"gelu": 5, "silu": -2}


def choose_device(name: str = "auto") -> torch.device:
    if name not in ("auto", "cpu"):
        raise ValueError(f"There is no device {name!r}; choose from auto, cpu and cuda.")
    return torch.device("cpu")


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


SIGNATURE = inspect.signature(engine.run)  # before a test puts the function below in its place


def run(*arguments: Any, **options: Any) -> list[Result]:
    """Takes what the engine takes, and nothing else."""
    given = SIGNATURE.bind(*arguments, **options).arguments
    configs, seeds, record = (given[name] for name in ("configs", "seeds", "record"))
    deadline, progress = given.get("deadline"), given.get("progress")
    done = {(r.config, r.seed): r for r in (record.read() if record is not None else [])}
    for config in configs:
        missing = tuple(seed for seed in seeds if (config, seed) not in done)
        if not missing or (deadline is not None and time.monotonic() > deadline):
            continue
        graph = given["graphs"][config.dataset]
        results = []
        for seed in missing:
            note = split_for(config, graph, seed).note
            results.append(make_result(config, seed, score(config.activation, seed), note))
        if progress is not None:
            total = len(configs) * len(seeds)
            progress(Progress(config, missing, 5, len(done), total, config.epochs))
        if record is not None:
            record.append(results)
        done |= {(config, result.seed): result for result in results}
        if progress is not None:
            progress(Progress(config, missing, config.epochs, len(done), total, config.epochs))
    wanted = [(config, seed) for config in configs for seed in seeds]
    return [done[key] for key in wanted if key in done]


def run_all(runs: Mapping[Config, Sequence[int]], record: Any, **how: Any) -> int:
    return sum(len(run([config], seeds, record, **how)) for config, seeds in runs.items())


def only_fakes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a folder the current one: without datasets, network or training."""

    def offline(*arguments: object) -> Path:
        raise DataError("There is no network.")

    for name in ("cli.compare", "reproduce.command"):  # which would keep the fake if imported later
        import_module(f"graphrelu.lab.{name}")
    monkeypatch.setitem(sys.modules, "graphrelu.lab.engine", sys.modules[__name__])
    monkeypatch.setattr(graphrelu.lab, "engine", sys.modules[__name__], raising=False)
    monkeypatch.setattr(pyg, "open_dataset", offline)
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
