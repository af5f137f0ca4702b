"""What the page shows: tables as in the terminal and on the pages of results, charts, graphs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from graphrelu.lab import page
from graphrelu.lab.data.graph import from_data
from graphrelu.lab.record.recipes import on_sets
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import amount, compare_rows, shown
from graphrelu.lab.reproduce import node
from tests.lab.fake_engine import make_result
from tests.lab.molecule_sets import ring_set
from tests.lab.pages import NAMES, cell, decided, keep_model, runs

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"


@pytest.mark.parametrize("metric", ["accuracy", "mae"])
def test_rows_are_those_of_the_comparison(metric: str) -> None:
    """An error is negative on record: one less than a share is such a number."""
    results = [run for name in NAMES for run in runs(cell("digits", "gcn", name), seeds=10)]
    if metric == "mae":
        results = [
            replace(run, config=replace(run.config, metric="mae"), score=run.score - 1)
            for run in results
        ]
    found = decided(
        results,
        margin=1.0 if metric == "accuracy" else 5.0,
        looks=(2, 3),
        is_error=metric == "mae",
    )
    key = results[0].config.cell_key()
    (table,) = page.tables_of(results, "runs.jsonl", {key: found})
    for row, expected in zip(table["rows"], compare_rows(results, found.decisions), strict=True):
        assert row["family"] == expected.activation
        assert (row["mean"], row["std"], row["n"]) == (expected.mean, expected.std, expected.n)
        assert row["price"] == asdict(expected.price)
        lead = expected.over_relu
        assert row["lead"] == (None if lead is None else asdict(lead) | {"text": amount(lead)})
        assert row["shown"] == shown(expected)
        assert np.mean([value for _, value in row["seeds"]]) == pytest.approx(expected.mean)
    assert [row["highest"] for row in table["rows"]] == [False, False, True]


def test_rows_of_the_record_are_those_of_the_main_table() -> None:
    results = [r for r in Record(RESULTS / "node.jsonl").read() if r.config.dataset == "cora"]
    (table,) = page.tables_of(results, "node.jsonl")
    for row, expected in zip(table["rows"], node.TABLE.rows(results), strict=True):
        assert (row["family"], row["mean"]) == (expected.activation, expected.mean)
        if (lead := expected["over_relu"]) is not None:
            assert row["lead"] == asdict(lead) | {"text": amount(lead)}
        assert row["n"] == expected.n
        assert row["price"]["calibration_error"] is None  # older than the field
    assert sum(row["highest"] for row in table["rows"]) == len(table["cells"])


def test_names_tell_cells_apart() -> None:
    """By the settings that differ; of a user's file by the hash, but only of two editions."""
    widths = [cell("digits", "gcn", "relu", hidden=width) for width in (8, 16)]
    files = [cell(name, "gcn", "relu") for name in ("own.npz@0a1b2c3d", "own.npz@4e5f6789")]
    for configs, column, expected in (
        (widths, "backbone", ["GCN (hidden 8)", "GCN (hidden 16)"]),
        (files[:1], "dataset", ["own.npz"]),
        (files, "dataset", [config.dataset for config in files]),
    ):
        (table,) = page.tables_of([run for one in configs for run in runs(one)], "runs.jsonl")
        assert [row[column] for row in table["rows"]] == expected


def test_bands_are_percentiles_of_the_seeds_that_are_trained() -> None:
    found = page.bands(runs(cell("digits", "gcn", "relu"), seeds=3))["val_loss"]
    assert found["epoch"] == list(range(11))  # of 10, 11 and 12 epochs
    assert found["low"] == found["middle"] == found["high"]
    np.testing.assert_allclose(found["middle"], 2.0 - 0.1 * np.arange(11))
    lost = make_result(cell("digits", "gcn", "relu"), 0, 0.5)
    lost.curves["train_loss"][1] = float("nan")
    assert page.bands([lost]) == {}


@pytest.mark.parametrize(
    ("metric", "relu", "grelu", "sentence"),
    [
        (
            "accuracy",
            [0.1, 0.5, 0.6],
            [0.2, 0.6, 0.7],
            "(60.0 %) after 2 of 3 epochs, ReLU after 3",
        ),
        ("mae", [-3, -2, -1.5], [-1.25, -2, -1], "(1.5) after 1 of 3 epochs, ReLU after 3"),
        ("accuracy", [0.1, 0.5, 0.6], [0.1, 0.5, 0.6], ""),  # no sooner
        ("accuracy", [0.1, 0.6, 0.6], [0.5, 0.5, 0.5], ""),  # never
        ("accuracy", [], [], ""),
    ],
)
def test_how_soon_grelu_is_where_relu_ends(
    metric: str, relu: list[float], grelu: list[float], sentence: str
) -> None:
    sides = []
    for name, curve in (("relu", relu), ("grelu", grelu)):
        config = replace(cell("digits", "gcn", name), metric=metric)
        own = make_result(config, 0, -1.0 if metric == "mae" else 0.5)
        run = replace(own, epochs_run=len(curve), curves={"val": curve})
        sides.append([run, replace(run, seed=1)])
    what = "error" if metric == "mae" else "score"
    if sentence:
        sentence = f"GReLU reaches ReLU's best validation {what} {sentence} (medians over 2 seeds)."
    assert page.pace(sides[1], sides[0]) == sentence
    if metric == "mae":
        assert page.bands(sides[1])["val"]["middle"] == [1.25, 2, 1]


def test_a_set_of_graphs_in_a_few_lines() -> None:
    graphs = ring_set()
    sizes = sorted(graphs.node_count.tolist())
    config = on_sets("rings", "gcn", "grelu", metric="ap", split="random")
    lines = dict(page.facts(graphs, [make_result(config, 0, 0.5)]))
    assert lines["graphs"] == "30"
    assert lines["nodes per graph"] == f"median {sizes[14]}, from {sizes[0]} to {sizes[-1]}"
    assert lines["features"] == "2 categories per node, 1 category per edge"
    assert lines["to predict"] == "1 label (binary classification)"
    assert lines["metric"] == "average precision in percent"


def test_layout_has_every_edge_once(ring: Data) -> None:
    graph = from_data(ring, "ring")
    layout = page.draw(graph, np.arange(3))
    assert layout["nodes"] == list(range(12))
    assert sorted(map(tuple, layout["edges"])) == sorted(
        tuple(sorted((i, (i + 1) % 12))) for i in range(12)
    )
    assert layout["degree"] == [2] * 12
    place = np.array(layout["place"])
    assert place.min() == 0
    assert place.max() == 1
    next_one, opposite = (
        np.linalg.norm(place - np.roll(place, shift, axis=0), axis=1).mean() for shift in (1, 6)
    )
    assert next_one < opposite


def test_a_model_of_another_edition_is_left_out(ring: Data, tmp_path: Path) -> None:
    graph, config = from_data(ring, "ring"), cell("ring", "gcn", "grelu")
    for nodes, found in ((12, 1), (13, 0)):
        record = tmp_path / f"{nodes}.jsonl"
        keep_model(record, config, nodes)
        looks = page.kept_looks(runs(config), record)
        drawn: dict[str, Any] = {}
        models = page.kept_models(looks, {"ring": graph}, drawn)
        assert (len(drawn), len(models)) == (found, found)


def test_large_graphs_are_sampled(ring: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "DRAWN_NODES", 5)
    nodes = page.sample(ring.edge_index.numpy(), 12, np.array([0, 6]))
    assert {0, 6} <= set(nodes.tolist()) <= {11, 0, 1, 5, 6, 7}
    assert len(nodes) == 5
