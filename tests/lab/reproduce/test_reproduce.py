"""The main table: begun, continued, shown beside the paper's, and written to files."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest
import torch

from graphrelu.lab import data
from graphrelu.lab.data.graph import Graph
from graphrelu.lab.engine.batch_lines import spans
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


def test_one_line_for_each_batch_and_it_continues(capsys: pytest.CaptureFixture[str]) -> None:
    def lines(runs: int) -> list[str]:
        assert command.main(["node", "--runs", str(runs), *SMALL, "--out", "node.jsonl"]) == 0
        return capsys.readouterr().out.splitlines()

    *batches, last = lines(3)
    cells = product(("cora", "flickr"), ("cheb", "gcn"), (("relu", "80.7"), ("grelu", "81.5")))
    assert [line.rpartition(",")[0] for line in batches] == [
        f"[{3 * i}/24] {dataset} {backbone} {name}, seeds 0-2: {score} %"
        for i, (dataset, backbone, (name, score)) in enumerate(cells, start=1)
    ]
    assert last == "24 of these 24 runs are in node.jsonl."
    more = lines(5)
    assert len(more) == 9
    assert more[0].startswith("[26/40] cora cheb relu, seeds 3-4: ")
    assert lines(5) == ["40 of these 40 runs are in node.jsonl."]
    seeds = [(result.config, result.seed) for result in Record("node.jsonl").read()]
    assert len(seeds) == len(set(seeds)) == 40


def test_it_begins_nothing_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    times = iter([began] * 2 + [began + 5] * 100)
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    assert command.main(["node", *SMALL, "--seconds", "1"]) == 0
    assert capsys.readouterr().out == (
        "0 of these 80 runs are in results/node.jsonl; the same command continues.\n"
    )


def test_tables_from_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["node", "--runs", "12", *SMALL]) == 0
    fake_run, fake_engine.run = fake_engine.run, None  # type: ignore[assignment]
    try:
        assert command.main(["node", "--render"]) == 0
    finally:
        fake_engine.run = fake_run
    assert capsys.readouterr().out.endswith("Written: results/node.md results/node.csv\n")
    page = (tmp_path / "results" / "node.md").read_text()
    assert "Made from `node.jsonl`: 96 runs (no device; torch 0)." in page
    assert "| ReLU | 4 | 0 | 0 | 0 | 4 |" in page
    assert "In 0 of 2 cells of ReLU, LReLU, ELU, PReLU on the citation graphs" in page
    assert "| GCN | GReLU | **82.1 ± 1.0 (12)** | 81.8 ± 1.8 | +0.3 | +0.8 [+0.8, +0.9] * |" in page
    assert len((tmp_path / "results" / "node.csv").read_text().splitlines()) == 1 + 8


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
    assert command.main(arguments.split()) == 2
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
    assert command.main(["node", *SMALL]) == 2
    assert capsys.readouterr().err == "flickr is damaged.\n"
    assert list(tmp_path.iterdir()) == []


def test_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake_engine, "run", interrupted)
    assert command.main(["node", *SMALL]) == 130
    assert capsys.readouterr().err == command.INTERRUPTED + "\n"


@pytest.mark.parametrize("name", command.COMMANDS)
def test_both_command_lines_have_the_same_options(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([name, "--help"])
    plain = capsys.readouterr().out
    typed = invoke("reproduce", name, "--help").stdout
    for option in command.options_of(name):
        assert f" --{option.name} " in plain
        assert f" --{option.name} " in typed


def test_seeds_in_short() -> None:
    assert spans([0, 1, 2, 5, 8, 9]) == "0-2, 5, 8-9"
    assert command.names(" Cora,,citeseer, cora") == ["cora", "citeseer"]
