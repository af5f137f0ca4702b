"""A table by way of a local Ray cluster: the same as in one process, and nothing lost."""

from __future__ import annotations

import inspect
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray

from graphrelu.lab import engine
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine import Progress, ray_cluster
from graphrelu.lab.engine.keep import inspection_path
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.record.results import Record
from tests.lab.engine.test_train import blocks


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> None:
    """Ends with the process: Ray's own shutdown has aborted the process now and then."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")


def cells(*activations: str, epochs: int = 6) -> list[Config]:
    options = {"hidden": 4, "epochs": epochs, "patience": 0}
    return [recipe("blocks", "other", "gcn", name, **options) for name in activations]


def test_it_is_called_like_the_engine() -> None:
    real, spread = (inspect.signature(module.run) for module in (engine, ray_cluster))
    assert [*real.parameters, "address"] == list(spread.parameters)


def test_the_same_table(tmp_path: Path) -> None:
    configs, graphs = cells("relu", "grelu", epochs=10), {"blocks": blocks()}
    seen: list[Progress] = []
    kept, outcomes = [], []
    for name, module in (("one", engine), ("many", ray_cluster)):
        record = Record(tmp_path / name / "runs.jsonl")
        options = {"graphs": graphs, "device": "cpu", "seeds_at_once": 2}
        results = module.run(configs, range(4), record, progress=seen.append, **options)
        outcomes.append([(r.config, r.seed, r.score, r.best_epoch, r.val_loss) for r in results])
        kept.append(record)
        lines = record.path.read_text()
        assert len(module.run(configs, range(4), record, **options)) == 8
        assert record.path.read_text() == lines, "trained twice"
    assert outcomes[0] == outcomes[1]
    assert (seen[-1].runs_done, seen[-1].runs_total) == (8, 8)
    for config in configs:
        one, many = (np.load(inspection_path(record.path, config.key())) for record in kept)
        assert set(one.files) == set(many.files)
        assert np.array_equal(one["prediction"], many["prediction"])


def kill_one_worker(killed: list[int]) -> None:
    """As soon as one is training."""
    deadline = time.monotonic() + 60
    while not killed and time.monotonic() < deadline:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if " ".join(process.cmdline()).startswith("ray::train blocks"):
                    process.kill()
                    killed.append(process.pid)
                    return
        time.sleep(0.01)


def test_a_dead_worker(tmp_path: Path) -> None:
    configs, graphs = cells("relu", "grelu", epochs=200), {"blocks": blocks()}
    expected = engine.run(configs, range(2), None, graphs=graphs, device="cpu")
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_worker, args=(killed,))
    killer.start()
    record = Record(tmp_path / "runs.jsonl")
    results = ray_cluster.run(configs, range(2), record, graphs=graphs, device="cpu")
    killer.join()
    assert len(killed) == 1
    assert [r.score for r in results] == [r.score for r in expected]
    assert len(record.read()) == 4


class Deadly(Graph):
    """Ends the process that receives it."""

    def __reduce__(self) -> tuple:
        return os._exit, (1,)


def test_too_many_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "MOST_TRIES", 1)
    record, graph = Record(tmp_path / "runs.jsonl"), Deadly(**vars(blocks()))
    with pytest.raises(RuntimeError, match="1 Ray workers died at relu of gcn on blocks, with 2"):
        ray_cluster.run(cells("relu"), range(2), record, graphs={"blocks": graph})
    assert len(record.plan(cells("relu"), range(2), 2)) == 1


def test_without_a_record() -> None:
    results = ray_cluster.run(cells("relu"), range(3), None, graphs={"blocks": blocks()})
    assert [result.seed for result in results] == [0, 1, 2]


def test_deadline(tmp_path: Path) -> None:
    record, late = Record(tmp_path / "runs.jsonl"), time.monotonic() - 1
    graphs = {"blocks": blocks()}
    assert ray_cluster.run(cells("relu"), range(2), record, graphs=graphs, deadline=late) == []
    assert not record.path.exists()


def test_an_error_is_the_training_s_own_and_gives_the_batch_back(tmp_path: Path) -> None:
    record, graphs = Record(tmp_path / "runs.jsonl"), {"blocks": blocks()}
    (config,) = cells("relu")
    impossible = Config.from_dict({**config.to_dict(), "split": "masks"})
    with pytest.raises(ValueError, match="mask") as caught:
        ray_cluster.run([impossible], range(2), record, graphs=graphs)
    assert "\n" not in str(caught.value)
    assert len(record.plan([impossible], range(2), 2)) == 1


@pytest.mark.parametrize(("device", "message"), [("tpu", "known are auto"), ("cuda", "has no GPU")])
def test_devices(device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ray_cluster.run(cells("relu"), [0], None, graphs={"blocks": blocks()}, device=device)
