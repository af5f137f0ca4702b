"""The Triton kernels against the reference: forward, backward, every type, odd shapes.

Runs on a GPU (`python -m tests.triton_cases --out RECORD.json`) or, with `TRITON_INTERPRET=1`, in
Triton's interpreter on a CPU.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from graphrelu import GReLU, functional
from graphrelu.lab.record.machine import commit, device_name, environment, now
from graphrelu.ops.dispatch import backend
from graphrelu.ops.triton import apply, project
from tests.helpers import FULL, OTHER, batch_of_graphs, opened, random_graph, reference

# Relative to the largest entry of the exact result, computed in float64.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}

# Replicas, nodes, channels, K, weights per node, sizes of the graphs, base slopes.
CASES = [
    (1, 37, 5, 2, 1, None, (1.0, 0.0)),
    (1, 1, 1, 1, 1, None, (1.0, 0.0)),
    (2, 53, 7, 3, 1, None, (0.0, 0.0)),
    (1, 300, 64, 2, 1, None, (1.0, 0.0)),
    (1, 45, 300, 2, 1, None, (1.0, 0.2)),
    (1, 5, 2200, 2, 2, None, (1.0, 0.2)),  # more tiles than are written out
    (1, 60, 6, 3, 3, None, (1.0, 0.0)),
    (1, 60, 6, 2, 1, (10, 0, 33, 17), (1.0, 0.0)),
    (3, 60, 6, 7, 1, (10, 0, 33, 17), (0.0, 0.0)),
    (2, 41, 33, 7, 7, (41,), (1.0, 0.0)),
]

# The whole activation: options, whether the graph is weighted, and directed.
WHOLE: list[tuple[dict, bool, bool]] = [
    ({}, False, False),
    ({"K": 1}, False, True),
    ({"K": 3, "mode": "paper"}, True, False),
    ({"bias": False, "negative_slope": 0.1}, True, True),
    ({"topology": False}, False, False),
    ({"node_wise": False}, False, True),
    ({"channel_wise": False}, True, True),
    ({"channel_wise": False, "K": 3, "hidden": 4}, False, False),
    ({"hidden": 4}, True, False),
    ({"diffusion": "chebyshev", "steps": 5}, False, False),
    ({"diffusion": "chebyshev", "steps": 1}, True, False),
    ({"K": 3, **OTHER}, False, False),
    ({"K": 1, **OTHER, "diffusion": "chebyshev", "steps": 5}, False, False),
    (OTHER, True, True),
    ({"K": 3, **FULL, "steps": 3}, False, True),
    (FULL, True, False),
]

# Features that a kernel could fail on, and the least that an error is relative to: gradients are
# zero where nodes are alike.
WAVE = torch.arange(9000).sin()
FEW = WAVE[:210].view(30, 7)
HARD = {
    "one node": (FEW[:1], 1.0),
    "one channel": (FEW[:, :1], 1e-30),
    "all nodes alike": (FEW[:1].expand(30, 7), 1.0),
    "all zero": (torch.zeros(30, 7), 1.0),
    "far from zero": (2 + FEW, 1e-30),
    "very small": (1e-25 * FEW, 1e-30),
    "very large": (1e15 * FEW, 1e-30),
    "more channels than a tile": (WAVE.view(30, 300), 1e-30),
    "more nodes than a program": (WAVE[:2100].view(2100, 1), 1e-30),
}


class Case(NamedTuple):
    name: str
    dtype: torch.dtype
    tolerance: float
    errors: Callable[[], dict[str, float]]


def error(out: Tensor, exact: Tensor, least: float = 1e-30) -> float:
    if exact.numel() == 0:
        return 0.0
    return float((out.detach().double() - exact).abs().max() / exact.abs().max().clamp(min=least))


def graph_with_hub(num_nodes: int, weighted: bool, directed: bool) -> tuple[Tensor, Tensor | None]:
    """Node 0 has many more edges than the others."""
    last = max(1, num_nodes - 5)
    hub = torch.stack([torch.zeros(300, dtype=torch.long), torch.randint(last, (300,))])
    edge_index = torch.cat([random_graph(num_nodes, 2 * num_nodes), hub], dim=1)
    weight = torch.rand(edge_index.size(1)) if weighted else None
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = None if weight is None else weight.repeat(2)
    return edge_index, weight


def whole_errors(options: dict, weighted: bool, directed: bool, device: str) -> dict[str, float]:
    """One GReLU on a graph with a hub."""
    torch.manual_seed(0)
    act = opened(GReLU(7, **{"steps": 3} | options)).to(device)
    return errors_of(act, torch.randn(30, 7), *graph_with_hub(30, weighted, directed), device)


def hard_errors(name: str, device: str) -> dict[str, float]:
    torch.manual_seed(0)
    x, least = HARD[name]
    act = opened(GReLU(x.size(1), steps=3)).to(device)
    return errors_of(act, x, *graph_with_hub(x.size(0), False, True), device, least)


def batched_errors(variant: str, device: str) -> dict[str, float]:
    torch.manual_seed(0)
    edge_index, batch = batch_of_graphs([20, 0, 1, 9])
    act = opened(GReLU.variant(variant, 7, steps=3)).to(device)
    sizes = {"batch": batch.to(device), "batch_size": 4}
    return errors_of(act, torch.randn(30, 7), edge_index, None, device, **sizes)


def errors_of(
    act: GReLU,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    device: str,
    least: float = 1e-30,
    **batch: Tensor | int,
) -> dict[str, float]:
    """Of the output and all gradients, in the Triton backend."""
    assert backend(x.to(device)) == "triton"
    graph = edge_index.to(device), None if weight is None else weight.to(device)
    x = x.to(device).requires_grad_()
    parameters = dict(act.named_parameters())
    out, again = act(x, *graph, **batch), act(x, *graph, **batch)
    grad = torch.randn_like(out)
    grads = torch.autograd.grad(out, [x, *parameters.values()], grad)
    repeated = torch.autograd.grad(again, [x, *parameters.values()], grad)
    assert torch.equal(out, again), "the same input gave other bits"
    assert all(map(torch.equal, grads, repeated)), "the same input gave other bits"

    exact, z = copy.deepcopy(act).double(), x.detach().double().requires_grad_()
    expected = reference(exact, z, graph[0], edge_weight=graph[1], **batch)[0]
    expected_grads = torch.autograd.grad(expected, [z, *exact.parameters()], grad.double())
    errors = {"out": error(out, expected.detach(), least)}
    pairs = zip(["x", *parameters], grads, expected_grads, strict=True)
    return errors | {name: error(g, e, least) for name, g, e in pairs}


def second_errors(options: dict, device: str) -> dict[str, float]:
    """The gradient of `x`, where it is to be differentiated further, and its own gradients."""
    torch.manual_seed(0)
    act = opened(GReLU(7, steps=3, **options)).to(device)
    edge_index, x = random_graph(30, 90).to(device), torch.randn(30, 7, device=device)
    exact = copy.deepcopy(act).double()
    found = []
    for module, features in ((act, x), (exact, x.double())):
        features.requires_grad_()
        out = act(x, edge_index) if module is act else reference(exact, features, edge_index)[0]
        (first,) = torch.autograd.grad(out.pow(3).sum(), features, create_graph=True)
        inputs = [features, *module.parameters()]
        found.append([first.detach(), *torch.autograd.grad(first.pow(2).sum(), inputs)])
    names = ["first", "x", *dict(act.named_parameters())]
    return {name: error(*pair) for name, *pair in zip(names, *found, strict=True)}


def dropout_errors(variant: str, device: str) -> dict[str, float]:
    """In training a node or channel is ReLU, or as in evaluation."""
    act = opened(GReLU.variant(variant, 17, steps=3, dropout=0.5)).to(device)
    edge_index, x = random_graph(40, 90).to(device), torch.randn(40, 17, device=device)
    kept, out = act.eval()(x, edge_index), act.train()(x, edge_index)
    is_kept, is_dropped = (out == kept), (out == x.relu())
    assert 0 < int(is_dropped.all(dim=1).sum()) < 40, "all or no nodes were dropped"
    assert 0 < int(is_dropped.all(dim=0).sum()) < 17, "all or no channels were dropped"
    return {"neither": float((~(is_kept | is_dropped)).sum())}


def fresh_errors(options: dict, dtype: torch.dtype, device: str) -> dict[str, float]:
    """A fresh module differs from ReLU in no bit of either pass, at zero neither."""
    act = GReLU(7, steps=3, **options).to(device)
    x = torch.randint(-2, 3, (40, 7)) * torch.randn(40, 7)
    x, edge_index = x.to(device, dtype), random_graph(40, 90).to(device)
    grad = torch.randn_like(x)
    assert bool((x == 0).any())
    found = []
    for function in (lambda z: act(z, edge_index), torch.relu):
        z = x.clone().requires_grad_()
        out = function(z)
        found.append((out.detach(), *torch.autograd.grad(out, z, grad)))
    pairs = zip(("out", "x"), *found, strict=True)
    return {name: float((a != b).sum()) for name, a, b in pairs}


def check_not_numbers(device: str) -> None:
    """A NaN reaches all outputs, an infinity those that it reaches without these kernels; and no
    gradient hides them."""
    act = opened(GReLU(7, steps=3)).to(device)
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
            found.append(out.isnan())
            assert not bool(out[3, 2].isfinite()), (name, value)
            if value != value:
                assert bool(out.isnan().all()), (name, value)
            assert all(bool(grad.isnan().any()) for grad in grads), (name, value)
        assert torch.equal(*found), value


def piecewise_errors(case: tuple, dtype: torch.dtype, device: str) -> dict[str, float]:
    R, N, C, K, J, sizes, (first, rest) = case
    B = 1 if sizes is None else len(sizes)
    base = (first,) + (rest,) * (K - 1)
    batch = None
    if sizes is not None:
        batch = torch.repeat_interleave(torch.arange(B), torch.tensor(sizes)).to(device)
    x, grad = (torch.randn(R, N, C, device=device).to(dtype) for _ in range(2))
    gamma = torch.rand(R, N, J, device=device)
    slopes, intercepts = (torch.randn(R, B, K, C, device=device) for _ in range(2))

    y = apply.apply(x, gamma, slopes, intercepts, base, batch)
    grads = apply.apply_backward(grad, x, gamma, slopes, intercepts, base, batch)
    again = apply.apply_backward(grad, x, gamma, slopes, intercepts, base, batch)
    assert all(map(torch.equal, grads, again)), "the same input gave other bits"

    worst: dict[str, float] = {}
    for r in range(R):
        inputs = [t[r].double().requires_grad_() for t in (x, gamma, slopes, intercepts)]
        alpha, beta = functional.coefficients(*inputs[1:], base, batch)
        segments = (alpha * inputs[0].unsqueeze(1) + beta).sort(dim=1, descending=True).values
        # Near a tie rounding may choose the other segment: no gradient goes there.
        clear = segments[:, 0] - segments[:, 1] > 1e-4 if K > 1 else torch.ones_like(inputs[0]) > 0
        exact = functional.piecewise_max(inputs[0], alpha, beta)
        worst["y"] = max(worst.get("y", 0.0), error(y[r], exact.detach()))
        expected = torch.autograd.grad((exact * grad[r].double()).sum(), inputs)
        pairs = [(grads[0][r] * clear, expected[0] * clear)]
        if bool(clear.all()):
            pairs += [(g[r], e) for g, e in zip(grads[1:], expected[1:], strict=True)]
        for name, (g, e) in zip(("x", "gamma", "slopes", "intercepts"), pairs, strict=False):
            worst[name] = max(worst.get(name, 0.0), error(g, e))
    return worst


def projection_errors(N: int, C: int, dtype: torch.dtype, device: str) -> dict[str, float]:
    x = torch.randn(2, N, C, device=device).to(dtype)
    weight, mass = torch.randn(2, 1, C, device=device), torch.rand(N, device=device)
    projection, total = project.project(x, weight, mass)
    exact, w, m = x.double(), weight.double(), mass.double()
    errors = {
        "projection": error(projection, exact @ w.transpose(1, 2)),
        "sum": error(total, (m @ exact).unsqueeze(1)),
    }
    grad, grad_sum = torch.randn_like(projection), torch.randn_like(total)
    there = torch.randn(2, N, C, device=device).to(dtype)
    own = grad.double() @ w + m.view(1, -1, 1) * grad_sum.double()
    for name, start in (("grad_x", None), ("grad_x added", there)):
        out, grad_weight = project.project_backward(
            x, weight, mass, grad, grad_sum, None if start is None else start.clone()
        )
        errors[name] = error(out, own if start is None else own + start.double())
    errors["grad_weight"] = error(grad_weight, grad.double().transpose(1, 2) @ exact)
    return errors


def module_errors(device: str) -> dict[str, float]:
    """Three modules at once, under vmap, against the equations one by one, gradients included."""
    acts = [opened(GReLU(5, steps=3)).to(device) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(acts)
    edge_index, x = random_graph(40, 90).to(device), torch.randn(3, 40, 5, device=device)

    def run(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(acts[0], p, (x, edge_index))

    def loss(p: dict[str, Tensor], x: Tensor) -> Tensor:
        return run(p, x).pow(3).sum()

    assert backend(x) == "triton"
    out = torch.func.vmap(run)(parameters, x)
    grads, grad_x = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(parameters, x)
    errors = {"out": 0.0, "grad_x": 0.0}
    for i, act in enumerate(acts):
        exact, z = copy.deepcopy(act).double(), x[i].double().requires_grad_()
        expected = reference(exact, z, edge_index)[0]
        inputs = dict(exact.named_parameters())
        expected_grads = torch.autograd.grad(expected.pow(3).sum(), [z, *inputs.values()])
        errors["out"] = max(errors["out"], error(out[i], expected.detach()))
        errors["grad_x"] = max(errors["grad_x"], error(grad_x[i], expected_grads[0]))
        for name, grad in zip(inputs, expected_grads[1:], strict=True):
            errors[name] = max(errors.get(name, 0.0), error(grads[name][i], grad))
    return errors


def all_cases(device: str) -> Iterator[Case]:
    yield Case("modules under vmap", torch.float32, 1e-4, partial(module_errors, device))
    for options, weighted, directed in WHOLE:
        errors = partial(whole_errors, options, weighted, directed, device)
        name = f"whole: {options}, {weighted=}, {directed=}"
        yield Case(name, torch.float32, TOLERANCE[torch.float32], errors)
    for hard in HARD:
        yield Case(hard, torch.float32, 1e-5, partial(hard_errors, hard, device))
    for options in ({}, OTHER, FULL, {"mode": "paper"}, {"channel_wise": False}):
        errors = partial(second_errors, options, device)
        yield Case(f"second derivatives: {options}", torch.float32, 1e-4, errors)
    for variant in "ABCDEFG":
        errors = partial(batched_errors, variant, device)
        yield Case(f"batched: {variant}", torch.float32, TOLERANCE[torch.float32], errors)
    for variant in "AFG":
        yield Case(
            f"dropout: {variant}", torch.float32, 1.0, partial(dropout_errors, variant, device)
        )
    for dtype in TOLERANCE:
        for options in ({}, {"K": 3, "diagonal": False}, {"channel_wise": False}):
            errors = partial(fresh_errors, options, dtype, device)
            yield Case(f"fresh: {options}", dtype, 1.0, errors)
    for dtype, tolerance in TOLERANCE.items():
        for case in CASES:
            yield Case(str(case), dtype, tolerance, partial(piecewise_errors, case, dtype, device))
        for shape in ((53, 300), (5, 2200)):
            errors = partial(projection_errors, *shape, dtype, device)
            yield Case(f"projection: {shape}", dtype, tolerance, errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"
    record, failed = [], []
    for number, case in enumerate(all_cases(device)):
        torch.manual_seed(number)  # what a case finds does not depend on those before it
        try:
            errors = case.errors()
        except AssertionError as failure:  # the others are of interest, too
            failed.append(f"{case.name}, {case.dtype}: {failure}")
            continue
        # Not "above the tolerance": an error that is not a number is one.
        if not all(value < case.tolerance for value in errors.values()):
            failed.append(f"{case.name}, {case.dtype}: {errors}, allowed {case.tolerance}")
        record.append({"case": case.name, "dtype": str(case.dtype), "errors": errors})
    if failed:
        raise SystemExit("\n".join(failed))
    check_not_numbers(device)
    print(f"{len(record)} cases passed on {device}")
    if args.out is not None:
        where = {"device": device_name(torch.device(device)), "versions": environment()}
        content = {**where, "commit": commit(), "date": now(), "cases": record}
        args.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
