"""A new activation is a class and a line in the table, as CONTRIBUTING.md says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch.nn.functional as F
from torch import Tensor

from graphrelu.lab.models.activations import ACTIVATIONS, Rectifier
from tests.lab.fake_engine import invoke
from tests.lab.pages import embedded


class Softplus(Rectifier):
    def activate(self, x: Tensor) -> Tensor:
        return F.softplus(x)


def test_a_class_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(ACTIVATIONS, "softplus", Softplus)
    small = ("--layers", 2, "--hidden", 8, "--epochs", 1, "--runs", 2, "--device", "cpu")
    result = invoke("compare", "digits", *small, "--json", "a.json", "--report", "page.html")
    assert (result.exit_code, result.stderr) == (0, "")
    names = ["relu", "prelu", "maxout", "gelu", "silu", "grelu", "softplus"]
    content = json.loads(Path("a.json").read_text())
    assert [row["activation"] for row in content["rows"]] == names
    settings = [{**config, "activation": None} for config in content["configs"].values()]
    for config in settings:
        del config["activation_options"]  # the constants of GReLU
    assert all(config == settings[0] for config in settings)
    shown = [line.split()[:1] for line in result.stdout.splitlines()]
    assert shown.index(["Softplus"]) == shown.index(["GReLU"]) + 1
    (table,) = embedded("page.html")["tables"]
    assert [row["family"] for row in table["rows"]] == names
    result = invoke("compare", "digits", *small, "--activations", "relu,softplus")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Softplus" in result.stdout
