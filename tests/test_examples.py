"""The examples run, in a short form."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

from graphrelu import convert
from scripts import picture

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_molecules(capsys: pytest.CaptureFixture[str]) -> None:
    load("molecules").main(seeds=2, epochs=3)
    *seeds, relu, grelu = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in (*seeds, relu, grelu)] == ["ReLU", "GReLU"] * 3
    found = [float(line.split("error ")[1].split(" ")[0]) for line in (relu, grelu)]
    assert found[0] != found[1]
    assert max(found) < 1.7  # that of the mean of all molecules


def test_digits(capsys: pytest.CaptureFixture[str]) -> None:
    load("minibatch").main(epochs=20)
    assert float(capsys.readouterr().out.split()[-2]) > 85


def test_tour(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells run in order, with fewer epochs, and its saved outputs are theirs."""
    monkeypatch.syspath_prepend(EXAMPLES)
    figures: list[Any] = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()) or plt.close())
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    printed = []
    for cell in code:
        exec("".join(cell["source"]).replace("epochs = 40", "epochs = 2"), names)
        printed.append(capsys.readouterr().out)
    saved = ["".join("".join(out.get("text", "")) for out in cell["outputs"]) for cell in code]
    assert printed[0] == saved[0]
    sizes = [re.findall(r"[\d,]+ parameters", text) for text in (printed[3], saved[3])]
    assert sizes[0] == sizes[1] != []
    images = [out for cell in code for out in cell["outputs"] if "image/png" in out.get("data", {})]
    assert len(figures) == len(images) == 2


def test_picture_of_a_fresh_layer_is_relu() -> None:
    example = load("molecules")
    molecules = example.read_molecules()[:3]
    model = convert(example.GCN(molecules[0].num_features)).eval()
    x = torch.linspace(-2, 2, 5)
    found = [picture.curves(own, x) for own in picture.functions(model, molecules)]
    for molecule, own in zip(molecules, found, strict=True):
        assert torch.equal(own, x.relu().view(1, -1, 1).expand(molecule.num_nodes, 5, 64))
    plt.close(picture.draw(model, molecules))
