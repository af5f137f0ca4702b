"""The examples run, in a short form."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gcn(capsys: pytest.CaptureFixture[str]) -> None:
    load("gcn").main(seeds=2, epochs=40)
    lines = capsys.readouterr().out.splitlines()
    accuracies = [float(line.split("accuracy ")[1].split(" ")[0]) for line in lines]
    assert len(accuracies) == 2
    assert min(accuracies) > 80
