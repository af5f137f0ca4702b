"""The command line: what it prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import Result

from graphrelu import __version__
from graphrelu.lab import cli
from graphrelu.lab.record.config import CONSTANTS
from graphrelu.lab.record.results import Record
from graphrelu.lab.render import PIPED_WIDTH
from graphrelu.lab.reproduce.command import EXPERIMENTS
from tests.lab import fake_engine
from tests.lab.fake_engine import invoke

pytestmark = pytest.mark.usefixtures("folder")
ODD = "мои данные ü 'x' $HOME & 100 %"  # spaces, quotes, other alphabets


def text(result: Result) -> str:
    """The output, in one line."""
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return " ".join(result.stdout.split())


def test_compare_prints_a_table_and_a_verdict(folder: Path) -> None:
    result = invoke("compare", "digits")
    shown = text(result)
    assert shown.startswith(
        "digits: 1,797 nodes, 24,678 edges, 64 features, 10 classes GCN: 4 layers of 64 hidden "
        "units, layer norm, linear skips, dropout 0.2"
    )
    assert "Split: 20 nodes per class for training, 500 for validation, 1,000 for testing" in shown
    assert "10 runs of each activation, random split, test accuracy in percent" in shown
    lines = result.stdout.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("activation"))
    titles = " ".join(lines[head].split())
    assert titles == "activation mean std runs difference to ReLU verdict"
    table = [line.split() for line in lines[head + 2 : head + 8]]
    assert [cells[0] for cells in table] == ["ReLU", "PReLU", "Maxout", "GELU", "SiLU", "GReLU"]
    assert " ".join(table[0]) == "ReLU 81.4 1.0 10 - -"
    assert " ".join(table[5]) == "GReLU 82.2 1.1 10 +0.8 [+0.8, +0.9] better"
    titles = " ".join(lines[head + 9].split())
    assert titles == "activation test loss ECE s per epoch parameters"
    assert " ".join(lines[head + 11].split()) == "ReLU 0.700 5.0 0.010 1,000"
    assert max(map(len, lines[head : head + 17])) < 80
    assert table[4][4:9] == ["-0.2", "[-0.2,", "-0.2]", "no", "difference"]
    assert "GReLU is better than ReLU here (+0.8 [+0.8, +0.9] points over 10 seeds)." in shown
    assert list(folder.iterdir()) == []
    assert "\x1b" not in result.output  # as it is no terminal
    short = [line for line in lines if not line.startswith("Runs: ")]
    assert max(map(len, short)) <= PIPED_WIDTH


def test_json_holds_everything(folder: Path) -> None:
    invoke("compare", "--runs", 3, "--activations", "relu,grelu", "--json", "new/a.json")
    content = json.loads((folder / "new" / "a.json").read_text(), parse_constant=pytest.fail)
    assert [path.name for path in (folder / "new").iterdir()] == ["a.json"]
    assert [row["activation"] for row in content["rows"]] == ["relu", "grelu"]
    assert content["rows"][1]["over_relu"]["n"] == 3
    scores = [(run["activation"], run["seed"], run["score"]) for run in content["runs"]]
    names = [(name, seed) for name in ("relu", "grelu") for seed in range(3)]
    assert scores == [(*run, fake_engine.score(*run)) for run in names]
    assert content["runs"][0]["val_loss"] is None
    assert content["configs"]["grelu"]["hidden"] == 64
    assert content["versions"]["graphrelu"] == __version__
    assert content["verdict"].endswith("; 10 seeds give an interval.")
    assert content["next"].startswith("graphrelu compare digits --backbone gcn --activations relu")
    assert content["rows"][1]["price"]["parameters"] == 1_000
    assert content["split"].startswith("20 nodes per class")


def noisy(activation: str, seed: int) -> float:
    """GReLU is a point ahead, or two behind: 20 seeds do not decide it, 40 do."""
    return 0.8 + (activation == "grelu") * (0.01 if seed % 3 else -0.02 + 0.0036)


def test_seeds_are_added_until_it_is_decided(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("compare", "--activations", "relu,grelu", "--until-decided")
    shown = text(invoke(*command, "--json", "a.json"))
    assert "80 runs of each activation at most, until GReLU is decided" in shown
    assert "points over 10 seeds" in shown

    monkeypatch.setattr(fake_engine, "score", noisy)
    decided = invoke(*command, "--margin", 1, "--out", "runs.jsonl").stdout
    seeds = sorted({run.seed for run in Record(folder / "runs.jsonl").read()})
    assert seeds in (list(range(20)), list(range(40)))
    looked = (json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines())
    counted = [one["pairs"]["grelu"] for one in looked if one["event"] == "looked" and one["pairs"]]
    assert counted == ["0-9", "0-19", "0-39"][: 1 + len(seeds) // 20]
    assert f"points over {len(seeds)} seeds, all of it within 1)" in " ".join(decided.split())
    # The same command trains nothing, and more seeds on record change nothing.
    invoke("compare", "--activations", "relu,grelu", "--runs", 80, "--out", "runs.jsonl")
    assert len(Record(folder / "runs.jsonl").read()) == 2 * 80
    assert invoke(*command, "--margin", 1, "--out", "runs.jsonl").stdout == decided
    # Where it is not decided, all runs are used.
    assert "undecided" in text(invoke(*command, "--margin", 0.01, "--runs", 30))


def test_settings_hold_for_every_activation(folder: Path) -> None:
    options = "--hidden 8 --epochs 7 --lr 0.5 --weight-decay 0 --dropout 0.1 --metric F1 --layers 2"
    options += " --norm none --no-residual --patience 3 --split full"
    options += " --backbone gin --activations relu,silu,grelu"
    shown = text(invoke("compare", *options.split(), "--json", "a.json"))
    assert "GIN: 2 layers of 8 hidden units, dropout 0.1, learning rate 0.5" in shown
    assert "test macro F1 in percent" in shown
    assert "Split: 60 / 20 / 20 % of every class, at random." in shown
    configs = json.loads((folder / "a.json").read_text())["configs"]
    config = configs["silu"]
    network = {"layers": 2, "norm": None, "residual": False, "linear_first": False}
    assert config["backbone_options"] == network
    assert (config["patience"], config["epochs"], config["select"]) == (3, 7, "score")
    for name, own in configs.items():
        assert own.pop("activation") == name
        assert own.pop("activation_options") == (CONSTANTS if name == "grelu" else {})
    assert all(own == configs["relu"] for own in configs.values())


def test_ones_own_file(folder: Path, ring: Data, make_npz: Callable[..., Path]) -> None:
    shown = text(invoke("compare", make_npz(), "--json", "a.json"))
    assert "ring.npz: 12 nodes, 24 edges, 3 features, 2 classes" in shown
    assert "Split: 48 / 32 / 20 % of every class, as the graph is too small for 20" in shown
    first = json.loads((folder / "a.json").read_text())
    invoke("compare", make_npz(x=torch.eye(12, 3).numpy()), "--json", "a.json")
    second = json.loads((folder / "a.json").read_text())
    # A record never mixes two versions of a file.
    assert first["dataset"].startswith("ring.npz@")
    assert first["dataset"] != second["dataset"]

    for number, part in enumerate(("train", "val", "test")):
        mask = torch.arange(12) % 3 == number
        setattr(ring, f"{part}_mask", torch.stack([mask, mask.roll(1)], dim=1))
    torch.save(ring, folder / "ring.pt")
    shown = text(invoke("compare", "ring.pt", "--runs", 4))
    assert "masks split, test area under the ROC curve" in shown
    assert "over seeds of 2 splits; nothing is said about other splits" in shown


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_odd_paths(folder: Path, make_npz: Callable[..., Path], ring: Data, ending: str) -> None:
    path = make_npz(f"{ODD}/{ODD}.npz").with_suffix(f".{ending}")
    if ending == "pt":
        torch.save(ring, path)
    out, page, json = (folder / ODD / f"out {ODD}.{kind}" for kind in ("jsonl", "html", "json"))
    files = ("--out", out, "--report", page, "--json", json)
    result = invoke("compare", path, "--runs", 2, "--activations", "relu,grelu", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert all(file.stat().st_size > 0 for file in (out, page, json))
    result = invoke("report", out, "--out", page)
    assert (result.exit_code, result.stderr) == (0, "")


def test_version_and_help() -> None:
    assert invoke("--version").stdout == f"graphrelu {__version__}\n"
    for name, what in cli.COMMANDS.items():  # said twice, as the list of commands imports none
        assert what in text(invoke(name, "--help"))
    commands = [[], *([name] for name in cli.COMMANDS)]
    for command in (*commands, *(["reproduce", name] for name in EXPERIMENTS)):
        shown = text(invoke(*command, "--help"))
        assert f"Example: graphrelu {' '.join(command)}".strip() in shown


def test_help_of_compare_fits_on_two_screens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.run(["compare", "--help"]) == 0
    assert 40 < len(capsys.readouterr().out.splitlines()) <= 52
