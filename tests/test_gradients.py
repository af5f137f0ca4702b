"""Gradients against finite differences, in float64, with parameters that have left their start."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from graphrelu import GReLU
from graphrelu.functional import MODES
from tests.helpers import OTHER, SHARP, assert_close, batch_of_graphs, opened, variant_of

VARIANTS = tuple("ABCDEFG")
CASES: list[tuple[str, dict[str, Any]]] = [
    *((variant, {"mode": mode}) for variant in VARIANTS for mode in MODES),
    *(("A", options) for options in (OTHER, SHARP, {"scale": 1.0}, {"temperature": 0.3})),
    *(("A", options) for options in ({"negative_slope": 0.2}, {"K": 3, "diffusion": "exact"})),
    *((variant, {"dropout": 0.5}) for variant in VARIANTS),
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
@pytest.mark.parametrize(("variant", "options"), CASES, ids=str)
def test_first_and_second_derivatives(variant: str, options: dict, batched: bool) -> None:
    """The second in a random direction, which is much faster."""
    run, inputs = function_of(variant_of(variant, 3, **options), batched)
    assert gradcheck(run, inputs)
    if variant in "AG" and "dropout" not in options:
        assert gradgradcheck(run, inputs, fast_mode=True)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "skip": lambda h: h.add_(1.0),
    "dropout": lambda h: F.dropout(h, p=0.0, inplace=True),
    "relu": lambda h: h.relu_(),
    "product": lambda h: h.mul_(h.detach().clone()),
}


def outputs_and_gradients(outs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """First and second ones."""
    loss = sum(out.float().square().sum() for out in outs)
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    second = torch.autograd.grad(sum(grad.float().square().sum() for grad in first), inputs)
    return [*outs, *first, *second]


@pytest.mark.parametrize("kind", ["eager", "autocast", "vmap", "compiled", "batch"])
@pytest.mark.parametrize("dtype", [torch.double, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_the_output_may_be_changed_in_place(change: str, dtype: torch.dtype, kind: str) -> None:
    """In training, with the gradients of a change that makes a new tensor."""
    act, (edge_index, batch) = opened(GReLU(3)).to(dtype), batch_of_graphs([4, 3])
    x = torch.randn(7, 3).to(dtype).requires_grad_()
    graph = {"batch": batch} if kind == "batch" else {}

    def block(x: Tensor, in_place: bool) -> Tensor:
        h = act(x, edge_index, **graph)
        return CHANGES[change](h if in_place else h.clone())

    def run(in_place: bool) -> list[Tensor]:
        if kind == "vmap":
            return [torch.func.vmap(lambda z: block(z, in_place), randomness="same")(x[None])]
        if kind == "compiled" and in_place:
            torch.compiler.reset()
            return [torch.compile(block, backend="aot_eager")(x, True)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
            return [block(x, in_place)]

    inputs = [x, *act.parameters()]
    if kind == "compiled":  # a compiler has no second derivatives
        found, expected = (
            torch.autograd.grad(run(own)[0].square().sum(), inputs) for own in (True, False)
        )
    else:
        found, expected = (outputs_and_gradients(run(own), inputs) for own in (True, False))
    assert_close(list(found), list(expected), 1e-10 if dtype == torch.double else 0.1)
