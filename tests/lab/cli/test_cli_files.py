"""Files from anywhere on the command line: one sentence and the exit code 2, or they work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from tests.lab import fake_engine
from tests.lab.data.test_own_files import Trap
from tests.lab.fake_engine import invoke

MakeNpz = Callable[..., Path]
ODD = "мои данные ü 'x' $HOME & 100 %"  # spaces, quotes, other alphabets


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return fake_engine.only_fakes(tmp_path, monkeypatch)


def test_one_sentence(folder: Path, make_npz: MakeNpz, ring: Data) -> None:
    trap = folder / "trapped"
    bad = {
        make_npz("object.npz", y=np.array(12 * [None])): "cannot be read as",
        make_npz("complex.npz", x=np.full((12, 3), 1j)): "must be a real matrix",
    }
    for name, field, sentence in (
        ("bomb.pt", {"name": Trap(trap)}, "was run"),
        ("wide.pt", {"x": torch.zeros(1).expand(12, 2**40)}, "more than the 8 that are allowed"),
    ):
        torch.save(Data(**ring.to_dict() | field), folder / name)
        bad[folder / name] = sentence
    for path, sentence in bad.items():
        result = invoke("compare", path)
        assert (result.exit_code, result.stdout) == (2, ""), path
        assert result.stderr.count("\n") == 1
        assert sentence in result.stderr
    assert not trap.exists()


@pytest.mark.parametrize("ending", ["npz", "pt"])
def test_odd_paths(folder: Path, make_npz: MakeNpz, ring: Data, ending: str) -> None:
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
