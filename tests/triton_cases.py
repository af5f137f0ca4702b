"""The Triton kernels against the reference: forward, backward, every type, odd shapes.

`test_triton.py` runs the cases in Triton's interpreter. `python -m tests.triton_cases --out
RECORD.json` runs them on a GPU.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from graphrelu import GReLU
from graphrelu.lab.record.machine import commit, device_name, environment, now
from graphrelu.ops import fused, uses_triton
from tests.helpers import OTHER, SHARP, batch_of_graphs, opened, random_graph, reference

# Relative to the largest entry of the exact result, computed in float64. In half precision a
# gradient is rounded twice, by `apply` and by `project`; the interpreter cuts off instead.
TOLERANCE = {torch.float32: 1e-5}
TOLERANCE |= {dtype: 2 * torch.finfo(dtype).eps for dtype in (torch.bfloat16, torch.float16)}

# The whole activation: options, whether the graph is weighted, and directed.
WHOLE: list[tuple[dict, bool, bool]] = [
    ({}, False, False),
    ({"K": 1}, False, True),
    ({"K": 3, "mode": "paper"}, True, False),
    ({"bias": False, "negative_slope": 0.1}, True, True),
    ({"topology": False}, False, False),
    ({"node_wise": False}, False, True),
    ({"channel_wise": False, "K": 3}, True, True),
    ({}, True, False),
    ({"steps": 1}, True, False),
    (OTHER, True, True),
    ({"K": 3, **SHARP}, False, True),
]

# Features that a kernel could fail on, and the least that an error is relative to: gradients are
# zero where nodes are alike.
WAVE = torch.arange(6300).sin()
FEW = WAVE[:84].view(12, 7)
HARD = {
    "one node": (FEW[:1], 1.0),
    "one channel": (FEW[:, :1], 1e-30),
    "all nodes alike": (FEW[:1].expand(12, 7), 1.0),
    "all zero": (torch.zeros(12, 7), 1.0),
    "far from zero": (2 + FEW, 1e-30),
    "very small": (1e-25 * FEW, 1e-30),
    "very large": (1e15 * FEW, 1e-30),
    "more channels than a tile": (WAVE[:3600].view(12, 300), 1e-30),
    "more tiles than are written out": (WAVE.view(3, 2100), 1e-30),
    "more nodes than a program": (WAVE[:2560].view(40, 64), 1e-30),
    "a softmax in two parts": (WAVE[:4100].view(4100, 1), 1e-30),
}

# Of the graphs of a batch: none, and more than a program takes at a time.
FEW_NODES, MORE_NODES = [7, 0, 1, 33], [1300, 0, 2, 700]

Errors = dict[str, float]


class Case(NamedTuple):
    errors: Callable[..., Errors]
    arguments: tuple[Any, ...]
    tolerance: float = TOLERANCE[torch.float32]
    dtype: torch.dtype = torch.float32
    fused: bool = False  # in the kernel for small graphs, or in the chain for large ones


def error(out: Tensor, exact: Tensor, least: float = 1e-30) -> float:
    if exact.numel() == 0:
        return 0.0
    return float((out.detach().double() - exact).abs().max() / exact.abs().max().clamp(min=least))


def graph_with_hub(num_nodes: int, weighted: bool, directed: bool) -> tuple[Tensor, Tensor | None]:
    """Node 0 has more edges than a kernel takes at a time, and the last ones few or none."""
    last = max(1, num_nodes - 5)
    hub = torch.stack([torch.zeros(40, dtype=torch.long), torch.randint(last, (40,))])
    edge_index = torch.cat([random_graph(num_nodes, 2 * num_nodes), hub], dim=1)
    weight = torch.rand(edge_index.size(1)) if weighted else None
    if not directed:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
        weight = None if weight is None else weight.repeat(2)
    return edge_index, weight


def whole(device: str, dtype: torch.dtype, options: dict, weighted: bool, directed: bool) -> Errors:
    act, x = opened(GReLU(7, **{"steps": 3} | options)), torch.randn(12, 7)
    return errors_of(device, dtype, act, x, *graph_with_hub(12, weighted, directed))


def hard(device: str, dtype: torch.dtype, name: str) -> Errors:
    x, least = HARD[name]
    act, graph = opened(GReLU(x.size(1), steps=3)), graph_with_hub(x.size(0), False, True)
    return errors_of(device, dtype, act, x, *graph, least=least)


def batched(device: str, dtype: torch.dtype, sizes: list[int], channels: int) -> Errors:
    edge_index, batch = batch_of_graphs(sizes)
    act = opened(GReLU(channels, steps=3))
    x, graphs = torch.randn(sum(sizes), channels), {"batch": batch, "batch_size": len(sizes)}
    return errors_of(device, dtype, act, x, edge_index, None, **graphs)


def errors_of(
    device: str,
    dtype: torch.dtype,
    act: GReLU,
    x: Tensor,
    edge_index: Tensor,
    weight: Tensor | None,
    least: float = 1e-30,
    **batch: Any,
) -> Errors:
    """Of the output and all gradients, in the Triton backend."""
    act, x = act.to(device), x.to(device, dtype).requires_grad_()
    assert uses_triton(x)
    graph = {"edge_index": edge_index, "edge_weight": weight, **batch}
    graph = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in graph.items()}
    exact, z = copy.deepcopy(act).double(), x.detach().double().requires_grad_()
    expected, alpha, beta = reference(exact, z, **graph)
    grad = torch.randn_like(x)
    if act.K > 1:  # near a tie rounding may choose the other segment: no gradient goes there
        first, second = (alpha * z.unsqueeze(1) + beta).topk(2, dim=1).values.unbind(dim=1)
        grad = grad * (first - second > 1e-4 * first.abs())
    expected_grads = torch.autograd.grad(expected, [z, *exact.parameters()], grad.double())

    inputs = {"x": x, **dict(act.named_parameters())}
    outs = act(x, **graph), act(x, **graph)
    grads, again = (torch.autograd.grad(out, list(inputs.values()), grad) for out in outs)
    assert torch.equal(*outs), "the same input gave other bits"
    assert all(map(torch.equal, grads, again)), "the same input gave other bits"
    errors = {"out": error(outs[0], expected.detach(), least)}
    pairs = zip(inputs, grads, expected_grads, strict=True)
    return errors | {name: error(g, e, least) for name, g, e in pairs}


def fresh(device: str, dtype: torch.dtype, options: dict) -> Errors:
    """A fresh module differs from ReLU in no bit of either pass, at zero neither."""
    act = GReLU(7, steps=3, **options).to(device)
    x = (torch.randint(-2, 3, (12, 7)) * torch.randn(12, 7)).to(device, dtype)
    edge_index, grad = random_graph(12, 36).to(device), torch.randn_like(x)
    assert bool((x == 0).any())
    found = []
    for function in (lambda z: act(z, edge_index), torch.relu):
        z = x.clone().requires_grad_()
        out = function(z)
        found.append((out.detach(), *torch.autograd.grad(out, z, grad)))
    pairs = zip(("out", "x"), *found, strict=True)
    return {name: float((a != b).sum()) for name, a, b in pairs}


def not_a_number(device: str, value: float) -> Errors:
    """A NaN reaches all outputs, an infinity those that it reaches without these kernels; and no
    gradient hides them."""
    act = opened(GReLU(7, steps=3)).to(device)
    edge_index, x = random_graph(12, 36).to(device), torch.randn(12, 7, device=device)
    x[3, 2] = value
    x.requires_grad_()
    found = []
    for name in ("triton", "torch"):
        with mock.patch.dict(os.environ, GRAPHRELU_BACKEND=name):
            out = act(x, edge_index)
            grads = torch.autograd.grad(out.sum(), [x, *act.parameters()])
        assert not bool(out[3, 2].isfinite()), name
        found.append(out.isnan())
        found[-1][3, 2] = True  # or an infinity: the kernels multiply in another order
        assert value == value or bool(out.isnan().all()), name
        assert all(bool(grad.isnan().any()) for grad in grads), name
    return {"other places": float((found[0] != found[1]).sum())}


def vmap(device: str, nodes: int, batched: bool = False, nested: bool = False) -> Errors:
    """Three modules at once against one by one, gradients included, each with a batch of its own,
    as the folds of a laboratory have. The features of a node are side by side in memory, as behind
    a convolution."""
    acts = [opened(GReLU(5, steps=3)).to(device) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(acts)
    part = torch.arange(nodes) // 6
    edge_index = random_graph(nodes, 3 * nodes)
    if batched:  # edges stay within parts, and parts within graphs
        edge_index = edge_index[:, part[edge_index[0]] == part[edge_index[1]]]
    edge_index = edge_index.to(device)
    x = torch.randn(nodes, 3, *([2] if nested else []), 5, device=device).movedim(0, -2)
    batch = torch.randint(4, (3, int(part[-1]) + 1)).sort().values[:, part].to(device)
    assert uses_triton(x)

    def loss(p: dict[str, Tensor], x: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        graph = {"batch": batch, "batch_size": 5} if batched else {}
        out = torch.func.functional_call(acts[0], p, (x, edge_index), graph)
        return out.pow(3).sum(), out

    run = torch.func.grad(loss, argnums=(0, 1), has_aux=True)
    if nested:
        run = torch.func.vmap(run, in_dims=(None, 0, None))
    together = tree_leaves(torch.func.vmap(run)(parameters, x, batch))
    own = [({name: p[i] for name, p in parameters.items()}, x[i], batch[i]) for i in range(3)]
    alone = zip(*(tree_leaves(run(*arguments)) for arguments in own), strict=True)
    names = [*parameters, "x", "out"]
    found = zip(names, together, map(torch.stack, alone), strict=True)
    return {name: error(a, b.detach()) for name, a, b in found}


def compiled(device: str, mode: str) -> Errors:
    """In one graph of operations, training on three graphs of one size in turn."""
    torch.compiler.reset()
    act = opened(GReLU(7, steps=3)).to(device)
    function = torch.compile(act, fullgraph=True, mode=mode)
    x = torch.randn(12, 7, device=device, requires_grad=True)
    graphs = [random_graph(12, 36).to(device) for _ in range(3)]
    inputs, errors = [x, *act.parameters()], {"out": 0.0, "gradients": 0.0}
    for turn in (0, 0, 0, 1, 2, 0):
        out, expected = function(x, graphs[turn]), act(x, graphs[turn])
        grads, own = (torch.autograd.grad(y.pow(2).sum(), inputs) for y in (out, expected))
        errors["out"] = max(errors["out"], error(out, expected.detach()))
        worst = max(map(error, grads, own))
        errors["gradients"] = max(errors["gradients"], worst)
    return errors


def graphed(device: str, graphs: int) -> Errors:
    """Forward and backward as CUDA graphs of torch's own making, on other features."""
    act, edge_index = opened(GReLU(7, steps=3)).to(device), random_graph(12, 36).to(device)
    x = torch.randn(12, 7, device=device, requires_grad=True)
    tensors: tuple[Tensor, ...] = (x, edge_index)
    if graphs > 1:
        edge_index.remainder_(12 // graphs)  # all edges are within the first graph
        tensors += (torch.arange(graphs, device=device).repeat_interleave(12 // graphs),)

    class OfTensors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = act

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            size = None if batch is None else graphs
            return self.act(x, edge_index, batch=batch, batch_size=size)

    eager = OfTensors()
    made = torch.cuda.make_graphed_callables(copy.deepcopy(eager), tensors)
    x = torch.randn_like(x, requires_grad=True)
    found = []
    for model in (made, eager):
        out = model(x, *tensors[1:])
        grads = torch.autograd.grad(out.pow(2).sum(), [x, *model.parameters()])
        found.append([t.detach().clone() for t in (out, *grads)])
    names = ["out", "x", *dict(act.named_parameters())]
    return {name: error(a, b) for name, a, b in zip(names, *found, strict=True)}


def large(device: str) -> Errors:
    """More rows than programs that run at a time, which wait for each other."""
    act, x = opened(GReLU(7)), torch.randn(50_000, 7)
    return errors_of(device, torch.float32, act, x, *graph_with_hub(50_000, True, True))


# What only a GPU has: a compiler, CUDA graphs, and more than one program at a time.
GPU_CASES = {
    "many programs": Case(large, ()),
    "compiled": Case(compiled, ("default",)),
    "compiled, with CUDA graphs": Case(compiled, ("reduce-overhead",)),
    "captured by make_graphed_callables": Case(graphed, (1,)),
    "captured by make_graphed_callables: a batch": Case(graphed, (3,), fused=True),
}
GPU_CASES |= {
    f"fused, {name}": GPU_CASES[name]._replace(fused=True)
    for name in ("compiled", "captured by make_graphed_callables")
}


def all_cases() -> dict[str, Case]:
    cases = {
        "vmap": Case(vmap, (12,)),
        "vmap: more nodes than a program": Case(vmap, (300,)),
        "vmap: nested": Case(vmap, (12, False, True)),
        "fused, vmap: batches": Case(vmap, (41, True), fused=True),
        "fused, vmap: nested, batches": Case(vmap, (12, True, True), fused=True),
    }
    for dtype, tolerance in TOLERANCE.items():
        of_type = partial(Case, tolerance=tolerance, dtype=dtype)
        half = dtype != torch.float32  # where all but the widths of the tiles is as in float32
        for options, weighted, directed in WHOLE[:1] if half else WHOLE:
            name = f"whole: {options}, {weighted=}, {directed=}, {dtype}"
            cases[name] = of_type(whole, (dtype, options, weighted, directed))
        for name in [name for name in HARD if not half or name.startswith("more")]:
            cases[f"hard: {name}, {dtype}"] = of_type(hard, (dtype, name))
        for options in [{}] if half else [{}, {"K": 3}]:
            cases[f"fresh: {options}, {dtype}"] = Case(fresh, (dtype, options), 1.0, dtype)
        for name in [name for name in cases if name.endswith(str(dtype))]:
            if not any(other in name for other in ("K", "channel_wise", "in two parts")):
                cases[f"fused, {name}"] = cases[name]._replace(fused=True)
        for channels in (6, 300):
            own = of_type(batched, (dtype, FEW_NODES, channels), fused=True)
            cases[f"fused, batched: {channels=}, {dtype}"] = own
    cases["fused, batched: large graphs"] = Case(
        batched, (torch.float32, MORE_NODES, 3), fused=True
    )
    # Of these the errors are numbers of places: there must be none.
    for value in (torch.nan, torch.inf, -torch.inf):
        case = Case(not_a_number, (value,), 1.0)
        cases |= {
            f"not a number: {value}": case,
            f"fused, not a number: {value}": case._replace(fused=True),
        }
    return cases


CASES = all_cases()


def check(name: str, device: str) -> Errors:
    """The errors of a case, which must be below its tolerance."""
    torch.manual_seed(0)  # what a case finds does not depend on those before it
    case = (CASES | GPU_CASES)[name]
    from graphrelu.ops.triton import fused as kernels

    limit = mock.patch.object(fused, "MAX_NODES", fused.MAX_NODES if case.fused else 0)
    kernel = mock.patch.object(kernels, "forward", wraps=kernels.forward)
    with limit, kernel as forward:
        errors = case.errors(device, *case.arguments)
    assert forward.called == case.fused, "the other kernels ran"
    # Not "above the tolerance": an error that is not a number is one.
    assert all(value < case.tolerance for value in errors.values()), (errors, case.tolerance)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"
    record, failed = [], []
    cases = CASES if device == "cpu" else CASES | GPU_CASES
    # Most of the time goes into compiling.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = {name: pool.submit(check, name, device) for name in cases}
    for name, case in cases.items():
        try:
            errors = found[name].result()
            record.append({"case": name, "dtype": str(case.dtype), "errors": errors})
        except AssertionError as failure:  # the others are of interest, too
            failed.append(f"{name}: {failure}")
    if failed:
        raise SystemExit("\n".join(failed))
    print(f"{len(record)} cases passed on {device}")
    if args.out is not None:
        where = {"device": device_name(torch.device(device)), "versions": environment()}
        content = {**where, "commit": commit(), "date": now(), "cases": record}
        args.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
