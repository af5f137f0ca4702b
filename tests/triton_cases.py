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

import torch
from torch import Tensor

from graphrelu import GReLU, functional, fused
from graphrelu.backend import backend
from graphrelu.calibration import DEFAULT
from graphrelu.lab.machine import commit, device_name, environment, now
from tests.helpers import PLAIN, SMOOTH, opened, random_graph, reference
from tests.whole_cases import (
    HARD,
    WHOLE,
    check_not_numbers,
    error,
    hard_errors,
    second_errors,
    whole_errors,
)

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


class Case(NamedTuple):
    name: str
    dtype: torch.dtype
    tolerance: float
    errors: Callable[[], dict[str, float]]


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


def projection_errors(N: int, C: int, dtype: torch.dtype, device: str) -> dict[str, float]:
    x = torch.randn(2, N, C, device=device).to(dtype)
    weight, mass = torch.randn(2, 1, C, device=device), torch.rand(N, device=device)
    projection, total = fused.project_and_sum(x, weight, mass)
    exact, w, m = x.double(), weight.double(), mass.double()
    errors = {
        "projection": error(projection, exact @ w.transpose(1, 2)),
        "sum": error(total, (m @ exact).unsqueeze(1)),
    }
    grad, grad_sum = torch.randn_like(projection), torch.randn_like(total)
    there = torch.randn(2, N, C, device=device).to(dtype)
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


def all_cases(device: str) -> Iterator[Case]:
    yield Case("modules under vmap", torch.float32, 1e-4, partial(module_errors, device))
    for from_entries in (0, 10**9):
        for options, weighted, directed in WHOLE:
            name = f"whole: {options}, {weighted=}, {directed=}, {from_entries=}"
            errors = partial(whole_errors, options, weighted, directed, from_entries, device)
            yield Case(name, torch.float32, TOLERANCE[torch.float32], errors)
        for hard, (features, _, tolerance) in HARD.items():
            if from_entries > 0 and features.numel() > 500:
                continue  # the interpreter takes its time
            for power in (1, 2):
                name = f"smooth: {hard}, {power=}, {from_entries=}"
                errors = partial(hard_errors, hard, power, from_entries, device)
                yield Case(name, torch.float32, tolerance, errors)
    for calibration in (DEFAULT, PLAIN, SMOOTH):
        errors = partial(second_errors, calibration, device)
        yield Case(f"second derivatives: {calibration}", torch.float32, 1e-4, errors)
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
