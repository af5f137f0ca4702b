"""Models and looks that were kept: read with the same care as files from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphrelu.lab.engine.keep import read_look, read_model, saved_model
from graphrelu.lab.engine.train import build
from graphrelu.lab.record.recipes import recipe
from tests.fuzz.seeds import ring_graph
from tests.lab.archives import Named, npy, pickled, pt_of, with_entry

NOT_A_MODEL = r"model\.pt is not a model saved by graphrelu compare --save\.$"
NOT_FITTING = r"^The parameters in .*model\.pt do not fit its configuration\.$"


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model as ``compare --save`` does; parts, and settings of it, can be replaced."""

    def write(settings: dict[str, Any] | None = None, **parts: Any) -> Path:
        config = recipe("ring", "other", "gcn", "grelu", hidden=4)
        state = build(config, ring_graph(), 3).state_dict()
        plain = config.to_dict() | (settings or {})
        path = tmp_path / "model.pt"
        torch.save({"config": plain, "seed": 3, "state_dict": state} | parts, path)
        return path

    return write


def opened(path: Path) -> torch.nn.Module:
    config, seed, state = read_model(path)
    return saved_model(config, ring_graph(), seed, state, path)


def test_a_model_comes_back(save: Callable[..., Path]) -> None:
    model = opened(save())
    assert sum(p.numel() for p in model.parameters()) > 0
    assert all(p.device.type == "cpu" for p in model.parameters())


@pytest.mark.parametrize(
    "parts",
    [
        {"config": None},
        {"config": {"dataset": "ring"}},
        {"config": [1]},
        {"seed": "3"},
        {"seed": -1},
        {"seed": True},
        {"state_dict": None},
        {"state_dict": [torch.rand(2)]},
        {"state_dict": {"a": 1}},
        {"state_dict": {"a": torch.eye(2).to_sparse()}},
    ],
)
def test_other_content(save: Callable[..., Path], parts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=NOT_A_MODEL):
        read_model(save(**parts))


def test_a_model_that_would_run_something(tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    path = pt_of(tmp_path / "model.pt", pickled({"config": Named("os", "system", f"touch {trap}")}))
    with pytest.raises(ValueError, match=NOT_A_MODEL):
        read_model(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 2**40},
        {"hidden": 5},
        {"backbone_options": {"heads": 2}},
        {"activation_options": {"K": 9_999}},
        {"activation_options": {"steps": 10**9}},
        {"activation_options": {"K": "two"}},
        {"activation_options": {"no such thing": 1}},
        {"backbone": "cheb", "backbone_options": {"K": 10**9}},
    ],
)
def test_a_configuration_that_asks_for_more(
    save: Callable[..., Path], settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=NOT_FITTING):
        opened(save(settings))


def test_a_parameter_larger_than_its_bytes(save: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=NOT_FITTING):
        opened(save(state_dict={"a": torch.zeros(1).expand(2**40)}))


def write_look(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "seed": np.int64(3),
        "prediction": np.zeros(12, np.int16),
        "act.nodes": np.arange(4),
        "act.slopes": np.ones((4, 2, 3), np.float16),
        "act.intercepts": np.ones((4, 2, 3), np.float16),
        "act.gamma": np.ones((12, 1), np.float16),
    }
    merged = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez_compressed(path, **merged)
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", None),
        ("prediction", None),
        ("act.slopes", None),
        ("act.gamma", np.ones((11, 1))),
        ("act.gamma", np.full((12, 1), np.nan)),
        ("act.nodes", np.arange(4) + 9),
        ("act.nodes", np.arange(4) - 1),
        ("act.nodes", np.arange(4.0)),
        ("act.slopes", np.ones((4, 2, 0))),
        ("act.intercepts", np.ones((4, 3, 3))),
    ],
)
def test_looks_that_do_not_fit(name: str, value: Any, tmp_path: Path) -> None:
    good = read_look(write_look(tmp_path / "good.npz"))
    assert good["act.nodes"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"look\.npz is not a look inside of a model \(.*\)\.$"):
        read_look(write_look(tmp_path / "look.npz", **{name: value}))


def test_a_look_that_declares_too_much(tmp_path: Path) -> None:
    path = with_entry(write_look(tmp_path / "look.npz"), "prediction.npy", npy((10**12,)))
    with pytest.raises(ValueError, match=r"prediction\.npy declares the shape \(1000000000000,\)"):
        read_look(path)
