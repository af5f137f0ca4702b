"""Looks inside of models: trained or saved, kept and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrelu.lab.data import load
from graphrelu.lab.engine import prepare_inputs
from graphrelu.lab.engine.train import build
from graphrelu.lab.record.recipes import recipe
from graphrelu.lab.render import pieces
from graphrelu.lab.reproduce import command, inspection
from tests.lab.fake_engine import invoke


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GRAPHRELU_DATA", raising=False)
    monkeypatch.setattr("graphrelu.lab.reproduce.experiment.QUICK_EPOCHS", 12)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models as ``graphrelu compare --save`` keeps them, GReLU off its start; and other files."""
    folder = tmp_path_factory.mktemp("models")
    graph = load("digits")
    for name, dataset, activation in (
        ("good", "digits", "grelu"),
        ("other", "cora", "grelu"),
        ("relu", "digits", "relu"),
    ):
        config = recipe(dataset, "other", "gcn", activation, hidden=5)
        state = build(config, graph, 3).state_dict()
        if activation == "grelu":
            state["acts.0.channel_mlp.bias"].normal_(std=0.1)
        content = {"config": config.to_dict(), "seed": 3, "state_dict": state}
        torch.save(content, folder / f"{name}.pt")
    content["config"] = recipe("digits", "other", "gcn", "grelu", hidden=9).to_dict()
    torch.save(content, folder / "wide.pt")
    (folder / "text.pt").write_text("my thesis\n")
    (folder / "text.jsonl").write_text("my thesis\n")
    return folder


def test_a_saved_model(folder: Path, models: Path) -> None:
    saved = models / "good.pt"
    arguments = ["digits", "--model", saved, "--pairs", 40, "--device", "cpu"]
    shown = invoke("inspect", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "Shares of 40 functions" in shown.stdout
    prefix = folder / "results" / "quick" / "inspect-digits"
    for ending in (".jsonl", ".md", ".csv", ".png", ".svg"):
        assert prefix.with_suffix(ending).stat().st_size > 0
    (entry,) = inspection.record_of(prefix.with_suffix(".jsonl")).read()
    assert (entry["seed"], entry["pairs"], entry["config"]["hidden"]) == (3, 40, 5)
    assert entry.keys() >= {"device", "versions", "commit", "date"}

    # What is on record is what the module applies.
    graph = load("digits")
    config = recipe("digits", "other", "gcn", "grelu", hidden=5)
    model = build(config, graph, 3).eval()
    model.load_state_dict(torch.load(saved)["state_dict"])
    inputs = prepare_inputs(config, graph, torch.device("cpu"))
    captured: list[torch.Tensor] = []
    model.acts[0].register_forward_hook(lambda act, args, out: captured.extend((args[0], out)))
    with torch.no_grad():
        model(inputs)
    x, out = (part.numpy() for part in captured)
    slopes, intercepts, low, high = inspection.functions(entry)
    nodes, channels = entry["node"], entry["channel"]
    assert len(set(zip(nodes, channels, strict=True))) == 40
    given = x[nodes, channels][:, None]
    expected = out[nodes, channels]
    np.testing.assert_allclose(
        pieces.values(slopes, intercepts, given)[:, 0], expected, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(low, np.quantile(x, 0.01, axis=0)[channels], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(high, np.quantile(x, 0.99, axis=0)[channels], rtol=1e-4, atol=1e-5)
    degree = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes)
    assert entry["degree"] == degree.tolist()
    assert len(entry["gamma"]) == len(entry["pagerank"]) == graph.num_nodes

    before = prefix.with_suffix(".jsonl").read_bytes()
    assert invoke("inspect", *arguments).exit_code == 0
    assert prefix.with_suffix(".jsonl").read_bytes() == before


def test_both_command_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", "--quick", "--runs", "2", "--device", "cpu"]
    assert command.main([*arguments, "--seconds", "1e-9"]) == 0
    said, last = capsys.readouterr().out.splitlines()
    assert said.startswith("This takes about ")
    assert last.startswith("0 of these 2 models are in ")
    assert command.main(arguments) == 0
    record = folder / "results" / "quick" / "inspect.jsonl"
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"2 of these 2 models are in {record.relative_to(folder)}."
    before = record.read_bytes()
    shown = invoke("reproduce", *arguments)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert record.read_bytes() == before  # trained once
    entries = inspection.record_of(record).read()
    assert [entry["seed"] for entry in entries] == [0, 1]
    assert entries[0]["slopes"] != entries[1]["slopes"]
    assert entries[0]["config"]["epochs"] == 12
    written = {path.name for path in record.parent.iterdir() if path.suffix != ".lock"}
    endings = ("jsonl", "md", "csv", "png", "svg")
    assert written == {f"inspect.{ending}" for ending in endings} | {
        "schematic.png",
        "schematic.svg",
    }
    rows = record.with_suffix(".csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * len(pieces.NAMES)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["digit"], "There is no dataset 'digit' (did you mean digits?)"),
        (["--model", "gone.pt"], "There is no file gone.pt."),
        (["--model", "text.pt"], "text.pt is not a model saved by graphrelu compare --save."),
        (["--model", "other.pt"], "other.pt is a model of cora, not of digits."),
        (["--model", "relu.pt"], "relu.pt is a model with relu, not with grelu."),
        (["--model", "wide.pt"], "The parameters in wide.pt do not fit its configuration."),
        (["--model", "good.pt", "--seed", "1"], "A saved model has its own backbone and seed"),
        (["--model", "good.pt", "--pairs", "9999"], "pairs must be from 1 to 8,985"),
        (["--model", "good.pt", "--pairs", "0"], "pairs must be from 1 to 8,985"),
        (["--backbone", "gcnn"], "There is no backbone 'gcnn' (did you mean gcn?)"),
        (["--device", "tpu"], "There is no device 'tpu'"),
        (["--out", "text"], "text.jsonl is not a record of runs; choose another file."),
    ],
)
def test_bad_input_costs_one_sentence(
    arguments: list[str], expected: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    before = sorted(models.iterdir())
    shown = invoke("inspect", *arguments)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert shown.stderr.count("\n") == 1
    assert expected in shown.stderr
    assert sorted(models.iterdir()) == before


def entry(**changes: Any) -> dict[str, Any]:
    """Ten hand-made functions: five increasing, two flat, one decreasing, two as ReLU."""
    slopes = [[1.0, 0.5]] * 5 + [[0.0, 0.01]] * 2 + [[-1.0, -2.0]] + [[1.0, 0.0]] * 2
    return {
        "dataset": "citeseer",
        "config": {"backbone": "gcn"},
        "seed": 0,
        "pairs": 10,
        "model": None,
        "slopes": slopes,
        "intercepts": [[0.0, 0.0]] * 10,
        "low": [-1.0] * 10,
        "high": [1.0] * 10,
        "gamma": [0.1, 0.2, 0.3, 0.4],
        "degree": [4.0, 3.0, 2.0, 1.0],
        "pagerank": [0.1, 0.1, 0.1, 0.1],
        "device": "no device",
        "versions": {"torch": "0"},
        "key": "a",
        "alpha": 0.1,
        "commit": None,
        "date": "2026-11-01",
    } | changes


def test_the_page() -> None:
    entries = [entry(), entry(seed=1, slopes=[[1.0, 1.0]] * 10)]
    (page,) = inspection.page_of(entries, Path("x.jsonl"))
    for line in (
        "# Inside GReLU: CiteSeer, GCN",
        "| shape | seed 0 | seed 1 |",
        "| **increasing** | 50.0 | 100.0 |",
        "| **flat** | 20.0 | 0.0 |",
        "| **decreasing** | 10.0 | 0.0 |",
        "| **mixed** | 20.0 | 0.0 |",
        "| flat, then increasing | 20.0 | 0.0 |",
        "| seed 0 | 0.100 | 0.115 | 0.250 | 0.385 | 0.400 | -1.00 | constant |",
    ):
        assert line in page.splitlines()
    shares = [row["share"] for row in inspection.rows_of(entry())]
    assert shares == [0.5, 0.2, 0.1, 0.2, 0.0, 0.0]


def test_the_newest_models_are_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = inspection.record_of(folder / "record.jsonl")
    record.append([entry(key="old"), entry(key="new"), entry(key="new", seed=1)])
    drawn: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(inspection, "write", lambda entries, path: drawn.append(entries) or [])
    schematic = [folder / "schematic.png", folder / "schematic.svg"]
    assert inspection.render(record.path) == schematic
    assert [(e["key"], e["seed"]) for e in drawn[0]] == [("new", 0), ("new", 1)]
