"""The main table: begun, continued, shown beside the paper's, and written to files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import terminal
from graphrelu.lab.reproduce import command
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke

REPOSITORY = Path(__file__).parents[3]
SMALL = ["--datasets", "cora,flickr", "--backbones", "cheb,gcn", "--activations", "relu,grelu"]


def small_graph(name: str, root: object = None) -> Graph:
    labels = torch.arange(1_700) % 3
    edges = torch.zeros(2, 0, dtype=torch.long)
    return Graph(name, torch.ones(1_700, 2), edges, None, labels, num_classes=3)


@pytest.fixture(autouse=True)
def _nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_engine.only_fakes(tmp_path, monkeypatch)
    monkeypatch.setattr(data, "load", small_graph)


def test_it_continues() -> None:
    def said(runs: int) -> str:
        arguments = ("node", "--runs", runs, *SMALL, "--out", "node.jsonl")
        return str(invoke("reproduce", *arguments).stdout)

    assert "24 of these 24 runs are in node.jsonl." in said(3)
    assert "40 of these 40 runs are in node.jsonl." in said(5)
    before = Path("node.jsonl").read_bytes()
    assert "40 of these 40 runs are in node.jsonl." in said(5)
    assert Path("node.jsonl").read_bytes() == before
    seeds = [(result.config, result.seed) for result in Record("node.jsonl").read()]
    assert len(seeds) == len(set(seeds)) == 40


def test_it_begins_nothing_after_the_deadline() -> None:
    assert invoke("reproduce", "node", *SMALL, "--seconds", 1e-9).stdout == (
        "0 of these 80 runs are in results/node.jsonl; the same command continues.\n"
    )


def test_runs_for_another_machine() -> None:
    """Those that are missing, with their graphs; nothing is trained here."""
    invoke("reproduce", "node", "--runs", 1, *SMALL)
    arguments = ("reproduce", "node", "--runs", 3, *SMALL, "--prepare", "runs.pt")
    said = invoke(*arguments)
    assert (said.exit_code, said.stderr) == (0, "")
    assert "16 missing runs are in runs.pt. Train them with: python -m" in said.stdout
    content = torch.load("runs.pt", weights_only=True)
    assert sorted(content["graphs"]) == ["cora", "flickr"]
    assert [seeds for _, seeds in content["cells"]] == [[1, 2]] * 8
    assert len(Record("results/node.jsonl").read()) == 8


def test_typer_shows_ours_beside_the_papers(tmp_path: Path) -> None:
    result = invoke("reproduce", "node", "--runs", 12, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= terminal.PIPED_WIDTH
    shown = " ".join(result.stdout.split())
    assert "GCN GReLU 82.1 ± 1.0 (12) 81.8 ± 1.8 +0.3 +0.8 [+0.8, +0.9] *" in shown
    assert "Cheb GReLU 82.1 ± 1.0 (12) +0.8 [+0.8, +0.9] *" in shown
    assert "ReLU 4 0 0 0 4" in shown
    assert shown.endswith(
        "96 of these 96 runs are in results/node.jsonl. Written: results/node.md, results/node.csv."
    )
    few = invoke("reproduce", "node", "--runs", 3, *SMALL, "--out", "few.jsonl")
    assert "Nothing in this table is decided" in " ".join(few.stdout.split())


NOT_WHOLE = "hidden must be whole numbers, separated by commas, not '16,wide'."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("node --datasets flikr", "There is no dataset 'flikr' (did you mean flickr?)"),
        ("node --datasets digits", "There is no dataset 'digits'"),
        ("node --backbones gcnn", "There is no backbone 'gcnn' (did you mean gcn?)"),
        ("node --activations greul", "There is no activation 'greul' (did you mean grelu?)"),
        ("node --runs 0", "runs must be a whole number from 1, not 0."),
        ("node --device tpu", "There is no device 'tpu'"),
        ("node --seconds nan", "seconds must be a positive number, not nan."),
        ("node --out a_file.jsonl", "a_file.jsonl is not a record of runs; choose another file."),
        ("node --out a_file/node.jsonl", "a_file cannot be a folder"),
        ("node --out x.csv", "The name of a record must end in .jsonl, unlike x.csv."),
        ("node --tuned --backbones sgc", "There is no backbone 'sgc'"),
        ("node --tuned --backbones ,", "There is no name in the list ','."),
        ("node --tuned --activations greul", "There is no activation 'greul'"),
        ("node --tuned --runs 0", "runs must be a whole number from 1, not 0."),
        ("graph --hidden 16,wide", NOT_WHOLE),
        ("graph --backbones gat", "There is no backbone for sets of graphs 'gat'; known are"),
        (
            "graph --datasets cora",
            "There is no set of graphs 'cora'; known are digit-graphs, mutag",
        ),
        ("graph --protocols gin_papers", "There is no protocol 'gin_papers' (did you mean gin_pap"),
        ("graph --repeats -1", "repeats must be a whole number from 0, not -1."),
    ],
)
def test_bad_input_costs_one_sentence(
    arguments: str,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("a_file", "a_file.jsonl"):
        (tmp_path / name).write_text("my thesis\n")
    assert fake_engine.reproduce(arguments.split()) == 2
    plain = capsys.readouterr()
    typed = invoke("reproduce", *arguments.split())
    assert typed.exit_code == 2
    assert plain.err == typed.stderr
    assert plain.out == typed.stdout == ""
    assert plain.err.count("\n") == 1
    assert expected in plain.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a_file", "a_file.jsonl"]
    assert (tmp_path / "a_file").read_text() == "my thesis\n"


def test_a_damaged_dataset_is_found_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str, root: object = None) -> Graph:
        if name == "flickr":
            raise data.DataError("flickr is damaged.")
        return small_graph(name)

    monkeypatch.setattr(data, "load", load)
    assert fake_engine.reproduce(["node", *SMALL]) == 2
    assert capsys.readouterr().err == "flickr is damaged.\n"
    assert list(tmp_path.iterdir()) == []


def test_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_engine, "run", interrupted)
    assert fake_engine.reproduce(["node", *SMALL]) == 130
    assert capsys.readouterr().err == command.INTERRUPTED + "\n"


def test_lists_of_names() -> None:
    assert command.names(" Cora,,citeseer, cora") == ["cora", "citeseer"]
