"""Gradients against finite differences, in float64, with parameters that have left their start."""

import pytest
import torch
from torch import Tensor

from graphrelu import GReLU
from tests.helpers import FULL, OTHER, batch_of_graphs, opened

VARIANTS = tuple("ABCDEFG")


def function_of(act: GReLU, batched: bool) -> tuple:
    """The module as a function of its features and parameters, and such inputs."""
    act = opened(act).double()
    edge_index, batch = batch_of_graphs([4, 3])
    graph = (edge_index, None, batch, 2) if batched else (edge_index,)
    names = [name for name, _ in act.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(act, named, (x, *graph))

    inputs = (torch.randn(7, 3, dtype=torch.double, requires_grad=True), *act.parameters())
    if act.hidden is None:  # whose layer may have no active unit
        for grad in torch.autograd.grad(run(*inputs).sum(), inputs):
            assert bool(grad.any()), "nothing to check"
    return run, inputs


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_of_the_default_module(variant: str, batched: bool) -> None:
    assert torch.autograd.gradcheck(*function_of(GReLU.variant(variant, 3), batched))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_of_the_printed_form(variant: str, batched: bool) -> None:
    act = GReLU.variant(variant, 3, mode="paper")
    assert torch.autograd.gradcheck(*function_of(act, batched))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("variant", ["A", "G"])
def test_gradgradcheck_of_the_default_module(variant: str, batched: bool) -> None:
    assert torch.autograd.gradgradcheck(*function_of(GReLU.variant(variant, 3), batched))


@pytest.mark.parametrize("variant", ["A", "G"])
def test_gradgradcheck_of_the_printed_form(variant: str) -> None:
    act = GReLU.variant(variant, 3, mode="paper")
    assert torch.autograd.gradgradcheck(*function_of(act, True))


@pytest.mark.parametrize("mode", ["calibrated", "paper"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_with_a_hidden_layer(variant: str, mode: str) -> None:
    run, inputs = function_of(GReLU.variant(variant, 3, mode=mode, hidden=4), True)
    assert torch.autograd.gradcheck(run, inputs)
    if variant in "AG":
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        OTHER,
        FULL,
        {"diagonal": False},
        {"scale": 1.0},
        {"temperature": 0.3},
        {"gamma_max": 1.05},
        {"negative_slope": 0.2},
        {"K": 3, "diffusion": "exact"},
    ],
    ids=str,
)
def test_gradcheck_of_other_options(options: dict, batched: bool) -> None:
    run, inputs = function_of(GReLU(3, **options), batched)
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_with_dropout(variant: str) -> None:
    """The same nodes and channels are dropped in each call."""
    run, inputs = function_of(GReLU.variant(variant, 3, dropout=0.5), False)

    def seeded(*inputs: Tensor) -> Tensor:
        torch.manual_seed(3)
        return run(*inputs)

    assert torch.autograd.gradcheck(seeded, inputs)
