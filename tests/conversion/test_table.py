"""Every model of the table: the same bit for bit."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from graphrelu import GReLU, convert, replacements
from tests.conversion.models import CASES, Case

pytestmark = [
    pytest.mark.filterwarnings("ignore:To use GraphGym:UserWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning"),
]


def grelus(model: torch.nn.Module) -> list[GReLU]:
    return [module for module in model.modules() if isinstance(module, GReLU)]


def copied(args: Any) -> list[Any]:
    """A model may write into its arguments."""
    return [a.clone() if hasattr(a, "clone") else a for a in args]


def outcome(model: torch.nn.Module, method: str, args: Any, training: bool) -> list[Tensor]:
    """The outputs of a model and all gradients, from a fixed seed."""
    torch.manual_seed(7)
    model.train(training)
    model.zero_grad()
    args = copied(args)
    inputs = [a for a in args if isinstance(a, Tensor) and a.is_floating_point()]
    inputs = [x for x in inputs if x.layout == torch.strided]
    for x in inputs:
        x.requires_grad_()
    out = getattr(model, method)(*args) if method != "forward" else model(*args)
    outs = [o for o in tree_leaves(out) if isinstance(o, Tensor) and o.is_floating_point()]
    loss = sum((o * torch.linspace(-1, 2, o.numel()).view_as(o)).sum() for o in outs)
    assert isinstance(loss, Tensor)
    loss.backward()
    parameters = [p for name, p in model.named_parameters() if "grelus" not in name]
    gradients = [p.grad for p in (*parameters, *inputs)]
    return [o.detach() for o in outs] + [torch.zeros(0) if g is None else g for g in gradients]


def assert_same(model: torch.nn.Module, converted: torch.nn.Module, case: Case) -> None:
    for args in case.inputs:
        for training in (True, False):
            results = [outcome(m, case.method, args, training) for m in (model, converted)]
            assert len(results[0]) == len(results[1])
            for a, b in zip(*results, strict=True):
                assert torch.equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_same(name: str) -> None:
    for package in {"LightningModule": ["pytorch_lightning"], "GraphGym": ["yacs"]}.get(name, []):
        pytest.importorskip(package)
    case = CASES[name]
    torch.manual_seed(3)
    model = case.build()
    converted = convert(model, example=case.example)
    assert len(grelus(converted)) == case.grelus == len(replacements(converted).changed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The activation at .* was not reached")
        assert_same(model, converted, case)
        with torch.no_grad():  # where attention takes another way
            outs = []
            for m in (model, converted):
                torch.manual_seed(0)
                outs.append(getattr(m.eval(), case.method)(*copied(case.inputs[0])))
            leaves = [tree_leaves(out) for out in outs]
            assert all(torch.equal(a, b) for a, b in zip(*leaves, strict=True))
    assert not grelus(model)
