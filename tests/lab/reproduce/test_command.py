"""The main table: begun, continued, shown beside the paper's, and written to files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine import PreparedCells
from graphrelu.lab.errors import INTERRUPTED
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import PIPED_WIDTH
from tests.lab.fake_engine import invoke

REPOSITORY = Path(__file__).parents[3]
SMALL = ["--datasets", "cora,flickr", "--backbones", "cheb,gcn", "--activations", "relu,grelu"]


def small_graph(name: str, root: object = None) -> Graph:
    labels = torch.arange(1_700) % 3
    edges = torch.zeros(2, 0, dtype=torch.long)
    return Graph(name, torch.ones(1_700, 2), edges, None, labels)


@pytest.fixture(autouse=True)
def _small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", small_graph)


def test_it_continues() -> None:
    def said(runs: int) -> str:
        shown = invoke("reproduce", "node", "--runs", runs, *SMALL, "--out", "node.jsonl")
        assert (shown.exit_code, shown.stderr) == (0, "")
        return shown.stdout

    assert "24 of these 24 runs are in node.jsonl." in said(3)
    for _ in range(2):
        assert "40 of these 40 runs are in node.jsonl." in said(5)
    seeds = [(result.config, result.seed) for result in Record("node.jsonl").read()]
    assert len(seeds) == len(set(seeds)) == 40


def test_ours_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke("reproduce", "node", "--runs", 12, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= PIPED_WIDTH
    shown = " ".join(result.stdout.split())
    assert "GCN GReLU 82.1 ± 1.0 (12) 81.8 ± 1.8 +0.3 +0.8 [+0.8, +0.9] *" in shown
    assert "Cheb GReLU 82.1 ± 1.0 (12) +0.8 [+0.8, +0.9] *" in shown
    written = "Written: results/node.md, results/node.csv, results/node.png, results/node.svg."
    assert shown.endswith(f"96 of these 96 runs are in results/node.jsonl. {written}")
    page, table = tmp_path / "results" / "node.md", tmp_path / "results" / "node.csv"
    text = page.read_text()
    assert "| GCN | GReLU | **82.1 ± 1.0 (12)** | 81.8 ± 1.8 | +0.3 | +0.8 [+0.8, +0.9] * |" in text
    assert "| ReLU | 4 | 0 | 0 | 0 | 4 |" in text
    assert len(table.read_text().splitlines()) == 1 + 8
    page.unlink()
    monkeypatch.setattr(PreparedCells, "train", None)
    assert invoke("reproduce", "node", "--render").stdout.endswith(f"{written}\n")
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("node --datasets flikr", "There is no dataset 'flikr' (did you mean flickr?)"),
        ("node --backbones gcnn", "There is no backbone 'gcnn' (did you mean gcn?)"),
        ("node --activations greul", "There is no activation 'greul' (did you mean grelu?)"),
        ("node --runs 0", "runs must be at least 1, not 0."),
        ("node --device tpu", "There is no device 'tpu'"),
        ("node --engine slurm", "The engine must be local, ray or a number of processes, not"),
        ("node --seconds nan", "seconds must be a positive number, not nan."),
        ("node --out a_file.jsonl", "a_file.jsonl is not a record of runs; choose another file."),
        ("node --out a_file/node.jsonl", "a_file cannot be a folder"),
        ("node --out x.csv", "The name of a record must end in .jsonl, unlike x.csv."),
        ("node --backbones ,", "There are no names in the list ','."),
        ("graph --backbones gat", "There is no backbone 'gat'; choose from gcn, sage, gin."),
        ("graph --datasets cora", "There is no dataset 'cora'; choose from mutag, proteins."),
        ("graph --runs 5", "runs must be at least 10, which choose, not 5."),
    ],
)
def test_bad_input_is_a_one_line_error(arguments: str, expected: str, tmp_path: Path) -> None:
    for name in ("a_file", "a_file.jsonl"):
        (tmp_path / name).write_text("my thesis\n")
    shown = invoke("reproduce", *arguments.split())
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr.count("\n") == 1
    assert expected in shown.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file", "a_file.jsonl"]
    assert (tmp_path / "a_file").read_text() == "my thesis\n"


def test_a_damaged_dataset_is_found_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, root: object = None) -> Graph:
        if name == "flickr":
            raise data.DataError("flickr is damaged.")
        return small_graph(name)

    monkeypatch.setattr(data, "load", load)
    shown = invoke("reproduce", "node", *SMALL)
    assert (shown.exit_code, shown.stderr) == (2, "flickr is damaged.\n")
    assert list(tmp_path.iterdir()) == []


def test_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PreparedCells, "train", interrupted)
    shown = invoke("reproduce", "node", *SMALL)
    assert (shown.exit_code, shown.stderr) == (130, INTERRUPTED + "\n")
