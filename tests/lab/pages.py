"""Runs and models that pages are made of: nothing is trained."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from graphrelu.lab import engine, page
from graphrelu.lab.data.graph import from_data
from graphrelu.lab.engine.keep import inspection_path
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import on_sets, recipe
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.stats import Decided, over_relu
from tests.lab.fake_engine import make_result, score
from tests.lab.molecule_sets import ring_set

NAMES = ("relu", "elu", "grelu")
HOSTILE = "<script>document.title='taken'</script>"


def cell(dataset: str, backbone: str, activation: str, **settings: Any) -> Config:
    return recipe(dataset, backbone, activation, **settings)


def runs(config: Config, seeds: int = 8) -> list[Result]:
    """Runs with curves that end at different epochs."""
    return [
        replace(
            make_result(config, seed, score(config.activation, seed)),
            epochs_run=10 + seed,
            curves={
                "val_loss": [2.0 - 0.1 * i for i in range(10 + seed)],
                "val_accuracy": [0.1 * min(i, 9) for i in range(10 + seed)],
            },
        )
        for seed in range(seeds)
    ]


def decided(results: list[Result], command: str = "", **options: Any) -> Decided:
    """The decisions on one cell, without a record."""
    scores: dict[str, dict[int, float]] = {}
    for run in results:
        scores.setdefault(run.config.activation, {})[run.seed] = run.score
    return Decided(over_relu(scores, **options), command)


def keep_model(record: Path, config: Config, nodes: int = 12) -> None:
    """What :func:`graphrelu.lab.engine.keep.inspect` writes; node n has gamma n, and slopes n."""
    path = inspection_path(record, config.key())
    path.parent.mkdir(parents=True)
    open_nodes = np.arange(12)
    slopes = open_nodes[:, None, None] * np.array([1.0, -1.0])[:, None] * np.ones((2, 4))
    arrays: dict[str, Any] = {
        "seed": np.int64(0),
        "prediction": np.zeros(nodes, dtype=np.int16),
        "acts.0.nodes": open_nodes,
        "acts.0.slopes": slopes.astype(np.float16),
        "acts.0.intercepts": np.zeros_like(slopes).astype(np.float16),
        "acts.0.gamma": np.arange(nodes, dtype=np.float16)[:, None],
    }
    np.savez(path, **arrays)


def embedded(path: str | Path) -> dict[str, Any]:
    """What a page holds as JSON."""
    text = Path(path).read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found, parse_constant=pytest.fail)


def set_page(folder: Path) -> Path:
    """The page of a comparison on rings whose nodes are atoms, by number: helium and lighter."""
    rings = ring_set(values=True)
    graphs = replace(rings, nodes=rings.nodes._replace(sizes=(119, 2)))
    sizes = {"hidden": 8, "layers": 2, "epochs": 4}
    configs = [
        on_sets("rings", "gcn", name, metric="rmse", split="column", **sizes)
        for name in ("relu", "grelu")
    ]
    record = Record(folder / "set.jsonl")
    results = engine.run(configs, range(2), record, graphs={"rings": graphs}, device="cpu")
    found = decided(results, is_error=True)
    content = page.from_comparison(results, found, graphs, record.path, "compare rings")
    return page.write(folder / "set.html", content)


def ring_page(ring: Data, folder: Path, dataset: str = HOSTILE) -> Path:
    """The page of a comparison on the ring, under a name that must do no harm."""
    configs = [cell(dataset, "gcn", name) for name in NAMES]
    record = folder / "runs.jsonl"
    keep_model(record, configs[-1])
    results = [run for config in configs for run in runs(config)]
    graph = from_data(ring, dataset)
    command = f"compare {HOSTILE}"
    content = page.from_comparison(results, decided(results, command), graph, record, command)
    return page.write(folder / "page.html", content)
