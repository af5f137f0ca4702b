"""Runs by way of the record: killed, continued, shared; and what is kept of them."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphrelu.lab import engine
from graphrelu.lab.data.splits import make_split
from graphrelu.lab.engine import PreparedCells, Progress, choose_device, run, scaled_features
from graphrelu.lab.engine.keep import inspection_path
from graphrelu.lab.engine.memory import fitting_seeds
from graphrelu.lab.engine.train import build
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.models.sparse import row_normalized
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import node_table, recipe
from graphrelu.lab.record.results import Record
from tests.lab import fake_engine
from tests.lab.engine.test_train import blocks

ROOT = Path(__file__).parents[3]


def cells(*activations: str, epochs: int = 6) -> list[Config]:
    return [recipe("blocks", "other", "gcn", name, hidden=4, epochs=epochs) for name in activations]


def test_nothing_is_trained_twice(tmp_path: Path) -> None:
    graph, configs, record = blocks(), cells("relu", "grelu"), Record(tmp_path / "runs.jsonl")
    first = run(configs, range(4), record, graphs={"blocks": graph}, device="cpu")
    lines = record.path.read_text()
    again = run(configs, range(4), record, graphs={"blocks": graph}, device="cpu")
    assert record.path.read_text() == lines
    assert [r.to_dict() for r in again] == [r.to_dict() for r in first]
    more = run(configs, range(6), record, graphs={"blocks": graph}, device="cpu")
    assert [(r.config, r.seed) for r in more] == [(c, s) for c in configs for s in range(6)]
    assert [r.to_dict() for r in more if r.seed < 4] == [r.to_dict() for r in first]


def test_without_a_record_and_in_small_batches() -> None:
    graph = blocks()
    configs = [replace(config, dtype="float64") for config in cells("relu", "maxout")]
    seen: list[Progress] = []
    kwargs = {"graphs": {"blocks": graph}, "device": "cpu"}
    whole = run(configs, range(5), None, progress=seen.append, **kwargs)
    parts = run(configs, range(5), None, seeds_at_once=2, **kwargs)
    assert [r.score for r in whole] == pytest.approx([r.score for r in parts])
    assert [r.seed for r in parts] == [0, 1, 2, 3, 4] * 2
    assert (seen[-1].runs_done, seen[-1].runs_total) == (10, 10)
    assert [p.epoch for p in seen if p.config == configs[0]] == [1, 2, 3, 4, 5, 6, 6]


def test_deadline(tmp_path: Path) -> None:
    record = Record(tmp_path / "runs.jsonl")
    late = time.monotonic() - 1
    graphs = {"blocks": blocks()}
    assert run(cells("relu"), range(2), record, graphs=graphs, device="cpu", deadline=late) == []
    assert not record.path.exists()


def test_expected_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of a batch takes a second: ten runs of GCN at once, or six of SAGE."""
    gcn, sage = cells("relu", "grelu"), recipe("blocks", "other", "sage", "relu", epochs=7)
    graphs = {"blocks": blocks()}
    monkeypatch.setattr(engine, "seconds", lambda step, device: 1.0)
    assert engine.expected_seconds({}, graphs, "cpu") == 0
    alike = dict.fromkeys(gcn, 20)
    assert engine.expected_seconds(alike, graphs, "cpu") == pytest.approx(2 * 20 * 6 / 10)
    both = {gcn[0]: 10, sage: 6}
    assert engine.expected_seconds(both, graphs, "cpu") == pytest.approx(6 + 7)
    monkeypatch.setattr(engine, "MEASURING", -1.0)  # after the first network no time is left
    rough = engine.expected_seconds(both, graphs, "cpu")
    assert rough in (pytest.approx(102 / 10), pytest.approx(102 / 6))

    def too_large(step: object, device: object) -> float:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(engine, "seconds", too_large)
    assert engine.expected_seconds(both, graphs, "cpu") == 0


def test_an_error_gives_the_batch_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, graphs = Record(tmp_path / "runs.jsonl"), {"blocks": blocks()}

    def fail(*args: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "train", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            run(cells("relu"), range(2), record, graphs=graphs, device="cpu")
    assert len(run(cells("relu"), range(2), record, graphs=graphs, device="cpu")) == 2


def test_inspection_and_models(tmp_path: Path) -> None:
    graph, record = blocks(), Record(tmp_path / "runs.jsonl")
    (config,) = cells("grelu", epochs=30)
    saved = tmp_path / "models"
    results = run([config], range(3), record, graphs={"blocks": graph}, device="cpu", save=saved)
    inside = np.load(inspection_path(record.path, config.key()))
    assert inside["prediction"].shape == (48,)
    assert inside["acts.0.gamma"].shape == (48, 1)
    assert inside["acts.0.slopes"].shape == inside["acts.0.intercepts"].shape == (48, 2, 4)

    content = torch.load(saved / f"blocks-gcn-grelu-{config.key()}-seed0.pt", weights_only=True)
    assert Config.from_dict(content["config"]) == config
    model = GNN("gcn", 30, 4, 3, activation="grelu").eval()
    model.load_state_dict(content["state_dict"])
    prediction = model(graph.x, graph.edge_index).argmax(dim=1)
    assert np.array_equal(inside["prediction"], prediction.numpy())
    split = make_split(graph, 0)
    accuracy = (prediction[split.test] == graph.y[split.test]).double().mean()
    assert results[0].score == pytest.approx(float(accuracy))


def test_the_fake_is_called_like_the_engine() -> None:
    """What the command line's tests call must not drift away from what it calls."""
    for name in ("run", "choose_device"):
        real, fake = (
            list(inspect.signature(getattr(module, name)).parameters)
            for module in (engine, fake_engine)
        )
        assert real == fake, name


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_features_are_scaled_after_normalisation(layout: torch.layout) -> None:
    """And neighbours in a table do not share features of another scale."""
    graph = blocks()
    expected = 50 * row_normalized(graph.x)
    assert not torch.equal(expected, row_normalized(50 * graph.x))
    if layout == torch.sparse_csr:
        graph = replace(graph, x=graph.x.to_sparse_csr())
    plain = recipe("blocks", "citation", "gcn", "relu", hidden=4)
    scaled = replace(plain, feature_scale=50)
    model = build(plain, graph, 0).eval()
    prepared = PreparedCells({"blocks": graph}, None, torch.device("cpu"))
    inputs = prepared.inputs_of(plain)
    assert prepared.inputs_of(replace(plain, activation="elu")) is inputs
    for config, x in ((scaled, expected), (plain, expected / 50)):
        out = model(prepared.inputs_of(config))
        torch.testing.assert_close(out, model(x, graph.edge_index))
        assert scaled_features(config, graph).layout == layout


def test_devices() -> None:
    assert choose_device("cpu").type == "cpu"
    for name in ("gpu", "meta", "cuda:99"):
        with pytest.raises(ValueError, match=f"There is no device '{name}'"):
            choose_device(name)


def test_batches_fit_into_memory() -> None:
    graph = blocks()
    assert fitting_seeds(cells("relu")[0], graph, torch.device("cpu")) == 10
    large = blocks(nodes_per_class=300)
    wide = recipe("blocks", "other", "gat", "relu", hidden=512)
    assert fitting_seeds(wide, large, torch.device("cpu")) < 10


@pytest.mark.parametrize("activation", ["relu", "grelu"])
def test_the_record_is_reproduced(real_root: Path, activation: str) -> None:
    """A cell that a GPU trained comes out the same on a CPU, up to rounding."""
    (config,) = node_table(["cora"], ["gcn"], [activation])
    kept = {r.seed: r for r in Record(ROOT / "results" / "node.jsonl").read() if r.config == config}
    again = run([config], range(10), None, root=real_root, device="cpu")
    differences = [100 * (result.score - kept[result.seed].score) for result in again]
    assert max(map(abs, differences)) <= 0.3  # three of the 1,000 test nodes
    for result in again:
        expected = kept[result.seed]
        assert result.note == expected.note
        assert result.val_loss == pytest.approx(expected.val_loss, abs=2e-3)


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment, stdout=subprocess.DEVNULL
    )


def finished(record: Path) -> list[tuple[str, int]]:
    if not record.exists():
        return []
    lines = [line for line in record.read_text().splitlines() if '"event":"finished"' in line]
    entries = [json.loads(line) for line in lines]
    return [(entry["config"]["activation"], seed) for entry in entries for seed in entry["seed"]]


def kill_in_the_middle(arguments: list[str], record: Path, after: int) -> None:
    """SIGKILL once so many runs are on record and the next batch is under way."""
    process = start(arguments)
    deadline = time.monotonic() + 120
    while len(finished(record)) < after:
        assert process.poll() is None, "finished before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()


def scores(record: Path) -> dict[tuple[str, int], float]:
    return {(r.config.activation, r.seed): r.score for r in Record(record).read()}


def test_kill_and_continue_compare(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"

    def arguments(record: Path) -> list[str]:
        options = ["--runs", "4", "--activations", "relu,grelu,maxout", "--epochs", "60"]
        options += ["--layers", "2"]
        return ["graphrelu.lab", "compare", "digits", *options, "--out", str(record)]

    assert start(arguments(whole)).wait() == 0
    kill_in_the_middle(arguments(broken), broken, after=4)
    assert 4 <= len(finished(broken)) < 12
    assert start(arguments(broken)).wait() == 0
    assert sorted(finished(broken)) == sorted(finished(whole))
    assert scores(broken) == scores(whole)


def test_kill_and_continue_reproduce(tmp_path: Path, real_root: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"

    def arguments(record: Path) -> list[str]:
        options = ["--datasets", "cora", "--backbones", "gcn", "--activations", "relu,prelu,grelu"]
        options += ["--runs", "2", "--device", "cpu", "--data", str(real_root)]
        return ["graphrelu.lab.reproduce", "node", *options, "--out", str(record)]

    assert start(arguments(whole)).wait() == 0
    kill_in_the_middle(arguments(broken), broken, after=2)
    assert 2 <= len(finished(broken)) < 6
    assert start(arguments(broken)).wait() == 0
    assert sorted(finished(broken)) == sorted(finished(whole))
    assert scores(broken) == scores(whole)
    tables = []
    for record in (whole, broken):
        assert start([*arguments(record), "--render"]).wait() == 0
        text = record.with_suffix(".md").read_text().replace(record.name, "")
        tables.append(text)
    assert tables[0] == tables[1]
