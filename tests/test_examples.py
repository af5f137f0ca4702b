"""The examples run, in a short form."""

import importlib.util
import json
import re
import subprocess
import sys
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


def accuracies(lines: list[str]) -> list[float]:
    return [float(line.split("accuracy ")[1].split(" ")[0]) for line in lines if "accuracy" in line]


def test_molecules(capsys: pytest.CaptureFixture[str]) -> None:
    load("molecules").main(seeds=2, epochs=3)
    *seeds, relu, grelu = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in (*seeds, relu, grelu)] == ["ReLU", "GReLU"] * 3
    found = [float(line.split("error ")[1].split(" ")[0]) for line in (relu, grelu)]
    assert found[0] != found[1]
    assert max(found) < 1.7  # that of the mean of all molecules


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # Lightning's
@pytest.mark.parametrize("example", ["minibatch", "lightning"])
def test_digits(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(example).main(epochs=20)
    assert accuracies(capsys.readouterr().out.splitlines())[-1] > 85


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


SMALL = ["--nodes", "4000", "--edges", "40000", "--parts", "8", "--save-every", "3"]


def test_distributed_goes_on_after_a_death(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    script = [str(EXAMPLES / "distributed.py"), *SMALL, "--checkpoint", str(checkpoint)]
    done = subprocess.run(
        [sys.executable, *launcher, "--max-restarts=1", *script, "--fail-at-step=5"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert "continues after step 3 of 8" in done.stdout
    assert "step 8 of 8" in done.stdout
    assert accuracies(done.stdout.splitlines())[-1] > 70
    assert "GiB in a process" in done.stdout
    with pytest.raises(RuntimeError, match="written by 2 processes and cannot be continued by 1"):
        load("distributed").main([*SMALL, "--checkpoint", str(checkpoint)])


def test_distributed_comes_out_the_same(tmp_path: Path) -> None:
    """In two goes and in one."""
    paths = [tmp_path / "two.pt", tmp_path / "one.pt"]
    for path, epochs in zip((paths[0], *paths), "122", strict=True):
        load("distributed").main([*SMALL, "--checkpoint", str(path), "--epochs", epochs])
    states = [torch.load(path, weights_only=True)["model"] for path in paths]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
