"""Too little memory for a batch: it is halved, and the runs come out the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine import Progress, run
from graphrelu.lab.engine.cells import is_out_of_memory, runs_at_once
from graphrelu.lab.engine.train import train
from graphrelu.lab.record.recipes import modern, recipe
from graphrelu.lab.record.results import Record
from tests.lab.engine.test_train import blocks

CELL = recipe("blocks", "gcn", "grelu", hidden=4, epochs=6, dtype="float64")
GRAPHS = {"blocks": blocks()}


def fitting(at_most: int, error: Exception, trained: list[tuple[int, ...]]) -> Callable[..., Any]:
    """Stands in for the training on a device with room for a given number of runs."""

    def train_what_fits(
        config: Any, graph: Any, inputs: Any, seeds: Sequence[int], *rest: Any
    ) -> Any:
        if len(seeds) > at_most:
            raise error
        trained.append(tuple(seeds))
        return train(config, graph, inputs, seeds, *rest)

    return train_what_fits


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_a_batch_is_halved(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run([CELL], range(7), None, graphs=GRAPHS, device="cpu")
    trained: list[tuple[int, ...]] = []
    seen: list[Progress] = []
    monkeypatch.setattr(engine.cells, "train", fitting(2, error, trained))
    for record in (None, Record(tmp_path / "runs.jsonl")):
        trained.clear()
        results = run([CELL], range(7), record, graphs=GRAPHS, device="cpu", progress=seen.append)
        assert trained == [(0,), (1, 2), (3, 4), (5, 6)]
        assert [(r.seed, r.score, r.best_epoch) for r in results] == [
            (r.seed, r.score, r.best_epoch) for r in expected
        ]
        assert [r.test_loss for r in results] == pytest.approx([r.test_loss for r in expected])
    finished = [(p.seeds, p.runs_done) for p in seen if p.epoch == CELL.epochs]
    assert finished[-1] == ((5, 6), 7)
    assert record is not None
    assert len(record.read()) == 7
    assert record.path.read_text().count('"event":"finished"') == len(trained)


def test_what_is_finished_of_a_halved_batch_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(tmp_path / "runs.jsonl")
    trained: list[tuple[int, ...]] = []
    train_what_fits = fitting(2, torch.OutOfMemoryError(), trained)

    def interrupted(config: Any, graph: Any, inputs: Any, seeds: Sequence[int], *rest: Any) -> Any:
        if trained:
            raise KeyboardInterrupt
        return train_what_fits(config, graph, inputs, seeds, *rest)

    monkeypatch.setattr(engine.cells, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run([CELL], range(4), record, graphs=GRAPHS, device="cpu")
    assert [result.seed for result in record.read()] == [0, 1]
    monkeypatch.setattr(engine.cells, "train", train_what_fits)
    assert len(run([CELL], range(4), record, graphs=GRAPHS, device="cpu")) == 4
    assert trained == [(0, 1), (2, 3)]


def test_larger_networks_need_more() -> None:
    cpu = torch.device("cpu")
    assert runs_at_once(CELL, GRAPHS["blocks"], cpu) == 10
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
