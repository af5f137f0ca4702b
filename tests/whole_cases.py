"""The whole activation as one function against the reference; `triton_cases.py` runs all this."""

import copy
import os
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor

from graphrelu import GReLU, sliced, smooth
from graphrelu.calibration import Calibration
from tests.helpers import PLAIN, SMOOTH, opened, random_graph, reference


def error(out: Tensor, exact: Tensor, least: float = 1e-30) -> float:
    if exact.numel() == 0:
        return 0.0
    return float((out.detach().double() - exact).abs().max() / exact.abs().max().clamp(min=least))


OTHER_CONSTANTS = Calibration(
    temperature=2.0,
    gamma_scale=0.6,
    gamma_max=0.8,
    rest_scale=0.4,
    intercept_scale=0.7,
    channel_scale=1.5,
    gate_scale=1.3,
    smooth=0,
)

# The whole activation as one function: options, whether the graph is weighted, and directed.
WHOLE = [
    ({}, False, False),
    ({"K": 1}, False, True),
    ({"K": 3, "mode": "paper"}, True, False),
    ({"bias": False, "negative_slope": 0.1}, True, True),
    ({"topology": False}, False, False),
    ({"diffusion": "chebyshev", "steps": 5}, False, False),
    ({"diffusion": "chebyshev", "steps": 1}, True, False),
    ({"K": 3, "calibration": OTHER_CONSTANTS}, False, False),
    ({"calibration": SMOOTH, "steps": 3}, False, False),
    ({"calibration": SMOOTH, "steps": 3}, True, True),
    ({"calibration": PLAIN}, True, False),
    ({"K": 3, "calibration": replace(OTHER_CONSTANTS, smooth=1), "steps": 3}, False, True),
    ({"K": 1, "calibration": SMOOTH, "diffusion": "chebyshev", "steps": 5}, False, False),
    ({"calibration": SMOOTH, "topology": False}, False, False),
]


def graph_with_hub(num_nodes: int, weighted: bool, directed: bool) -> tuple[Tensor, Tensor | None]:
    last = max(1, num_nodes - 5)
    hub = torch.stack([torch.zeros(300, dtype=torch.long), torch.randint(last, (300,))])
    edge_index = torch.cat([random_graph(num_nodes, 2 * num_nodes), hub], dim=1)
    weight = torch.rand(edge_index.size(1)) if weighted else None
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = None if weight is None else weight.repeat(2)
    return edge_index, weight


def whole_errors(
    options: dict, weighted: bool, directed: bool, from_entries: int, device: str
) -> dict[str, float]:
    """One GReLU on a graph with a hub, in slices from so many entries on."""
    torch.manual_seed(0)
    # Of the other product the interpreter takes its time.
    num_nodes, few = (300, {}) if from_entries == 0 else (30, {"steps": 3})
    act = opened(GReLU(7, **few | options)).to(device)
    graph = graph_with_hub(num_nodes, weighted, directed)
    return errors_of(act, torch.randn(num_nodes, 7), *graph, from_entries, device)


# Features that the smooth form could fail on; the least that an error is relative to, as gradients
# are zero where nodes are alike; and the tolerance, as they cancel where nodes are nearly alike.
WAVE = torch.arange(9000).sin()
FEW = WAVE[:210].view(30, 7)
HARD = {
    "one node": (FEW[:1], 1.0, 1e-5),
    "all nodes alike": (FEW[:1].expand(30, 7), 1.0, 1e-5),
    "all zero": (torch.zeros(30, 7), 1.0, 1e-5),
    "far apart around nodes that are not": (torch.eye(600, 1), 1e-30, 1e-5),
    "nearly alike": (1 + WAVE[:30].view(30, 1) / 4096, 1e-30, 1e-2),
    "far from zero": (2 + FEW, 1e-30, 3e-5),
    "very small": (1e-25 * FEW, 1e-30, 1e-5),
    "very large": (1e25 * FEW, 1e-30, 1e-5),
    "more channels than a tile": (WAVE.view(30, 300), 1e-30, 1e-5),
    "more nodes than a program": (WAVE[:2100].view(2100, 1), 1e-30, 1e-5),
}


def hard_errors(name: str, power: int, from_entries: int, device: str) -> dict[str, float]:
    torch.manual_seed(0)
    x, least, _ = HARD[name]
    calibration = replace(SMOOTH, smooth=power)
    act = opened(GReLU(x.size(1), steps=3, calibration=calibration)).to(device)
    graph = graph_with_hub(x.size(0), False, True)
    with mock.patch.object(smooth, "_MOST_PARTIALS", 2):
        return errors_of(act, x, *graph, from_entries, device, least)


def second_errors(calibration: Calibration, device: str) -> dict[str, float]:
    """The gradient of `x`, where it is to be differentiated further, and its own gradients."""
    torch.manual_seed(0)
    act = opened(GReLU(7, steps=3, calibration=calibration)).to(device)
    edge_index, x = random_graph(30, 90).to(device), torch.randn(30, 7, device=device)
    exact = copy.deepcopy(act).double()
    found = []
    for module, features in ((act, x), (exact, x.double())):
        features.requires_grad_()
        out = reference(exact, features, edge_index)[0] if module is exact else act(x, edge_index)
        (first,) = torch.autograd.grad(out.pow(3).sum(), features, create_graph=True)
        inputs = [features, *module.parameters()]
        found.append([first.detach(), *torch.autograd.grad(first.pow(2).sum(), inputs)])
    names = ["first", "x", *dict(act.named_parameters())]
    return {name: error(*pair) for name, *pair in zip(names, *found, strict=True)}


def check_not_numbers(device: str) -> None:
    """What is no number spreads as it does without these kernels."""
    act = opened(GReLU(7, steps=3, calibration=SMOOTH)).to(device)
    edge_index = random_graph(30, 90).to(device)
    for value in (torch.nan, torch.inf, -torch.inf):
        x = torch.randn(30, 7, device=device)
        x[3, 2] = value
        x.requires_grad_()
        found = []
        for name in ("triton", "torch"):
            with mock.patch.dict(os.environ, GRAPHRELU_BACKEND=name):
                out = act(x, edge_index)
            grads = torch.autograd.grad(out.sum(), [x, *act.parameters()])
            found.append([tensor.isnan() for tensor in (out, *grads)])
        assert bool(found[0][0].all())
        assert all(map(torch.equal, *found)), value


def errors_of(
    act: GReLU,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    from_entries: int,
    device: str,
    least: float = 1e-30,
) -> dict[str, float]:
    graph = edge_index.to(device), None if weight is None else weight.to(device)
    x = x.to(device).requires_grad_()
    parameters = dict(act.named_parameters())
    with mock.patch.object(sliced, "FROM_ENTRIES", from_entries):
        out, again = act(x, *graph), act(x, *graph)
    grad = torch.randn_like(out)
    grads = torch.autograd.grad(out, [x, *parameters.values()], grad)
    repeated = torch.autograd.grad(again, [x, *parameters.values()], grad)
    assert type(out.grad_fn).__name__ == "_WholeBackward"
    assert torch.equal(out, again), "the same input gave other bits"
    assert all(map(torch.equal, grads, repeated)), "the same input gave other bits"

    exact, z = copy.deepcopy(act).double(), x.detach().double().requires_grad_()
    expected = reference(exact, z, graph[0], edge_weight=graph[1])[0]
    scales = dict.fromkeys(["x", *parameters], least)
    if exact.gate is not None:
        # Its gradient is one number: relative to the sum of its terms without their signs.
        one = torch.ones_like(expected, requires_grad=True)
        (total,) = torch.autograd.grad(expected, exact.gate, one, create_graph=True)
        (terms,) = torch.autograd.grad(total, one, retain_graph=True)
        scales["gate"] = max(least, float((terms * grad).abs().sum()))
    expected_grads = torch.autograd.grad(expected, [z, *exact.parameters()], grad.double())
    pairs = zip(scales, grads, expected_grads, strict=True)
    errors = {"out": error(out, expected.detach(), least)}
    return errors | {name: error(g, e, scales[name]) for name, g, e in pairs}
