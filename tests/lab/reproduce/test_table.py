"""What the tables of runs have in common: quick runs, full runs, and the committed pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphrelu.lab.record.config import Config
from graphrelu.lab.record.recipes import node_table
from graphrelu.lab.record.results import Record, Result
from graphrelu.lab.reproduce import ablation, segments, structure
from graphrelu.lab.reproduce.command import EXPERIMENTS, experiment
from graphrelu.lab.reproduce.table import Request, Table
from tests.lab.fake_engine import invoke, make_result
from tests.lab.reproduce import test_deep, test_segments, test_strong, test_structure

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_page_is_that_of_the_record(name: str, tmp_path: Path) -> None:
    """Where this fails: graphrelu reproduce NAME --render."""
    record = tmp_path / f"{name}.jsonl"
    if not (RESULTS / record.name).exists():  # no runs yet, and no page without them
        assert not list(RESULTS.glob(f"{name}.*"))
        return
    shutil.copy(RESULTS / record.name, record)
    for path in experiment(name).render(record):
        committed = RESULTS / path.relative_to(tmp_path)
        if path.suffix in (".md", ".csv"):
            assert committed.read_text() == path.read_text()
        else:  # another version of the plotting package draws other bytes
            assert committed.stat().st_size > 1_000


# Name -> made-up runs, the rows of its CSV file, and what its page shows.
MADE_UP: dict[str, tuple[Callable[[], list[Result]], int, list[str]]] = {
    "segments": (
        lambda: test_segments.runs(0.1),
        6,
        [
            "![Accuracy by K, and differences to K = 2](segments.png)",
            "| Cora | 3 | 51.9 ± 1.5 (12) | +0.1 [+0.1, +0.1] = | < 0.001 |",
        ],
    ),
    "structure": (
        test_structure.runs,
        150,
        [
            "![The lead of GReLU-A over GReLU-B](structure.png)",
            "| mirrored | GCN | GReLU-B | better in 15 of 15 comparisons",
            "| plain | GCN | PReLU | better in 0 of 5 comparisons, worse in 5",
            "## Mirrored, SAGE\n",
            "| 4 | 0.25 | 62.3 | 52.8 | 51.8 | 51.8 | 64.4 | +9.5 [+9.",
        ],
    ),
    "strong": (
        lambda: test_strong.made_up({"ReLU": 0.0, "GELU": 0.5, "GReLU": 1.0}),
        3 * 4,
        [
            "below the published mean in 0 of 1 rows; below in Squirrel-GCN (-5.0).",
            "| tuning graphs | GReLU | +0.00 | +0.00 | 0 | 1 | 0 | 0 |",
            "| Squirrel, GCN, 4 layers | 45.0 ± 1.6 | 40.0 ± 0.0 |",
            "![Leads over ReLU by number of layers](strong.png)",
        ],
    ),
    "deep": (
        test_deep.runs,
        2 * 4,
        [
            "| held out | GReLU | 576 | +3.00 | +3.00 | 1 | 0 | 0 | 0 |",
            "| tuning graphs | GReLU over GReLU-B |  | +2.00 | +2.00 | 1 | 0 | 0 | 0 |",
            "| Squirrel, GCN, 4 layers | 50.0 ± 0.0 |",
        ],
    ),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_page_of_made_up_runs(name: str, tmp_path: Path) -> None:
    """A run of another table is left out."""
    made, rows, shown = MADE_UP[name]
    record, results = tmp_path / f"{name}.jsonl", made()
    (config,) = node_table(["cora"], ["cheb"], ["elu"])
    Record(record).append([*results, make_result(config, 0, 0.5)])
    page, table, *figures = experiment(name).render(record)
    text = page.read_text()
    assert f"Made from `{name}.jsonl`: {len(results):,} runs (no device; torch 0).\n\n" in text
    for part in shown:
        assert part in text
    assert "8 layers |" not in text  # a depth of the figure is no row of the table
    assert len(table.read_text().splitlines()) == 1 + rows
    drawn = [] if name in ("deep",) else [".png", ".svg"]
    assert [path.suffix for path in figures] == drawn


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("node", "has no runs of the main table."),
        ("ablation", "has no runs of the ablation."),
        ("segments", "has no runs of GReLU with GCN."),
        ("structure", "has no runs on the generated graphs."),
        ("runtime", "has nothing to draw yet: no line is 'timed'."),
        ("deep", "has no runs of these networks."),
        ("strong", "has no runs of these networks."),
        ("graph", "has no runs of graph classification."),
        ("tuned", "has no runs of the grid."),
    ],
)
def test_no_page_without_runs(name: str, sentence: str, tmp_path: Path) -> None:
    """A run of another experiment is none of this one."""
    record = tmp_path / "x.jsonl"
    (config,) = node_table(["cora"], ["cheb"], ["elu"])
    Record(record).append([make_result(replace(config, lr=0.5), 0, 0.5)])
    render = experiment(name).render
    with pytest.raises(ValueError, match=rf"x\.jsonl {re.escape(sentence)}$"):
        render(record)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("segments", 6),
        ("structure", 20),
        ("ablation", 11),
        ("node", 36),
        ("tuned", 48),
        ("deep", 18),
        ("strong", 6),
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
    has_figure = name in ("segments", "structure")
    assert (f": see {name}.png." in shown.stdout) == has_figure
    endings = ("md", "csv", "png", "svg") if has_figure else ("md", "csv")
    assert {path.name for path in (tmp_path / "results" / "quick").glob(f"{name}.[mcps]*")} == {
        f"{name}.{ending}" for ending in endings
    }


@pytest.mark.parametrize(
    ("name", "table", "runs"),
    [
        ("ablation", ablation.TABLE, "330"),
        ("segments", segments.TABLE, "540"),
        ("structure", structure.TABLE, "4,500"),
    ],
    ids=["ablation", "segments", "structure"],
)
def test_full_run_has_every_cell(
    name: str, table: Table, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Config] = []
    train = "graphrelu.lab.reproduce.table.train_missing"

    def note(runs: dict[Config, range], request: Request) -> tuple[int, int]:
        asked.extend(runs)
        return 0, sum(map(len, runs.values()))

    monkeypatch.setattr(train, note)
    chosen = experiment(name)
    said = chosen.collect(Request(chosen.runs, tmp_path / "a.jsonl"))
    assert said.startswith(f"0 of these {runs} runs are in ")
    assert asked == list(table.wanted().values())
