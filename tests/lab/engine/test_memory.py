"""Too little memory for a batch: it is halved, and the runs come out the same."""

from __future__ import annotations

from collections.abc import Sequence
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

CELL = recipe("blocks", "other", "gcn", "grelu", hidden=4, epochs=6, dtype="float64")
GRAPHS = {"blocks": blocks()}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_a_batch_is_halved(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is finished of it is kept."""
    expected = run([CELL], range(7), None, graphs=GRAPHS, device="cpu")
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
        return train(config, graph, inputs, seeds, *rest)

    monkeypatch.setattr(engine.cells, "train", train_what_fits)
    with pytest.raises(KeyboardInterrupt):
        run([CELL], range(7), record, **options)
    assert [result.seed for result in record.read()] == [0, 1, 2]
    at_most = 4
    results = run([CELL], range(7), record, **options)
    assert trained == [(0,), (1, 2), (3, 4), (5, 6)]
    assert record.path.read_text().count('"event":"finished"') == len(trained)
    finished = [(p.seeds, p.runs_done) for p in seen if p.epoch == CELL.epochs]
    assert finished == list(zip(trained, (1, 3, 5, 7), strict=True))
    assert [(r.seed, r.score, r.best_epoch) for r in results] == [
        (r.seed, r.score, r.best_epoch) for r in expected
    ]
    assert [r.test_loss for r in results] == pytest.approx([r.test_loss for r in expected])


def test_larger_networks_need_more() -> None:
    cpu = torch.device("cpu")
    assert runs_at_once(CELL, GRAPHS["blocks"], cpu) == 10
    wide = recipe("blocks", "other", "gat", "relu", hidden=512)
    assert runs_at_once(wide, blocks(nodes_per_class=300), cpu) < 10
    y, edge_index = torch.zeros(6_000).long(), torch.zeros(2, 4_000_000).long()
    graph = Graph("blocks", torch.zeros(6_000, 30), edge_index, None, y, 3)

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
