"""Gradients against finite differences, in float64, with parameters that have left their start."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from graphrelu import GReLU
from graphrelu.functional import MODES
from tests.helpers import FULL, OTHER, batch_of_graphs, opened

VARIANTS = tuple("ABCDEFG")
# Of these the second derivatives are checked in a random direction, which is much faster.
TWICE = [
    *(("A", options) for options in (OTHER, FULL, {"diagonal": False}, {"scale": 1.0})),
    *(("A", options) for options in ({"temperature": 0.3}, {"gamma_max": 1.05})),
    *(("A", options) for options in ({"negative_slope": 0.2}, {"K": 3, "diffusion": "exact"})),
    *((variant, {"mode": mode, "hidden": 4}) for variant in "AG" for mode in MODES),
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
    if act.hidden is None and act.dropout == 0:  # no unit may be active, or none be left
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


@pytest.mark.parametrize(
    "options", [{"hidden": 4}, {"hidden": 4, "mode": "paper"}, {"dropout": 0.5}], ids=str
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck_of_a_hidden_layer_and_of_dropout(variant: str, options: dict) -> None:
    batched = "hidden" in options
    assert gradcheck(*function_of(GReLU.variant(variant, 3, **options), batched))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("variant", "options"), TWICE, ids=str)
def test_gradgradcheck_of_other_options(variant: str, options: dict, batched: bool) -> None:
    run, inputs = function_of(GReLU.variant(variant, 3, **options), batched)
    assert gradcheck(run, inputs)
    assert gradgradcheck(run, inputs, fast_mode=True)
