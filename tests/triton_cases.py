"""The Triton kernels against the reference: forward, backward, every type, odd shapes.

Runs on a GPU (`python -m tests.triton_cases --out RECORD.json`) or, with `TRITON_INTERPRET=1`, in
Triton's interpreter on a CPU.
"""

import argparse
import copy
import json
import os
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from graphrelu import GReLU, functional, fused, sliced
from graphrelu.backend import backend
from graphrelu.calibration import Calibration
from graphrelu.lab.machine import commit, device_name, environment, now
from tests.helpers import opened, random_graph, reference

# Relative to the largest entry of the exact result, computed in float64.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}

# Replicas, nodes, channels, K, weights per node, sizes of the graphs, base slopes.
CASES = [
    (1, 37, 5, 2, 1, None, (1.0, 0.0)),
    (1, 1, 1, 1, 1, None, (1.0, 0.0)),
    (2, 53, 7, 3, 1, None, (0.0, 0.0)),
    (1, 300, 64, 2, 1, None, (1.0, 0.0)),
    (1, 45, 300, 2, 1, None, (1.0, 0.2)),
    (1, 60, 6, 3, 3, None, (1.0, 0.0)),
    (1, 60, 6, 2, 1, (10, 0, 33, 17), (1.0, 0.0)),
    (3, 60, 6, 7, 1, (10, 0, 33, 17), (0.0, 0.0)),
    (2, 41, 33, 7, 7, (41,), (1.0, 0.0)),
]


def error(out: Tensor, exact: Tensor) -> float:
    if exact.numel() == 0:
        return 0.0
    return float((out.detach().double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30))


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

    y = fused.piecewise_max(x, gamma, slopes, intercepts, base, batch)
    grads = fused.piecewise_max_backward(grad, x, gamma, slopes, intercepts, base, batch)
    again = fused.piecewise_max_backward(grad, x, gamma, slopes, intercepts, base, batch)
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


def projection_errors(dtype: torch.dtype, device: str) -> dict[str, float]:
    x = torch.randn(2, 53, 300, device=device).to(dtype)
    weight, mass = torch.randn(2, 1, 300, device=device), torch.rand(53, device=device)
    projection, total = fused.project_and_sum(x, weight, mass)
    exact, w, m = x.double(), weight.double(), mass.double()
    errors = {
        "projection": error(projection, exact @ w.transpose(1, 2)),
        "sum": error(total, (m @ exact).unsqueeze(1)),
    }
    grad, grad_sum = torch.randn_like(projection), torch.randn_like(total)
    there = torch.randn(2, 53, 300, device=device).to(dtype)
    own = grad.double() @ w + m.view(1, -1, 1) * grad_sum.double()
    for name, start in (("grad_x", None), ("grad_x added", there)):
        out, grad_weight = fused.project_and_sum_backward(
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


OTHER_CONSTANTS = Calibration(
    temperature=2.0,
    gamma_scale=0.6,
    gamma_max=0.8,
    rest_scale=0.4,
    intercept_scale=0.7,
    channel_scale=1.5,
    gate_scale=1.3,
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
]


def whole_errors(
    options: dict, weighted: bool, directed: bool, from_entries: int, device: str
) -> dict[str, float]:
    """One GReLU on a graph with a hub, in slices from so many entries on."""
    torch.manual_seed(0)
    # Of the other product the interpreter takes its time.
    num_nodes, few = (300, {}) if from_entries == 0 else (30, {"steps": 3})
    act = opened(GReLU(7, **few | options)).to(device)
    hub = torch.stack([torch.zeros(300, dtype=torch.long), torch.randint(num_nodes - 5, (300,))])
    edge_index = torch.cat([random_graph(num_nodes, 2 * num_nodes), hub], dim=1)
    weight = torch.rand(edge_index.size(1)) if weighted else None
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = None if weight is None else weight.repeat(2)
    graph = edge_index.to(device), None if weight is None else weight.to(device)
    x = torch.randn(num_nodes, 7, device=device, requires_grad=True)
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
    expected_grads = torch.autograd.grad(expected, [z, *exact.parameters()], grad.double())
    pairs = zip(["x", *parameters], grads, expected_grads, strict=True)
    return {"out": error(out, expected.detach())} | {n: error(g, e) for n, g, e in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"
    torch.manual_seed(0)
    errors = module_errors(device)
    assert max(errors.values()) < 1e-4, errors
    record = [{"case": "modules under vmap", "dtype": "torch.float32", "errors": errors}]
    for options, weighted, directed in WHOLE:
        for from_entries in (0, 10**9):
            errors = whole_errors(options, weighted, directed, from_entries, device)
            name = f"whole: {options}, {weighted=}, {directed=}, {from_entries=}"
            # The gate's gradient is one number, the sum of terms of both signs.
            bound = {n: 1e-4 if n == "gate" else TOLERANCE[torch.float32] for n in errors}
            assert all(errors[n] < bound[n] for n in errors), (name, errors)
            record.append({"case": name, "dtype": "torch.float32", "errors": errors})
    for dtype, tolerance in TOLERANCE.items():
        cases = [(str(case), piecewise_errors(case, dtype, device)) for case in CASES]
        for name, errors in [*cases, ("projection", projection_errors(dtype, device))]:
            assert max(errors.values()) < tolerance, (name, dtype, errors)
            record.append({"case": name, "dtype": str(dtype), "errors": errors})
    print(f"{len(record)} cases passed on {device}")
    if args.out is not None:
        where = {"device": device_name(torch.device(device)), "versions": environment()}
        content = {**where, "commit": commit(), "date": now(), "cases": record}
        args.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
