"""Gradients against finite differences, in float64, with parameters that have left their start."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from graphrelu import GReLU
from graphrelu.functional import MODES
from graphrelu.ops import cpu
from tests.helpers import OTHER, SHARP, batch_of_graphs, opened, random_graph

VARIANTS = tuple("ABCDEFG")
# Of these the second derivatives are checked in a random direction, which is much faster.
TWICE = [
    *(("A", options) for options in (OTHER, SHARP, {"scale": 1.0})),
    *(("A", options) for options in ({"temperature": 0.3},)),
    *(("A", options) for options in ({"negative_slope": 0.2}, {"K": 3, "diffusion": "exact"})),
    *((variant, {"mode": "paper"}) for variant in "AG"),
]


def function_of(act: GReLU, batched: bool) -> tuple:
    """The module as a function of its features and parameters, and such inputs."""
    act = opened(act).double()
    edge_index, batch = batch_of_graphs([4, 3])
    graph = (edge_index, None, batch, 2) if batched else (edge_index,)
    names = [name for name, _ in act.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        torch.manual_seed(3)  # the same nodes and channels are dropped in each call
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(act, named, (x, *graph))

    inputs = (torch.randn(7, 3, dtype=torch.double, requires_grad=True), *act.parameters())
    if act.dropout == 0:  # none may be left
        for grad in torch.autograd.grad(run(*inputs).sum(), inputs):
            assert bool(grad.any()), "nothing to check"
    return run, inputs


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck(variant: str, mode: str, batched: bool) -> None:
    run, inputs = function_of(GReLU.variant(variant, 3, mode=mode), batched)
    assert gradcheck(run, inputs)
    if variant in "AG":
        assert gradgradcheck(run, inputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_of_dropout(variant: str) -> None:
    assert gradcheck(*function_of(GReLU.variant(variant, 3, dropout=0.5), batched=False))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("variant", "options"), TWICE, ids=str)
def test_gradgradcheck_of_other_options(variant: str, options: dict, batched: bool) -> None:
    run, inputs = function_of(GReLU.variant(variant, 3, **options), batched)
    assert gradcheck(run, inputs)
    assert gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "changed",
    [
        lambda h: h.add_(1.0),
        lambda h: F.dropout(h, p=0.0, inplace=True),
        lambda h: h.relu_(),
        lambda h: h.mul_(h.detach().clone()),
    ],
    ids=["skip", "dropout", "relu", "product"],
)
def test_the_output_may_be_changed_in_place(
    changed: Callable[[Tensor], Tensor], compiled: bool
) -> None:
    act, edge_index = opened(GReLU(3)).double(), random_graph(7, 20)
    x = torch.randn(7, 3, dtype=torch.double, requires_grad=True)

    def block(x: Tensor, in_place: bool) -> Tensor:
        h = act(x, edge_index)
        return changed(h if in_place else h.clone())

    run = torch.compile(block, backend="aot_eager") if compiled else block
    expected = torch.autograd.grad(block(x, False).square().sum(), [x, *act.parameters()])
    found = torch.autograd.grad(run(x, True).square().sum(), [x, *act.parameters()])
    for own, other in zip(found, expected, strict=True):
        assert torch.allclose(own, other, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"K": 3}, {"channel_wise": False}], ids=str)
def test_features_without_a_gradient_cost_none(
    options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameters' gradients are the same, and no pass makes one for the features."""
    asked: list[bool] = []
    passes = cpu.apply_backward
    monkeypatch.setattr(cpu, "apply_backward", lambda *a: asked.append(a[-1]) or passes(*a))
    act, edge_index = opened(GReLU(3, **options)).double(), random_graph(7, 20)
    x = torch.randn(7, 3, dtype=torch.double)
    grads = [
        torch.autograd.grad(act(own, edge_index).square().sum(), list(act.parameters()))
        for own in (x, x.clone().requires_grad_())
    ]
    for own, other in zip(*grads, strict=True):
        assert torch.allclose(own, other, atol=1e-12)
    assert asked == [False, True]
