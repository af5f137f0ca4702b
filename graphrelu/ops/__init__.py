r"""The operations of which GReLU has fast implementations.

On a CPU the usual form is one operation, :func:`~graphrelu.ops.fused.fused`, in compiled loops. On
a GPU it is a chain of four. Everything else uses the diffusion of that chain, and the twins in
:mod:`graphrelu.functional` of the others:

- :func:`~graphrelu.ops.project.project`: from the features to the node logits, and to the mean of
  each graph.
- :func:`~graphrelu.ops.diffuse.diffuse`: personalised PageRank over a sorted matrix.
- :func:`~graphrelu.ops.weigh.weigh`: from the diffused logits to the weight of each node.
- :func:`~graphrelu.ops.apply.apply`: the piecewise maximum, straight from the factors of its
  coefficients.

Each file holds an operation with its gradient, the shapes that a compiler asks for and the rule of
:func:`torch.func.vmap`; :mod:`graphrelu.ops.triton` has a file of GPU kernels for each. An
operation is an autograd function around custom operators: torch's own `register_autograd` takes
twice as long (27 against 13 us on a small graph), and cannot be used below `vmap(grad(...))`. Its
`forward` names all arguments, as a compiler counts them. Second derivatives are those of
:mod:`graphrelu.functional`.

Tensors may have a leading dimension of replicas, which comes from a vmap: stacked models.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from graphrelu.functional import backend

HAS_TRITON = find_spec("triton") is not None  # asked once: a compiler cannot trace the question
# Triton's interpreter runs the kernels of a GPU on a CPU, for tests.
INTERPRETS = bool(os.environ.get("TRITON_INTERPRET"))


def uses_triton(x: Tensor) -> bool:
    """Whether Triton's kernels are used for `x`: on a GPU where Triton is installed, unless
    `GRAPHRELU_BACKEND` says something else."""
    if not (x.is_cuda or INTERPRETS):
        return False
    return (backend() or "triton") == "triton" and x.dtype != torch.float64 and HAS_TRITON


def replicated(tensor: Tensor, dim: int | None, replicas: int) -> Tensor:
    """The argument of a vmap rule with its replicas in front."""
    return tensor.expand(replicas, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def one_by_one(
    function: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any
) -> tuple[Any, Any]:
    """A vmap rule: the function runs for one replica at a time."""
    each = []
    for i in range(info.batch_size):
        pairs = zip(args, in_dims, strict=True)
        each.append(function(*(a.select(d, i) if isinstance(d, int) else a for a, d in pairs)))
    if isinstance(each[0], Tensor):
        return torch.stack(each), 0
    return tuple(map(torch.stack, zip(*each, strict=True))), (0,) * len(each[0])


def custom_operator(
    name: str,
    schema: str,
    run: Callable[..., Any],
    shapes: Callable[..., Any],
    key: str = "default",
) -> Any:
    """An operator of torch: `run` computes, and `shapes` tells a compiler what comes out. Below a
    vmap, such as that of batched gradients, it runs :func:`one_by_one`."""
    name = f"graphrelu::{name}"
    torch.library.define(name, schema)
    torch.library.impl(name, key, run)
    torch.library.register_fake(name, shapes)
    operator = getattr(torch.ops.graphrelu, name.partition("::")[2]).default
    torch.library.register_vmap(name, partial(one_by_one, operator))
    return operator


def launcher(module: str, name: str) -> Callable[..., Any]:
    """A function of :mod:`graphrelu.ops.triton`, imported when it is called: Triton may not be
    installed."""

    def run(*arguments: Any) -> Any:
        return getattr(import_module(f"graphrelu.ops.triton.{module}"), name)(*arguments)

    return run


def differentiated(
    function: Callable[..., Any], inputs: Sequence[Tensor], grads: Any
) -> tuple[Tensor, ...]:
    """The gradients of the inputs in terms that can be differentiated again."""
    return torch.func.vjp(function, *inputs)[1](grads)
