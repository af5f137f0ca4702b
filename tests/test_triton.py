"""The GPU kernels, in Triton's interpreter: it must be chosen before Triton is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphrelu import GReLU, kernels
from graphrelu.backend import backend
from tests.helpers import assert_close, opened, random_graph

ROOT = Path(__file__).parent.parent


def interpreted(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "GRAPHRELU_BACKEND": "triton"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_kernels_against_the_reference() -> None:
    done = interpreted("-m", "tests.triton_cases")
    assert done.stdout == "31 cases passed on cpu\n", done.stderr


def test_module_on_the_kernels() -> None:
    """The module's own tests once more, with the GPU's implementation behind it."""
    chosen = "half_precision or float32_precision or every_parameter or degenerate or empty_graphs"
    done = interpreted("-m", "pytest", "tests/test_grelu.py", "-k", chosen)
    assert done.returncode == 0, done.stdout


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    x, edge_index = torch.randn(9, 4), random_graph(9, 30)
    batch = torch.zeros(9, dtype=torch.long)
    assert backend(x) == "torch"
    for variant in "ABCDEFG":
        act = opened(GReLU.variant(variant, 4))
        outs = [act(x, edge_index), act(x, edge_index, batch=batch)]
        with monkeypatch.context() as patch:
            patch.setenv("GRAPHRELU_BACKEND", "reference")
            patch.setattr(kernels, "piecewise_max", None)  # not needed by the reference
            assert_close(act(x, edge_index), outs[0], 1e-6)
            assert_close(act(x, edge_index, batch=batch), outs[1], 1e-6)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "cuda")
    with pytest.raises(ValueError, match="GRAPHRELU_BACKEND must be one of reference, torch, trit"):
        act(x, edge_index)
