"""What the tables of runs have in common: quick runs, full runs, and the committed pages."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Record
from graphrelu.lab.reproduce import strong
from graphrelu.lab.reproduce.command import EXPERIMENTS, experiment
from tests.lab.fake_engine import invoke, make_result

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_page_is_that_of_the_record(name: str, tmp_path: Path) -> None:
    """Where this fails: graphrelu reproduce NAME --render."""
    record = tmp_path / f"{name}.jsonl"
    shutil.copy(RESULTS / record.name, record)
    for path in experiment(name).render(record):
        committed = RESULTS / path.relative_to(tmp_path)
        if path.suffix in (".md", ".csv"):
            assert committed.read_text() == path.read_text()
        else:  # another version of the plotting package draws other bytes
            assert committed.stat().st_size > 1_000


@pytest.mark.parametrize(
    ("name", "rivals"),
    [
        *(("node", 6), ("graph", 6), ("deep", 6), ("strong", 6)),
        *(("segments", 6), ("ablation", 10)),
    ],
)
def test_every_activation_has_the_same_settings_and_budget(name: str, rivals: int) -> None:
    """But for ReLU with more parameters or another split, and for SGC, which has no activation."""
    table = experiment(name)
    wanted, others = table.wanted(), (strong.WIDER, strong.PUBLISHED, "SGC")
    assert all(table.place(config) == place for place, config in wanted.items())
    counts = Counter(
        replace(config, activation="any", activation_options=())
        for (_, of), config in wanted.items()
        if of not in others
    )
    assert set(counts.values()) == {rivals}
    assert len(set(wanted.values())) == len(wanted)
    config = next(iter(wanted.values()))
    assert table.place(replace(config, activation="grelu", activation_options=(("K", 9),))) is None
    assert table.place(replace(config, lr=0.1)) is None


def test_runs_of_other_tables_are_left_out(tmp_path: Path) -> None:
    """So is a run with other settings; without any there is no page."""
    record = Record(tmp_path / "x.jsonl")
    (config,) = node_table(["cora"], ["cheb"], ["elu"])
    record.append([make_result(replace(config, lr=0.5), 0, 0.5)])
    with pytest.raises(ValueError, match=r"x\.jsonl has no runs of reproduce node\.$"):
        experiment("node").render(record.path)
    record.append([make_result(config, 0, 0.5)])
    page, table, *_ = experiment("node").render(record.path)
    assert "Made from `x.jsonl`: 1 runs (no device; torch 0).\n\n" in page.read_text()
    assert len(table.read_text().splitlines()) == 1 + 1


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *(("segments", 6), ("ablation", 11)),
        *(("node", 36), ("deep", 18), ("strong", 6)),
    ],
)
def test_quick_run(name: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without datasets, from the training to the page, in the terminal."""
    monkeypatch.setenv("GRAPHRELU_DATA", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphrelu.lab.reproduce.table.QUICK_EPOCHS", 2)
    shown = invoke("reproduce", name, "--quick", "--runs", 1, "--device", "cpu")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "In haste: another graph, or fewer epochs" in shown.stdout
    assert f"{runs} of these {runs} runs are in results/quick/{name}.jsonl." in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    has_figure = name in ("segments", "node")
    assert (f": see {name}.png." in shown.stdout) == has_figure
    endings = ("md", "csv", "png", "svg") if has_figure else ("md", "csv")
    assert {path.name for path in (tmp_path / "results" / "quick").glob(f"{name}.[mcps]*")} == {
        f"{name}.{ending}" for ending in endings
    }
