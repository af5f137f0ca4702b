"""The examples run, in a short form."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch_geometric.utils import get_laplacian, to_dense_adj

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


def test_gcn(capsys: pytest.CaptureFixture[str]) -> None:
    load("gcn").main(seeds=2, epochs=40)
    found = accuracies(capsys.readouterr().out.splitlines())
    assert len(found) == 2
    assert min(found) > 80


def test_minibatch(capsys: pytest.CaptureFixture[str]) -> None:
    load("minibatch").main(epochs=20, batch_size=50)
    whole, parts, difference = capsys.readouterr().out.splitlines()
    assert min(accuracies([whole])) > 85
    assert whole.split("accuracy")[1] == parts.split("accuracy")[1]
    assert float(difference.split()[-1]) < 1e-5


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # its own
def test_lightning(capsys: pytest.CaptureFixture[str]) -> None:
    load("lightning").main(epochs=20)
    assert accuracies(capsys.readouterr().out.splitlines())[-1] > 85


def test_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells run in order, with fewer epochs, and its saved outputs are theirs."""
    cells = json.loads((EXAMPLES / "verdict.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    printed = []
    for cell in code:
        exec("".join(cell["source"]).replace("epochs=40", "epochs=2"), names)
        printed.append(capsys.readouterr().out)
    saved = ["".join("".join(out.get("text", "")) for out in cell["outputs"]) for cell in code]
    assert printed[:2] == saved[:2]
    assert "True" in printed[1]
    (shown,) = code[2]["outputs"]
    assert saved[3].strip() in "".join(shown["data"]["text/plain"])
    assert list(names["result"].table.index) == ["relu", "grelu"]


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


def test_convert_pretrained(capsys: pytest.CaptureFixture[str]) -> None:
    load("convert_pretrained").main(epochs=30)
    out = capsys.readouterr().out
    assert "act after convs.1: ReLU() -> GReLU(32)" in out
    assert "the same output: True" in out
    before, *after = accuracies(out.splitlines())
    assert len(after) == 2
    assert 60 < before < min(after)


def test_spectral(capsys: pytest.CaptureFixture[str]) -> None:
    load("spectral").main()
    assert float(capsys.readouterr().out.split(": ")[1].split(" ")[0]) > 80


def test_spectral_filter_is_a_polynomial_of_the_laplacian() -> None:
    example = load("spectral")
    torch.manual_seed(1)
    x, edge_index, _ = example.communities()
    x, nodes = x.double(), len(x)
    conv = example.SpectralConv(x.size(1), 5, degree=3).double()
    index, weight = get_laplacian(edge_index, normalization="sym", dtype=torch.double)
    laplacian = to_dense_adj(index, edge_attr=weight, max_num_nodes=nodes)[0]
    expected = sum(
        torch.linalg.matrix_power(laplacian, p) @ x @ conv.theta[p] for p in range(len(conv.theta))
    )
    eigenvalues, eigenvectors = torch.linalg.eigh(laplacian)
    torch.testing.assert_close(conv(x, eigenvalues, eigenvectors), expected)

    low = example.spectrum(edge_index, nodes, frequencies=7)
    assert [part.shape for part in low] == [(7,), (nodes, 7)]
    torch.testing.assert_close(low[0].double(), eigenvalues[:7], atol=1e-5, rtol=1e-5)
