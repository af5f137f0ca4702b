"""The attention kernels against torch in float64: forward, backward, alone and under vmap.

Runs on a GPU (`python -m tests.lab.models.attention_cases`) or, with `TRITON_INTERPRET=1`, in
Triton's interpreter on a CPU.
"""

import copy
import inspect
import os
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch_geometric.utils import softmax

from graphrelu.lab.models import attention, dropout
from graphrelu.lab.models.backbones import GNN
from graphrelu.lab.models.dropout import SeededDropout
from graphrelu.lab.models.sparse import SparseMatrix
from tests.helpers import random_graph
from tests.triton_cases import TOLERANCE

TOLERANCES = {torch.float64: 1e-12, **TOLERANCE}
SLOPE = 0.2

# Nodes, entries besides those of a hub, heads, channels, type.
CASES = [
    (7, 12, 2, 3, torch.float32),
    (7, 12, 3, 5, torch.float64),
    (5, 9, 1, 7, torch.float32),
    (1, 0, 2, 1, torch.float32),
    (4, 5, 2, 67, torch.float32),
    (4, 5, 1, 130, torch.float64),
    (5, 9, 2, 4, torch.bfloat16),
    (5, 9, 8, 2, torch.float16),
]


def places(num_nodes: int, others: int) -> tuple[Tensor, Tensor]:
    """Rows and columns in order: the first row is a hub, the last is empty where there are more."""
    row, col = torch.randint(max(1, num_nodes - 1), (others,)), torch.randint(num_nodes, (others,))
    hub = torch.randint(num_nodes, (3 * num_nodes + 2,))
    row, col = torch.cat([torch.zeros_like(hub), row]), torch.cat([hub, col])
    order = torch.argsort(row * num_nodes + col)
    return row[order], col[order]


def error(out: Tensor, exact: Tensor) -> float:
    """Relative to the largest entry, or to one: a softmax's gradients may cancel to nothing."""
    scale = exact.abs().max().clamp(min=1.0)
    return float((out.detach() - exact).abs().max() / scale)


def weighted_sum(weight: Tensor, x: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, row, weight.unsqueeze(2) * x[col])


def edge_softmax(source: Tensor, target: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return softmax(F.leaky_relu(source[col] + target[row], SLOPE), row, num_nodes=len(source))


def operator_errors(case: tuple, device: str) -> list[dict[str, float]]:
    """Two replicas under vmap; the gradients by one backward pass and by `torch.func.grad`."""
    num_nodes, others, heads, channels, dtype = case
    row, col = (part.to(device) for part in places(num_nodes, others))
    ones = torch.ones(len(row), device=device)
    matrix = SparseMatrix.from_coordinates(row, col, ones, num_nodes, num_nodes)

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, device=device).to(dtype)

    def kernel_sum(weight: Tensor, x: Tensor) -> Tensor:
        return attention.weighted_sum(weight, x, row, matrix)

    def kernel_softmax(source: Tensor, target: Tensor) -> Tensor:
        return attention.edge_softmax(source, target, matrix, SLOPE)

    x = draw(heads, channels, num_nodes).permute(0, 3, 1, 2)  # in any order in memory
    operators = [
        (kernel_sum, weighted_sum, (draw(len(row), heads), x)),
        (kernel_softmax, edge_softmax, (draw(num_nodes, heads), draw(num_nodes, heads))),
    ]
    errors = []
    for kernel, exact, inputs in operators:
        leaves = [t.clone().requires_grad_() for t in inputs]
        out, again = vmap(kernel)(*leaves), vmap(kernel)(*inputs)
        assert torch.equal(out, again), "the same input gave other bits"
        outer = torch.randn_like(out)
        grads = torch.autograd.grad(out, leaves, outer)

        def loss(left: Tensor, right: Tensor, outer: Tensor, kernel=kernel) -> Tensor:
            return (kernel(left, right) * outer).sum()

        by_func = vmap(grad(loss, argnums=(0, 1)))(*inputs, outer)
        assert all(map(torch.equal, grads, by_func)), "torch.func.grad gave other bits"
        alone = kernel(*(t[1] for t in inputs))
        assert torch.equal(out[1], alone), "a replica differs from the same alone"
        worst: dict[str, float] = {}
        for i in range(2):
            wide = [t[i].double().requires_grad_() for t in inputs]
            expected = exact(*wide, row, col)
            expected_grads = torch.autograd.grad(expected, wide, outer[i].double())
            pairs = [(out[i], expected.detach())]
            pairs += [(g[i], e) for g, e in zip(grads, expected_grads, strict=True)]
            names = ("out", *inspect.signature(exact).parameters)[:3]
            for name, pair in zip(names, pairs, strict=True):
                worst[name] = max(worst.get(name, 0.0), error(*pair))
        errors.append(worst)
    return errors


def check_operators(device: str) -> None:
    """Schemas, and what the operators say of their results without computing them."""
    row, col = (part.to(device) for part in places(3, 2))
    ones = torch.ones(len(row), device=device)
    matrix = SparseMatrix.from_coordinates(row, col, ones, 3, 3)
    pattern, transposed = ((p.rowptr, p.col) for p in (matrix.pattern, matrix.pattern_t))
    weight, x = torch.rand(2, len(row), 2, device=device), torch.rand(2, 3, 2, 4, device=device)
    scores = x[..., 0].contiguous(), x[..., 1].contiguous()
    seeds = torch.tensor([3, 8], device=device)
    for op, arguments in (
        (attention.weighted_sum_op, (weight, x, *pattern, None)),
        (attention.weighted_sum_op, (weight, None, *transposed, matrix.order)),
        (attention.entry_products_op, (x, x, row, matrix.pattern.col)),
        (attention.edge_softmax_op, (*scores, *pattern, SLOPE)),
        (attention.edge_softmax_backward_op, (weight, weight, *scores, *pattern, SLOPE)),
        (dropout._seeded_dropout, (x, seeds, seeds[0], 1, 0.5)),
    ):
        torch.library.opcheck(op, arguments)


def second_derivative(device: str) -> None:
    """Is refused, not wrong."""
    matrix = SparseMatrix.from_tensor(torch.eye(2, device=device))
    source = torch.rand(2, 1, device=device, requires_grad=True)
    out = attention.edge_softmax(source, source, matrix, SLOPE)
    (first,) = torch.autograd.grad(out.sum(), source, create_graph=True)
    message = "none"
    try:
        torch.autograd.grad(first.sum(), source)
    except NotImplementedError as refusal:
        message = str(refusal)
    assert message == "Second derivatives of attention are not implemented."


def model_errors(device: str) -> dict[str, float]:
    """A GAT with dropout: three seeds at once, each alone, and by the passes of a CPU."""
    model = GNN("gat", 6, 3, 2, heads=2, output_heads=3).to(device)
    models = [copy.deepcopy(model) for _ in range(3)]
    for each in models:
        each.reset_parameters()
    inputs = model.prepare(torch.randn(5, 6).to(device), random_graph(5, 7).to(device))
    stacked, _ = stack_module_state(models)
    parameters = {name: p.detach().requires_grad_() for name, p in stacked.items()}
    step, seeds = torch.tensor(3, device=device), torch.tensor([4, 0, 9], device=device)

    def run(p: dict[str, Tensor], seed: Tensor) -> Tensor:
        with SeededDropout(seed, step):
            return functional_call(model, p, (inputs,))

    def outcome(seeds: Tensor, chosen: slice) -> list[Tensor]:
        leaves = {n: p[chosen].detach().requires_grad_() for n, p in parameters.items()}
        out = vmap(run)(leaves, seeds[chosen])
        return [out, *torch.autograd.grad(out.pow(2).sum(), list(leaves.values()))]

    together, alone = outcome(seeds, slice(None)), outcome(seeds, slice(1, 2))
    with mock.patch.dict(os.environ, {"GRAPHRELU_BACKEND": "torch"}):
        plain = outcome(seeds, slice(None))
    together, alone, plain = ([t.detach().double() for t in o] for o in (together, alone, plain))
    return {
        "alone": max(error(a[0], t[1]) for a, t in zip(alone, together, strict=True)),
        "plain": max(map(error, together, plain)),
    }


def main() -> None:
    device = "cpu" if os.environ.get("TRITON_INTERPRET") else "cuda"
    torch.manual_seed(0)
    check_operators(device)
    second_derivative(device)
    passed = 0
    for case in CASES:
        for errors in operator_errors(case, device):
            assert max(errors.values()) < TOLERANCES[case[-1]], (case, errors)
            passed += 1
    errors = model_errors(device)
    assert max(errors.values()) < 1e-5, errors
    print(f"{passed + 1} cases passed on {device}")


if __name__ == "__main__":
    main()
