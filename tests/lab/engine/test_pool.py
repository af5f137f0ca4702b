"""Runs elsewhere, in processes, in a Ray cluster or from a file: the same, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
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
from graphrelu.lab.engine import MOST_SEEDS, Progress, prepared
from graphrelu.lab.engine.keep import inspection_path
from graphrelu.lab.errors import MachineError
from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import graph_cell, on_sets, recipe
from graphrelu.lab.record.results import Record
from tests.helpers import ROOT
from tests.lab.engine.test_train import blocks
from tests.lab.molecule_sets import ring_set


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> None:
    """Ends with the process: Ray's own shutdown has aborted the process now and then."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")


def cells(*activations: str, epochs: int = 6) -> list[Config]:
    options = {"hidden": 4, "epochs": epochs, "patience": 0}
    return [recipe("blocks", "gcn", name, **options) for name in activations]


def test_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST_SEEDS, "cpu", 2)
    configs = cells("relu", "grelu", epochs=10)
    of_set = on_sets("rings", "gine", "grelu", hidden=4, epochs=3, split="column", metric="ap")
    graphs = {"blocks": blocks(), "rings": ring_set()}
    seen: list[Progress] = []
    kept, outcomes = [], []
    for name in ("local", "2", "ray"):
        record = Record(tmp_path / name / "runs.jsonl")
        options = {"graphs": graphs, "device": "cpu", "pool": name}
        results = engine.run([*configs, of_set], range(4), record, progress=seen.append, **options)
        outcomes.append([(r.config, r.seed, r.score, r.best_epoch, r.val_loss) for r in results])
        kept.append(record)
        lines = record.path.read_text()
        assert len(engine.run([*configs, of_set], range(4), record, **options)) == 12
        assert record.path.read_text() == lines, "trained twice"
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert (seen[-1].runs_done, seen[-1].runs_total) == (12, 12)
    for config in configs:
        one, *others = (np.load(inspection_path(record.path, config.key())) for record in kept)
        for many in others:
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
    results = engine.run(configs, range(2), record, graphs=graphs, device="cpu", pool="ray")
    killer.join()
    assert len(killed) == 1
    assert [r.score for r in results] == [r.score for r in expected]
    assert len(record.read()) == 4


class Deadly(Graph):
    """Ends the process that receives it."""

    def __reduce__(self) -> tuple:
        return os._exit, (1,)


@pytest.mark.parametrize(
    ("name", "ended"), [("ray", "1 Ray workers died"), ("1", "A process ended")]
)
def test_too_many_deaths(
    name: str, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MOST_TRIES", 1)
    record, graph = Record(tmp_path / "runs.jsonl"), Deadly(**vars(blocks()))
    with pytest.raises(MachineError, match=f"^{ended} while training 2 runs"):
        engine.run(cells("relu"), range(2), record, graphs={"blocks": graph}, pool=name)
    assert record.left(*cells("relu"), range(2)) == [0, 1]


def test_an_error_is_the_training_s_own(tmp_path: Path) -> None:
    record, graphs = Record(tmp_path / "runs.jsonl"), {"blocks": blocks()}
    (config,) = cells("relu")
    impossible = Config.from_dict({**config.to_dict(), "split": "masks"})
    with pytest.raises(ValueError, match="mask") as caught:
        engine.run([impossible], range(2), record, graphs=graphs, pool="ray")
    assert "\n" not in str(caught.value)
    assert record.left(impossible, range(2)) == [0, 1]


@pytest.mark.parametrize(("device", "message"), [("tpu", "from auto"), ("cuda", "no GPU is found")])
def test_devices(device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine.run(cells("relu"), [0], None, graphs={"blocks": blocks()}, device=device, pool="ray")


@pytest.mark.parametrize("name", ["0", "-1", "1000", "rays"])
def test_unknown_pools(name: str) -> None:
    with pytest.raises(ValueError, match="engine must be local, ray or a number of processes, not"):
        engine.run(cells("relu"), [0], None, graphs={"blocks": blocks()}, pool=name)


BARE = """
import sys
for name in ("scipy", "sklearn", "pandas", "typer", "rich", "matplotlib", "rdkit"):
    sys.modules[name] = None
from graphrelu.lab.engine import prepared
sys.argv[1:] = ["runs.pt", "record.jsonl", "--device", "cpu"]
prepared.main()
"""


def test_on_a_bare_machine(tmp_path: Path) -> None:
    options = {"hidden": 4, "epochs": 3}
    cells = [recipe("blocks", "gcn", name, **options) for name in ("relu", "grelu")]
    cells += [on_sets("rings", "gine", "grelu", walks=3, walk_width=2, **options, metric="mae")]
    graphs = {"blocks": blocks(), "rings": ring_set(values=True)}
    prepared.write(tmp_path / "runs.pt", dict.fromkeys(cells, range(2)), graphs)
    command = [sys.executable, "-W", "ignore", "-c", BARE]
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("6 of these 6 runs are in record.jsonl.\n")
    found = Record(tmp_path / "record.jsonl").read()
    expected = engine.run(cells, range(2), None, graphs=graphs, device="cpu")
    assert [(r.config, r.seed, r.score) for r in found] == [
        (r.config, r.seed, r.score) for r in expected
    ]


def test_sets_of_graphs_and_what_is_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs, path = {"rings": ring_set(120)}, tmp_path / "runs.pt"
    config = graph_cell("rings", "gin", "relu", 4, 1, epochs=2, metric="rocauc")
    prepared.write(path, {config: range(10)}, graphs)
    record = tmp_path / "record.jsonl"
    assert prepared.train(path, record, seconds=1e-9).startswith("0 of these 10 runs")
    assert not record.exists()
    assert prepared.train(path, record, "cpu").startswith("10 of these 10 runs are in")
    content = record.read_bytes()
    prepared.train(path, record, "cpu")
    assert record.read_bytes() == content
    record.write_text("my thesis\n")
    monkeypatch.setattr(sys, "argv", ["prepared", str(path), str(record)])
    with pytest.raises(SystemExit, match="2"):
        prepared.main()
    said = capsys.readouterr().err
    assert said.endswith("record.jsonl is not a record of runs; choose another file.\n")
