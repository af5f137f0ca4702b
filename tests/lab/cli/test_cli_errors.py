"""Whatever is wrong costs one sentence, and nothing is written."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import graphrelu.lab
from graphrelu.lab import cli
from graphrelu.lab.engine import PreparedCells
from graphrelu.lab.record.results import Record
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke

pytestmark = pytest.mark.usefixtures("folder")
Tree = Callable[[Path], dict[str, tuple[int, int]]]


BAD = {
    "dataset": (["digit"], "There is no dataset 'digit' (did you mean digits?)"),
    "backbone": (["--backbone", "gcnn"], "There is no backbone 'gcnn' (did you mean gcn?)"),
    "no activation": (["--activations", " ,"], "There are no names in the list ' ,'."),
    "no runs": (["--runs", 0], "runs must be at least 1, not 0."),
    "negative margin": (
        ["--margin", -0.5],
        "margin must be a finite number of at least 0, not -0.5.",
    ),
    "undecidable": (
        ["--until-decided", "--activations", "relu,elu"],
        "until-decided needs relu and grelu among the activations.",
    ),
    "device": (["--device", "tpu"], "There is no device 'tpu'"),
    "metric": (["--metric", "auc"], "There is no metric 'auc' (did you mean rocauc?)"),
    "split": (["--split", "mask"], "There is no split 'mask' (did you mean masks?)"),
    "no deep sgc": (["--backbone", "sgc"], "There is no backbone 'sgc'"),
    "norm": (["--norm", "batches"], "There is no norm 'batches' (did you mean batch?)"),
    "layers": (["--layers", 0], "layers must be at least 1, got 0."),
    "heads": (["--backbone", "gat", "--hidden", 12], "must be a multiple of heads (8), got 12."),
    "patience of graphs": (
        ["mutag", "--patience", 3],
        "a set of graphs, which takes no --patience.",
    ),
    "pooling of a graph": (["--pooling", "sum"], "digits is one graph, which takes no --pooling."),
    "backbone of graphs": (["graphs:x.pt", "--backbone", "cheb"], "for sets of graphs 'cheb'"),
    "metric of labels": (
        ["several.pt", "--metric", "r2"],
        "The metric r2 does not fit several.pt, whose y holds labels, any number at "
        "once; choose from rocauc, f1, ap, accuracy.",
    ),
    "corrupt file": (["corrupt.npz"], "corrupt.npz cannot be read as an .npz file"),
    "missing raw files": (["cora"], "There is no network."),
    "json in a file": (["--json", "a_file/x.json"], "a_file cannot be a folder, as it is a file."),
    "json is a folder": (["--json", "a_folder"], "a_folder cannot be written"),
    "out in a file": (["--out", "a_file/deep/x.jsonl"], "a_file/deep cannot be a folder, as "),
    "report is a text": (["--report", "x.txt"], "name of a page must end in .html, unlike x.txt."),
    "json is out": (
        ["--json", "x", "--out", "./x"],
        "The record, the summary and the page must be different files.",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_costs_one_sentence(case: str, folder: Path, ring: Data, tree: Tree) -> None:
    arguments, expected = BAD[case]
    (folder / "a_file").write_text("my thesis\n")
    (folder / "a_folder").mkdir()
    (folder / "corrupt.npz").write_bytes(b"PK\x03\x04 and no more")
    raw = folder / "data" / "Planetoid" / "CiteSeer" / "raw"
    raw.mkdir(parents=True)
    (raw / "ind.citeseer.x").write_bytes(b"truncated")
    ring.y = torch.eye(12, 2)
    torch.save(ring, folder / "several.pt")
    before = tree(folder)
    result = invoke("compare", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith(".\n")
    assert expected in result.stderr
    assert "Traceback" not in result.output
    assert tree(folder) == before


def test_misuse_costs_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    misused = (["--runs", "ten"], ["--run", "10"], ["--margin", "half"])
    for arguments in (*(["compare", *options] for options in misused), ["compair"]):
        assert cli.run(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert printed.err[-3:-1].strip("?.") != ""  # one mark at the end
    for arguments in ([], ["reproduce"]):
        cli.run(arguments)
        printed = capsys.readouterr()
        assert "Example: graphrelu" in printed.out
        assert printed.err == ""


@pytest.mark.parametrize("out", [(), ("--out", "r.jsonl")])
def test_interruption(out: tuple[str, ...], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that were finished by then are kept, and the sentence says how to go on."""

    def interrupted(cells: Any, batch: Any, *rest: Any) -> Any:
        if batch.config.activation == "prelu":  # after ReLU; before come a few epochs of GReLU
            raise KeyboardInterrupt
        return fake_engine.train(cells, batch, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(PreparedCells, "train", interrupted)
        result = invoke("compare", "--runs", 3, *out)
    assert (result.exit_code, result.stderr.count("\n")) == (130, 1)
    if out:
        assert result.stderr.startswith("Interrupted; repeat the command")
        return
    said, command = result.stderr.strip().split(": ", 1)
    assert said == "Interrupted; continue with"
    (record,) = cache.rglob("runs.jsonl")
    assert len(Record(record).read()) == 3
    result = invoke(*shlex.split(command)[1:])
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(Record(record).read()) == 6 * 3


def test_a_disk_that_fails_costs_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr("os.replace", full)
    result = invoke("compare", "--runs", 1, "--json", "a.json")
    assert (result.exit_code, result.stderr) == (2, "a.json: No space left on device.\n")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("package", ["typer", "scipy", "sklearn", "pandas"])
def test_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as stopped:
        graphrelu.lab.main()
    assert stopped.value.code == 2
    expected = f'The command line needs {package}: pip install "graphrelu[lab]".\n'
    assert capsys.readouterr().err == expected
    with pytest.raises(ImportError) as raised:
        graphrelu.lab.compare  # noqa: B018
    assert str(raised.value) == expected.replace("The command line", "graphrelu.lab.compare")[:-1]


def test_the_command_itself(folder: Path) -> None:
    """In a process of its own: imports are as quiet as the error."""
    command = [sys.executable, "-m", "graphrelu.lab", "compare", "digit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("There is no dataset 'digit' (did you mean digits?)")
    assert done.stderr.count("\n") == 1


def test_ray_may_be_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = invoke("reproduce", "node", "--engine", "ray")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == 'This needs ray: pip install "graphrelu[ray]".\n'
