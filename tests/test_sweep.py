"""Every form, in every type, on every kind of graph: the equations, and ReLU bit for bit."""

import copy
import os
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from graphrelu import GReLU
from tests.helpers import assert_close, opened, random_graph

# Relative to the largest entry, and to one for gradients, whose terms may cancel.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
torch.manual_seed(0)
NO_EDGES = torch.empty(2, 0, dtype=torch.long)
LOOPS, PATH = torch.arange(6).repeat(2, 1), torch.stack([torch.arange(5), torch.arange(1, 6)])
EMPTY_GRAPHS = {"batch": torch.tensor([1, 1, 1, 3, 3, 3]), "batch_size": 5}

# The number of nodes, the edges, and what else is given.
KINDS: dict[str, tuple[int, Tensor, dict[str, Any]]] = {
    "random": (9, random_graph(9, 30), {}),
    "x of columns": (9, random_graph(9, 30), {}),
    "every second column of x": (9, random_graph(9, 30), {}),
    "no node": (0, NO_EDGES, {}),
    "one node": (1, NO_EDGES, {}),
    "one node with a loop": (1, LOOPS[:, :1], {}),
    "no edge": (6, NO_EDGES, {}),
    "isolated nodes": (6, torch.tensor([[0, 1], [1, 0]]), {}),
    "duplicate edges": (6, PATH.repeat(1, 3), {}),
    "self-loops": (6, torch.cat([LOOPS, PATH, LOOPS], dim=1), {}),
    "directed": (6, PATH, {}),
    "undirected": (6, torch.cat([PATH, PATH.flip(0)], dim=1), {}),
    "some weights zero": (6, PATH, {"edge_weight": torch.tensor([0.0, 1.0, 0.0, 2.0, 0.5])}),
    "all weights zero": (6, PATH, {"edge_weight": torch.zeros(5)}),
    "as many edges as nodes": (6, random_graph(6, 6), {"edge_weight": torch.rand(6)}),
    "batch": (6, PATH[:, [0, 1, 3, 4]], {"batch": torch.tensor([0, 0, 0, 1, 1, 1])}),
    "batch with empty graphs": (6, PATH[:, [0, 1, 3, 4]], EMPTY_GRAPHS),
    "batch of no node": (0, NO_EDGES, {"batch": torch.zeros(0, dtype=torch.long)}),
}
FORMS: dict[str, dict[str, Any]] = {"GReLU": {}, "paper": {"mode": "paper"}}


def module(form: str) -> GReLU:
    torch.manual_seed(0)
    return opened(GReLU(4, **FORMS[form]))


def features(kind: str, dtype: torch.dtype) -> Tensor:
    x = torch.randn(KINDS[kind][0], 4).to(dtype)
    if kind == "x of columns":
        return x.t().contiguous().t()
    return x.repeat_interleave(2, dim=1)[:, ::2] if kind.startswith("every second") else x


def passes(act: GReLU, x: Tensor, kind: str, backend: str | None = None) -> list[Tensor]:
    """The output and all gradients; of `x` first."""
    _, edge_index, graph = KINDS[kind]
    x = x.detach().requires_grad_()
    chosen = {} if backend is None else {"GRAPHRELU_BACKEND": backend}
    with mock.patch.dict(os.environ, chosen):
        out = act(x, edge_index, **graph)
        weight = torch.linspace(-1, 2, out.numel(), dtype=torch.bfloat16).view_as(out).to(out)
        return [out, *torch.autograd.grad(out, [x, *act.parameters()], weight)]


def check(form: str, dtype: torch.dtype, kind: str) -> None:
    """The backend and the reference, in the type of `x`, against the reference in float64."""
    act = module(form)
    act = act.double() if dtype == torch.float64 else act
    x = features(kind, dtype)
    expected = passes(copy.deepcopy(act).double(), x.double(), kind, "reference")
    scale = max([1.0, *(float(grad.abs().max()) for grad in expected[1:] if grad.numel() > 0)])
    for backend in (None, "reference"):
        out, *grads = passes(act, x, kind, backend)
        assert (out.dtype, grads[0].dtype) == (dtype, dtype)
        assert_close(out.double(), expected[0], TOLERANCE[dtype])
        found = [grad.double() / scale for grad in grads]
        assert_close(found, [grad / scale for grad in expected[1:]], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("form", "kind"), [(f, k) for f in FORMS for k in KINDS])
def test_is_the_reference(form: str, kind: str, dtype: torch.dtype) -> None:
    check(form, dtype, kind)


def test_backends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    act, (_, edge_index, _), x = GReLU(4), KINDS["random"], torch.randn(9, 4)
    monkeypatch.setenv("GRAPHRELU_BACKEND", "reference")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(act(x, edge_index), x.relu())
    with pytest.raises(ValueError, match="edge_weight"):
        act(x, edge_index, torch.ones(31))
    monkeypatch.setenv("GRAPHRELU_BACKEND", "cuda")
    with pytest.raises(ValueError, match="GRAPHRELU_BACKEND must be one of reference, torch, trit"):
        act(x, edge_index)
