"""Runs by way of the record: continued, what is kept of them, and too little memory for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine import (
    MOST_SEEDS,
    PreparedCells,
    Progress,
    choose_device,
    features_of,
    is_out_of_memory,
    run,
    runs_at_once,
)
from graphrelu.lab.engine.keep import inspection_path, read_look
from graphrelu.lab.engine.train import build, train_nodes
from graphrelu.lab.models.propagation import row_normalized
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import modern, on_sets, recipe
from graphrelu.lab.record.results import Record
from tests.lab.engine.test_train import blocks
from tests.lab.molecule_sets import ring_set
from tests.lab.stock import by_pyg

ROOT = Path(__file__).parents[3]


def cells(*activations: str, epochs: int = 6) -> list[Config]:
    return [recipe("blocks", "gcn", name, hidden=4, epochs=epochs) for name in activations]


def test_without_a_record_and_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = blocks()
    configs = [replace(config, dtype="float64") for config in cells("relu", "maxout")]
    seen: list[Progress] = []
    kwargs = {"graphs": {"blocks": graph}, "device": "cpu"}
    whole = run(configs, range(5), None, progress=seen.append, **kwargs)
    monkeypatch.setitem(MOST_SEEDS, "cpu", 2)
    parts = run(configs, range(5), None, **kwargs)
    assert [r.score for r in whole] == pytest.approx([r.score for r in parts])
    assert [r.seed for r in parts] == [0, 1, 2, 3, 4] * 2
    assert (seen[-1].runs_done, seen[-1].runs_total) == (10, 10)
    assert [p.epoch for p in seen if p.config == configs[0]] == [1, 2, 3, 4, 5, 6]


def test_inspection(tmp_path: Path) -> None:
    graph, record = blocks(), Record(tmp_path / "runs.jsonl")
    (config,) = cells("grelu", epochs=30)
    run([config], range(3), record, graphs={"blocks": graph}, device="cpu")
    inside = np.load(inspection_path(record.path, config.key()))
    assert inside["prediction"].shape == (48,)
    assert inside["acts.0.gamma"].shape == (48, 1)
    assert inside["acts.0.slopes"].shape == inside["acts.0.intercepts"].shape == (48, 2, 4)


@pytest.mark.parametrize("task", ["values", "labels"])
def test_a_look_at_a_set_holds_some_of_its_test_graphs(tmp_path: Path, task: str) -> None:
    graphs, record = ring_set(values=task == "values"), Record(tmp_path / "runs.jsonl")
    metric = {"values": "mae", "labels": "ap"}[task]
    sizes = {"hidden": 8, "layers": 2, "epochs": 2}
    for name in ("relu", "grelu"):
        config = on_sets("rings", "gcn", name, metric=metric, split="column", **sizes)
        run([config], range(2), record, graphs={"rings": graphs}, device="cpu")
        path = inspection_path(record.path, config.key())
        assert path.exists() == (name == "grelu")
    look = read_look(path)
    test = graphs.node_count[graphs.split == 2]
    assert look["node_count"].tolist() == test.sort()[0][[2, 4, 6, 9]].tolist()
    nodes = look["node_count"].sum()
    assert look["edge_index"].shape == (2, 2 * nodes)  # all of them are rings
    assert look["layers.1.act.gamma"].shape == (nodes, 1)
    assert look["layers.1.act.slopes"].shape == look["layers.0.act.intercepts"].shape
    assert look["layers.1.act.slopes"].shape == (len(look["layers.1.act.nodes"]), 2, 8)
    assert look["target"].shape == look["prediction"].shape == (4,)
    assert look["seed"] == 0


def test_a_damaged_look(tmp_path: Path) -> None:
    path = tmp_path / "look.npz"
    np.savez_compressed(path, seed=3, prediction=np.zeros(12))
    assert read_look(path)["prediction"].shape == (12,)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"look\.npz is not a look inside a model \(.*\)\.$"):
        read_look(path)


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_csr])
def test_features_are_normalised(layout: torch.layout) -> None:
    """And neighbours in a table share what was prepared, if their settings are the same."""
    graph = blocks()
    expected = row_normalized(graph.x)
    if layout == torch.sparse_csr:
        graph = replace(graph, x=graph.x.to_sparse_csr())
    config = recipe("blocks", "gcn", "relu", hidden=4, normalize_features=True)
    model = build(config, graph, 0).eval()
    prepared = PreparedCells({"blocks": graph}, None, torch.device("cpu"))
    inputs = prepared.inputs_of(config)
    assert prepared.inputs_of(replace(config, activation="elu")) is inputs
    torch.testing.assert_close(model(inputs), by_pyg(model, expected, graph.edge_index))
    assert features_of(config, graph).layout == layout
    raw = prepared.inputs_of(replace(config, normalize_features=False))
    assert not torch.equal(model(raw), model(inputs))


def test_devices() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto", has_gpu=True).type == "cuda"
    assert choose_device("cpu", has_gpu=True).type == "cpu"
    with pytest.raises(ValueError, match=r"^There is no device 'gpu'; choose from auto, "):
        choose_device("gpu")
    with pytest.raises(ValueError, match=r"^There is no device 'cuda' here: no GPU is found\.$"):
        choose_device("cuda", has_gpu=False)


@pytest.mark.parametrize("activation", ["relu", "grelu"])
def test_the_record_is_reproduced(real_root: Path, activation: str) -> None:
    """A cell that a GPU trained comes out the same on a CPU, up to rounding."""
    config = recipe("cora", "gcn", activation)
    kept = {r.seed: r for r in Record(ROOT / "results" / "node.jsonl").read() if r.config == config}
    again = run([config], range(10), None, root=real_root, device="cpu")
    differences = [100 * (result.score - kept[result.seed].score) for result in again]
    assert max(map(abs, differences)) <= 0.3  # three of the 1,000 test nodes
    for result in again:
        expected = kept[result.seed]
        assert result.note == expected.note
        assert result.val_loss == pytest.approx(expected.val_loss, abs=2e-3)


# Too little memory

GRELU = recipe("blocks", "gcn", "grelu", hidden=4, epochs=6, dtype="float64")
GRAPHS = {"blocks": blocks()}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_a_batch_is_halved(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is finished of it is kept."""
    expected = run([GRELU], range(7), None, graphs=GRAPHS, device="cpu")
    record, trained, seen = Record(tmp_path / "runs.jsonl"), [], list[Progress]()
    options: dict[str, Any] = {"graphs": GRAPHS, "device": "cpu", "progress": seen.append}
    at_most = 2  # parts, before Ctrl-C

    def train_what_fits(
        config: Any, graph: Any, inputs: Any, seeds: Sequence[int], *rest: Any
    ) -> Any:
        if len(seeds) > 2:
            raise error
        if len(trained) == at_most:
            raise KeyboardInterrupt
        trained.append(tuple(seeds))
        return train_nodes(config, graph, inputs, seeds, *rest)

    monkeypatch.setattr(engine, "train_nodes", train_what_fits)
    with pytest.raises(KeyboardInterrupt):
        run([GRELU], range(7), record, **options)
    assert [result.seed for result in record.read()] == [0, 1, 2]
    at_most = 4
    results = run([GRELU], range(7), record, **options)
    assert trained == [(0,), (1, 2), (3, 4), (5, 6)]
    assert record.path.read_text().count('"event":"finished"') == len(trained)
    finished = [(p.seeds, p.runs_done) for p in seen if p.epoch == GRELU.epochs]
    assert finished == list(zip(trained, (1, 3, 5, 7), strict=True))
    assert [(r.seed, r.score, r.best_epoch) for r in results] == [
        (r.seed, r.score, r.best_epoch) for r in expected
    ]
    assert [r.test_loss for r in results] == pytest.approx([r.test_loss for r in expected])


def test_larger_networks_need_more() -> None:
    cpu = torch.device("cpu")
    assert runs_at_once(GRELU, GRAPHS["blocks"], cpu) == 10
    wide = recipe("blocks", "gat", "relu", hidden=512)
    assert runs_at_once(wide, blocks(nodes_per_class=300), cpu) < 10
    y, edge_index = torch.zeros(6_000).long(), torch.zeros(2, 4_000_000).long()
    graph = Graph("blocks", torch.zeros(6_000, 30), edge_index, None, y)

    def fit(backbone: str, **settings: Any) -> int:
        return runs_at_once(modern("blocks", backbone, "grelu", **settings), graph, cpu)

    assert fit("gcn", layers=4) == 10
    assert 1 <= fit("gcn", layers=40, hidden=128) <= fit("gcn", layers=20, hidden=128) // 2 + 1 < 10
    assert fit("gat", layers=20, hidden=128) < fit("gcn", layers=20, hidden=128)
    assert fit("gcn", layers=100, hidden=512) == 1


def test_too_little_memory_by_many_names() -> None:
    with pytest.raises(RuntimeError) as real:
        torch.empty(2**60)
    assert is_out_of_memory(real.value)
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    hidden = RuntimeError("the capture failed")
    hidden.__context__ = torch.OutOfMemoryError()
    assert is_out_of_memory(hidden)
